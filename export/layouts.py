"""The two layouts of a sentence-transformers folder: the same modules under other names, options spelled otherwise.

What version 6 writes cannot be read by versions before 5.4: ``compat=3`` is the layout that version 3.0 and all later
ones read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contracts import InputError
from encoders.attention import FIRST_TO_HONOUR, is_causal
from encoders.dense import Dense
from encoders.pooling import Pooler, cls, last, maximum, mean, weighted_mean
from export.older_transformers import SOFT_CAPS, first_to_read

COMPAT = (None, 3)
FIRST_OF_OLD = "3.0.0"  # of sentence-transformers: the first that reads similarity_fn_name
FIRST_OF_NEW = "5.4.0"  # the first that knows the new names; a folder says so under ``requirements``
FIRST_OF_TEMPLATES = "5.6.0"  # the first that sends every text through the template of `export.appended`
NEW_TYPES = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "WeightedLayerPooling": "sentence_transformer.modules.weighted_layer_pooling",
    "Dense": "base.modules.dense",
    "Normalize": "sentence_transformer.modules.normalize",  # as versions before 6 call it; those since read it, too
}
TEXT_ONLY = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
MODE_OF: dict[Callable[..., Any], str] = {
    cls: "cls",
    maximum: "max",
    mean: "mean",
    last: "lasttoken",
    weighted_mean: "weightedmean",
}


def check_compat(compat: int | None) -> None:
    if compat not in COMPAT:
        raise InputError(
            f"compat={compat} is unknown: null writes the layout of sentence-transformers 6, 3 the one that version 3 "
            "and all later ones read."
        )


def listed(kinds: Sequence[str], compat: int | None) -> list[dict[str, Any]]:
    """``modules.json`` of modules in this order, the transformer in the root."""
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds[1:], 1))]
    return [
        {"idx": i, "name": str(i), "path": path, "type": _type(kind, compat)}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]


def _type(kind: str, compat: int | None) -> str:
    return f"sentence_transformers.models.{kind}" if compat else f"sentence_transformers.{NEW_TYPES[kind]}.{kind}"


def versions(compat: int | None, config: Any, *, appended: bool) -> dict[str, Any]:
    """What the folder says about the library that it is for; a newer one than it names would be warned about.

    Raises:
        InputError: a backbone that older transformers read otherwise, in the layout that cannot say which it needs.
    """
    both_ways, needed = not is_causal(config), first_to_read(config)
    if compat and needed:
        raise InputError(
            f"compat={compat}: a {config.model_type} such as this needs transformers {needed} or later; 4 would take "
            "other rotations of positions, or drop its soft caps, without a word. Leave compat out."
        )
    if compat and both_ways:
        raise InputError(
            f"compat={compat}: a decoder with model.attention=bidirectional needs transformers {FIRST_TO_HONOUR} or "
            "later, and this layout cannot say so: older ones would read it causally without a word. Leave compat out."
        )
    if compat:
        return {"__version__": {"sentence_transformers": FIRST_OF_OLD}}
    first = FIRST_OF_TEMPLATES if appended else FIRST_OF_NEW
    if both_ways and needed != SOFT_CAPS:
        needed = FIRST_TO_HONOUR
    return {
        "model_type": "SentenceTransformer",
        "__version__": {"sentence_transformers": first},
        "requirements": {
            "sentence-transformers": f">={first}",
            **({"transformers": f">={needed}"} if needed else {}),
        },
    }


def truncation(truncate: int | None, compat: int | None) -> dict[str, int]:
    """How a folder says that its vectors are cut.

    Raises:
        InputError: it is for versions that would not read it.
    """
    if truncate is not None and compat:
        raise InputError(
            f"truncate={truncate}: versions of sentence-transformers for which compat={compat} is do not read it in a "
            "folder, and would give whole vectors without a word. Leave out compat, or truncate, and say "
            f"SentenceTransformer(FOLDER, truncate_dim={truncate}) there."
        )
    return {} if truncate is None else {"truncate_dim": truncate}


def transformer_options(model_options: Mapping[str, Any], max_length: int, compat: int | None) -> dict[str, Any]:
    """``sentence_bert_config.json``; the new layout has the maximum length in the tokenizer alone."""
    if compat:
        named = {"model_args": dict(model_options)} if model_options else {}
        return {"max_seq_length": max_length, "do_lower_case": False, **named}
    return {**TEXT_ONLY, **({"model_kwargs": dict(model_options)} if model_options else {})}


def pooling_options(width: int, pooler: Pooler, compat: int | None) -> dict[str, Any]:
    mode = MODE_OF[pooler.over_tokens]
    if not compat:
        return {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": True}
    return {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_max_tokens": mode == "max",
        "pooling_mode_mean_tokens": mode == "mean",
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": mode == "weightedmean",
        "pooling_mode_lasttoken": mode == "lasttoken",
        "include_prompt": True,
    }


def layers_options(width: int, layers: int, compat: int | None) -> dict[str, Any]:
    """Of WeightedLayerPooling over the embeddings and all layers."""
    name = "word_embedding_dimension" if compat else "embedding_dimension"
    return {name: width, "layer_start": 0, "num_hidden_layers": layers}


def dense_options(layer: Dense, compat: int | None) -> dict[str, Any]:
    """A layer on the pooled vector."""
    places = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    return layer.options if compat else {**layer.options, **places}


def normalize_options(compat: int | None) -> dict[str, Any]:
    same = "sentence_embedding"
    return {} if compat else {"module_input_name": same, "module_output_name": same}
