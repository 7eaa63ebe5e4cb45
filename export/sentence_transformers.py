"""Export of an encoder as a sentence-transformers folder.

The folder holds weights, a tokenizer and small JSON files. Writing them here keeps sentence-transformers out of
training.
"""

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from contracts import InputError
from encoders.appended_prompt import AppendedPrompt
from encoders.attention import FIRST_TO_HONOUR, is_causal
from encoders.dense import IDENTITY, Dense, dense_layers
from encoders.lora import merged
from encoders.pooling import LAST_LAYER, POOLERS, Pooler, cls, last, maximum, mean, weighted_mean
from encoders.sentence_encoder import SentenceEncoder
from export.adapter import Adapter
from export.appended_prompts import as_classifier, transformer_options
from export.whole_folder import export_folder

PARTS = ("tokenizer", "pooling", "max_length", "head", "normalize", "prompt_suffix", "truncate")  # of an encoder
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
LIBRARY_VERSION = "6.0.0"  # the first sentence-transformers that writes this layout
SOFT_CAPS_VERSION = "5.21"  # the first transformers that keeps Gemma 2's soft caps with every attention
# Tokenizers that transformers 5 gives the special tokens of their class when it loads them, and the class that takes
# tokenizer.json as it is
REBUILT_TOKENIZERS, GENERIC_TOKENIZER = ("CodeLlamaTokenizer", "GPTNeoXTokenizer"), "TokenizersBackend"
MODULE_PATHS = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "WeightedLayerPooling": "sentence_transformer.modules.weighted_layer_pooling",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
}
POOLING_MODES: dict[Callable[..., Any], str] = {
    cls: "cls",
    maximum: "max",
    mean: "mean",
    last: "lasttoken",
    weighted_mean: "weightedmean",
}
TEXT_ONLY = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
ON_THE_VECTOR = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


def parts_of(encoder: SentenceEncoder) -> dict[str, Any]:
    """The keywords of `export_encoder` that an encoder knows itself."""
    return {"transformer": encoder.trunk, **{name: getattr(encoder, name) for name in PARTS}}


def export_encoder(
    folder: Path,
    *,
    transformer: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pooling: str,
    max_length: int,
    head: nn.Module | None = None,
    prompts: Mapping[str, str] | None = None,
    normalize: bool = False,
    similarity: str = "cosine",
    card: str | None = None,
    prompt_suffix: str = "",
    truncate: int | None = None,
    adapter: Adapter | None = None,
) -> Path:
    """Write ``folder`` whole or not at all; an earlier export there is replaced.

    ``transformer`` is the base model without LM head and stays as it is: a float32 copy on the CPU is written. Layers
    that are averaged become the library's WeightedLayerPooling, layers of ``head`` its Dense.
    ``max_length`` counts tokens, special tokens included. A prompt named ``default`` also serves queries and documents
    that have none of their own, because sentence-transformers does not fall back to it. ``card`` becomes README.md.
    ``prompt_suffix`` goes behind every text. ``truncate`` becomes the library's truncate_dim; with ``normalize`` a
    Dense that keeps the first numbers, as the library cuts behind its modules, and the length would not be 1 any more.
    ``adapter`` is written in the place of the transformer's weights.
    """
    folder = Path(folder)
    _check(pooling, similarity, max_length)
    decodes = POOLERS[pooling].decodes
    appended = None
    if prompt_suffix or decodes:
        appended = AppendedPrompt(tokenizer, prompt_suffix, max_length, escape_end=decodes)
    top_level = _top_level(prompts or {}, similarity, transformer.config)
    if truncate is not None and not normalize:
        top_level["truncate_dim"] = truncate
    with export_folder(folder) as unfinished:
        layers = [*dense_layers(head), *_cut(transformer, head, truncate if normalize else None)]
        modules = list(_modules(transformer, POOLERS[pooling], layers, normalize))
        all_layers = POOLERS[pooling].layers != LAST_LAYER
        if adapter is None:
            write_transformer(unfinished, transformer, all_layers=all_layers, classifier=decodes)
        else:
            adapter.write(unfinished)
        write_tokenizer(unfinished, tokenizer, max_length, template=appended.template if appended else None)
        _write_json(unfinished / "modules.json", _listed(["Transformer", *(m.kind for m in modules)]))
        _write_json(unfinished / "config_sentence_transformers.json", top_level)
        options = TEXT_ONLY | _model_options(transformer)
        options |= transformer_options(decodes=decodes) if appended else {}
        _write_json(unfinished / "sentence_bert_config.json", options)
        for place, module in enumerate(modules, 1):
            _write_module(unfinished / f"{place}_{module.kind}", module)
        if card is not None:
            (unfinished / "README.md").write_text(card, encoding="utf-8")
    return folder


def _check(pooling: str, similarity: str, max_length: int) -> None:
    if pooling not in POOLERS:
        raise InputError(f"export: pooling must be one of {', '.join(sorted(POOLERS))}, got {pooling!r}.")
    if similarity not in SIMILARITIES:
        raise InputError(f"export: similarity must be one of {', '.join(SIMILARITIES)}, got {similarity!r}.")
    if max_length < 1:
        raise InputError(f"export: max_length must be a positive number of tokens, got {max_length}.")


def write_transformer(
    folder: Path, transformer: PreTrainedModel, *, all_layers: bool, classifier: bool = False
) -> None:
    # A copy: save_pretrained writes the class into the config, which a model with an LM head shares
    written = merged(copy.deepcopy(transformer).cpu().float())
    if all_layers:
        written.config.output_hidden_states = True  # by this the library knows that a later module needs them
    (as_classifier(written) if classifier else written).save_pretrained(folder)


def write_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, max_length: int, *, template: str | None = None
) -> None:
    plain = copy.deepcopy(tokenizer)
    plain.model_max_length = max_length
    plain.padding_side = "right"  # positions are counted from the first column by whoever weighs or learns them
    plain.chat_template = template  # one of another model's would be sent our texts
    backend = getattr(plain, "backend_tokenizer", None)
    if backend is not None:  # the last call's padding and truncation would be saved, too
        backend.no_padding()
        backend.no_truncation()
    plain.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    if options["tokenizer_class"].removesuffix("Fast") in REBUILT_TOKENIZERS:
        _write_json(path, options | {"tokenizer_class": GENERIC_TOKENIZER})


class _Module(NamedTuple):
    """What follows the transformer."""

    kind: str  # a class of the library
    options: dict[str, Any]
    weights: dict[str, torch.Tensor]


def _modules(
    transformer: PreTrainedModel, pooler: Pooler, behind: Sequence[Dense], normalize: bool
) -> Iterator[_Module]:
    width, layers = int(transformer.config.hidden_size), int(transformer.config.num_hidden_layers)
    if pooler.layers != LAST_LAYER:
        weights = torch.zeros(layers + 1)  # of the embeddings and all layers
        weights[list(pooler.layers)] = 1
        options = {"embedding_dimension": width, "layer_start": 0, "num_hidden_layers": layers}
        yield _Module("WeightedLayerPooling", options, {"layer_weights": weights})
    mode = POOLING_MODES[pooler.over_tokens]
    yield _Module("Pooling", {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": True}, {})
    for layer in behind:
        weights_of_layer = {name: weight.detach().float().cpu() for name, weight in layer.state_dict().items()}
        yield _Module("Dense", layer.options | ON_THE_VECTOR, weights_of_layer)
    if normalize:
        yield _Module("Normalize", dict(ON_THE_VECTOR), {})


def _cut(transformer: PreTrainedModel, head: nn.Module | None, size: int | None) -> Iterator[Dense]:
    """A layer that keeps the first numbers of a vector, exactly; none where all are kept."""
    layers = dense_layers(head)
    width = layers[-1].linear.out_features if layers else int(transformer.config.hidden_size)
    if size is not None and size < width:
        layer = Dense(width, size, bias=False, activation=IDENTITY)
        nn.init.eye_(layer.linear.weight)
        yield layer


def _write_module(folder: Path, module: _Module) -> None:
    folder.mkdir()
    _write_json(folder / "config.json", module.options)
    if module.weights:
        save_file(module.weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _listed(kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The content of ``modules.json`` for modules in this order, the transformer in the root."""
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds[1:], 1))]
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{MODULE_PATHS[kind]}.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]


def _top_level(prompts: Mapping[str, str], similarity: str, config: Any) -> dict[str, Any]:
    default = prompts.get("default", "")
    return {
        "model_type": "SentenceTransformer",
        "__version__": {
            "sentence_transformers": LIBRARY_VERSION,
            "transformers": transformers.__version__,
            "pytorch": torch.__version__,
        },
        "requirements": {"sentence-transformers": f">={LIBRARY_VERSION}", **_needed_transformers(config)},
        "prompts": {"query": default, "document": default, **prompts},
        "default_prompt_name": "default" if "default" in prompts else None,
        "similarity_fn_name": similarity,
    }


def _needed_transformers(config: Any) -> dict[str, str]:
    """The requirement of a model that the first versions of transformers 5 would read otherwise."""
    if getattr(config, "attn_logit_softcapping", None):
        return {"transformers": f">={SOFT_CAPS_VERSION}"}
    return {} if is_causal(config) else {"transformers": f">={FIRST_TO_HONOUR}"}


def _model_options(transformer: PreTrainedModel) -> dict[str, Any]:
    takes_pooler = "add_pooling_layer" in inspect.signature(type(transformer).__init__).parameters
    if takes_pooler and getattr(transformer, "pooler", None) is None:
        # Loading would make a pooler of random weights, warn, and never use it
        return {"model_kwargs": {"add_pooling_layer": False}}
    return {}
