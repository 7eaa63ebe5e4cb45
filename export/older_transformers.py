"""Files that transformers 5 has written, such that transformers 4 reads the same out of them.

Of what it does not know 4 says nothing: it takes its default. So each thing stands in these files under both names,
and 5 reads them as it reads its own.
"""

import json
from pathlib import Path
from typing import Any

ROTATION = ("rope_theta", "partial_rotary_factor")  # what 4 has in the config itself, beside rope_scaling
OWN_ROTATIONS = ("apertus", "olmo3")  # families that 4 does not read by these names
SOFT_CAPS = "5.21"  # the first transformers that keeps the soft caps of Gemma 2 whatever computes its attention
GENERIC = "PreTrainedTokenizerFast"  # the class of a tokenizer that has none of its own
# Those of which 4 makes the ends of a text anew, as the class has them; GPT-NeoX's and CodeLlama's in 5, too
MAKE_ENDS = ("LlamaTokenizer", "GemmaTokenizer", "CodeLlamaTokenizer", "CohereTokenizer", "GPTNeoXTokenizer")


def rewrite_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Of ``tokenizer_config.json``: the generic class, whether a blank goes first, more special tokens."""
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    if options["tokenizer_class"].removesuffix("Fast") in ("TokenizersBackend", *MAKE_ENDS):
        options["tokenizer_class"] = GENERIC
    words = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    cut = json.loads(words.__getstate__()) if words is not None else {}
    if "add_prefix_space" in cut:  # 4 sets it to false, whatever tokenizer.json says
        options["add_prefix_space"] = cut["add_prefix_space"]
    options["model_input_names"] = list(tokenizer.model_input_names)  # else 4's generic one gives types of tokens, too
    if isinstance(options.get("extra_special_tokens"), list):
        options["additional_special_tokens"] = options.pop("extra_special_tokens")
    path.write_text(json.dumps(options, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def rewrite_config(folder: Path) -> None:
    """Of ``config.json``: how positions are rotated, where that is the same in all layers."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rotation = config.get("rope_parameters")
    if rotation and "rope_theta" in rotation:
        config |= {name: rotation[name] for name in ROTATION if name in rotation}
        scaling = {name: value for name, value in rotation.items() if name not in ROTATION}
        config["rope_scaling"] = scaling if scaling.get("rope_type", "default") != "default" else None
        if config["model_type"].startswith("gpt_neox"):
            part = rotation.get("partial_rotary_factor", 1.0)
            config |= {"rotary_emb_base": rotation["rope_theta"], "rotary_pct": part}
        path.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def first_to_read(config: Any) -> str | None:
    """The first transformers that reads such a model as it was trained, where 4 would take other rotations or drop soft
    caps, most often without a word.
    """
    if getattr(config, "attn_logit_softcapping", None):
        return SOFT_CAPS
    rotation = getattr(config, "rope_parameters", None) or {"rope_theta": None}
    by_layer = "rope_theta" not in rotation
    return "5" if by_layer or rotation.get("rope_type") == "longrope" or config.model_type in OWN_ROTATIONS else None
