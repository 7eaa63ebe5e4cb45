"""Read sentence-transformers folders: modules, prompts, and options.

Most folders contain a transformer, one pooling mode, and optionally a Normalize module. `SentenceEncoder` supports
these, and also an average of layers and Dense layers after the pooling, as this package exports them. For any other
folder, an error names the unsupported part, and the sentence-transformers library can load the model instead.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from contrastive_encoders.compat import find_file
from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.dense import IDENTITY, TANH, activation_of, head_of
from contrastive_encoders.encoders.pooling import CLS, POOLERS, Pooler
from contrastive_encoders.encoders.prompt_suffix import read_template
from contrastive_encoders.io.file_discovery import similar_path_hint
from contrastive_encoders.io.hub import only_local
from contrastive_encoders.io.model_names import GGUF, TRANSFORMER_OPTIONS

LOADABLE_FORMS = (
    "Use a run directory (with encoder/ or checkpoints/), a checkpoint (*.ckpt), a sentence-transformers directory "
    "(modules.json), a transformers directory (config.json), a hub id, a GGUF file, or word vectors (*.txt, *.vec, or "
    "either with .gz)."
)
LIBRARY = "sentence_transformers."
TOP_LEVEL = "config_sentence_transformers.json"
MODULES_UP_TO_POOLING = (
    "Transformer",
    "WeightedLayerPooling",
    "Pooling",
)  # modules, in this order; Dense and Normalize may follow
MODES = {  # the keys of versions before 6
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Options of the transformer that do not change the embeddings, or that are supported
SUPPORTED_OPTIONS = {
    "max_seq_length",
    "do_lower_case",
    "transformer_task",
    "modality_config",
    "module_output_name",
    "model_args",
    "tokenizer_args",
    "config_args",
    "model_kwargs",
    "processor_kwargs",
    "config_kwargs",
    "processing_kwargs",
    "unpad_inputs",
    "query_length",
    "document_length",
    "query_expansion",
}
DECODER_TASK, DECODER_STATES = "sequence-classification", ["decoder_hidden_states", -1]  # how a T5's decoder is read
TEMPLATE_FILE = "chat_template.jinja"
HARMLESS_ARGUMENTS = {"add_pooling_layer", "attn_implementation", "torch_dtype", "dtype", "trust_remote_code"}


class EncoderSettings(NamedTuple):
    """Settings of an encoder that `SentenceEncoder` supports, as they are stored in a sentence-transformers folder."""

    transformer: str  # folder or hub id
    pooler: Pooler
    normalize: bool
    max_length: int | None  # None: the maximum of the tokenizer and the model
    prompts: EncoderPrompts
    layers: tuple[str, ...] = ()  # the paths of Dense modules inside the folder
    prompt_suffix: str = ""
    truncate: int | None = None
    similarity: str = "cosine"


class UnsupportedModelError(Exception):
    """Raised if `SentenceEncoder` does not support a part of a sentence-transformers model. The message names this
    part.
    """


def read_encoder_settings(name: str, prompt: str | None, *, setting: str = "encoder") -> EncoderSettings | None:
    """Return the settings of a sentence-transformers model, or None if the directory or hub id has no ``modules.json``.

    Raises:
        UnsupportedModelError: If only the sentence-transformers library can run the model.
        InputError: If a file is damaged, or if the model requires custom code.
    """
    modules = _modules(name, setting)
    if modules is None:
        return None
    _refuse_foreign_code(name, modules, setting)
    kinds = [_kind(module) for module in modules]
    cut = kinds.index("Pooling") + 1 if "Pooling" in kinds else len(kinds)
    before = {kind: module["path"] for kind, module in zip(kinds, modules[:cut], strict=False)}
    in_order = kinds[:cut] == [kind for kind in MODULES_UP_TO_POOLING if kind in before]
    if not in_order or not {"Transformer", "Pooling"} <= before.keys():
        raise UnsupportedModelError(f"its modules are {', '.join(kinds)}")
    transformer, options = _transformer(name, before["Transformer"])
    decodes = options.get("transformer_task") == DECODER_TASK
    pooler, includes_prompt = _pooler(name, before["Pooling"], before.get("WeightedLayerPooling"), decodes=decodes)
    layers, normalize = _post_pooling_modules(name, modules[cut:])
    prompts = read_prompts(name, setting) if prompt is None else EncoderPrompts.same(prompt)
    if prompts and not includes_prompt:
        raise UnsupportedModelError("its pooling excludes the tokens of the prompt")
    length = options.get("max_seq_length")
    suffix = _prompt_suffix(transformer, options, decodes=decodes)
    truncate = (read_json(name, TOP_LEVEL) or {}).get("truncate_dim")
    if truncate is not None and normalize:
        raise UnsupportedModelError("its embeddings are truncated after they are normalized")
    if layers and normalize and (size := _truncated_size(name, layers[-1])):
        truncate, layers = size, layers[:-1]
    return EncoderSettings(
        transformer, pooler, normalize, length, prompts, layers, suffix, truncate, read_similarity(name)
    )


def leaves_prompt_out(name: str, setting: str) -> bool:
    """Return whether the pooling of a model excludes the prompt tokens (``include_prompt`` is false)."""
    paths = [module["path"] for module in _modules(name, setting) or [] if _kind(module) == "Pooling"]
    return any(not (read_json(name, f"{path}/config.json") or {}).get("include_prompt", True) for path in paths)


def _modules(name: str, setting: str) -> list[dict[str, Any]] | None:
    modules = read_json(name, "modules.json", setting)
    if modules is None:
        return None
    if not isinstance(modules, list) or not all(isinstance(m, dict) and {"type", "path"} <= m.keys() for m in modules):
        raise InputError(
            location=f"{setting}={name}: modules.json",
            expected="a list of objects with a type and a path",
            hint="Download the model again.",
        )
    return modules


def _kind(module: dict[str, Any]) -> str:
    return str(module["type"]).rsplit(".", 1)[-1]


def _post_pooling_modules(name: str, modules: list[dict[str, Any]]) -> tuple[tuple[str, ...], bool]:
    """Return the paths of the Dense modules after the pooling, and whether a Normalize module follows them.

    Raises:
        UnsupportedModelError: If there is a module of another class, or if the order differs.
    """
    normalize = bool(modules) and _kind(modules[-1]) == "Normalize"
    layers = modules[:-1] if normalize else modules
    for module in modules:
        options = read_json(name, f"{module['path']}/config.json") or {} if module["path"] else {}
        if _kind(module) not in ("Dense", "Normalize"):
            raise UnsupportedModelError(
                f"its pooling is followed by a module other than Dense and Normalize: {_kind(module)}"
            )
        if _kind(module) == "Normalize" and module is not modules[-1]:
            raise UnsupportedModelError("its pooling is followed by a Normalize module that is not the last module")
        if not all(options.get(key) in (None, place) for key, place in VECTOR_MODULE_NAMES.items()):
            raise UnsupportedModelError(
                f"its pooling is followed by a {_kind(module)} module that does not map the pooled vector"
            )
        if _kind(module) == "Dense" and (why := _unsupported_dense(options)):
            raise UnsupportedModelError(f"its pooling is followed by a Dense module {why}")
    return tuple(module["path"] for module in layers), normalize


def _unsupported_dense(options: dict[str, Any]) -> str:
    """Return the reason why a Dense module with these options is not supported, or "" if it is."""
    if options.get("use_residual"):
        return "with a residual connection"
    try:
        activation_of(str(options.get("activation_function", TANH)))
    except InputError:
        return f"whose activation is {options['activation_function']}"
    return ""


def _truncated_size(name: str, path: str) -> int | None:
    """Return the number of dimensions that a Dense module keeps if all it does is truncate embeddings, otherwise None.

    Encoders with ``truncate`` are exported with such a module.
    """
    options = read_json(name, f"{path}/config.json") or {}
    size, width = options.get("out_features", 0), options.get("in_features", 0)
    plain = not options.get("bias", True) and options.get("activation_function") == IDENTITY
    if not plain or not 0 < size < width:
        return None
    weight = _weights(name, path).get("linear.weight")
    return size if weight is not None and torch.equal(weight.float(), torch.eye(size, width)) else None


def read_json(name: str, path: str, setting: str = "encoder") -> Any:
    """Return the content of a JSON file in a folder or hub id, or None if there is no such file.

    For a GGUF file, return None.
    """
    if name.endswith(GGUF):
        return None
    try:
        found = find_file(name, path, local_files_only=only_local(name, weights=False))
    except OSError as error:
        raise not_found(name, str(error).strip().splitlines()[0], setting) from error
    if found is None:
        return None
    try:
        return json.loads(Path(found).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            location=f"{setting}={name}: {path}",
            expected=f"valid JSON ({error})",
            hint="Download or export the model again.",
        ) from error


def stated_length(name: str) -> int | None:
    """Return the ``max_seq_length`` of a sentence-transformers folder or hub id.

    Return None if the value is not set, or if ``name`` is not a sentence-transformers model.
    """
    try:
        modules = read_json(name, "modules.json") or []
        path = next(module["path"] for module in modules if module["type"].endswith(".Transformer"))
        return _options(str(Path(name) / path) if path else name).get("max_seq_length")
    except (InputError, StopIteration, KeyError, TypeError):  # the hub is unreachable, or there is no such folder
        return None


def not_found(name: str, reason: str, setting: str = "encoder") -> InputError:
    """Return the error about a model that is neither a local path nor available on the Hugging Face Hub."""
    expected = "an existing file or directory"
    hint = similar = similar_path_hint(Path(name)) or ""
    if not is_local_path(name):
        expected += f", or a model that is available on the Hugging Face Hub ({reason.rstrip('.')})"
        hint = f"{similar} {LOADABLE_FORMS} A hub id needs the hub, or its files in the cache.".lstrip()
    return InputError(key=setting, value=name, expected=expected, hint=hint or LOADABLE_FORMS)


def is_local_path(name: str) -> bool:
    """Return whether the name of a model must be a local path, because it does not have the form of a hub id."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def read_prompts(name: str, setting: str = "encoder") -> EncoderPrompts:
    """Return the prompts of a sentence-transformers folder or hub id. They are empty if it has no file with prompts.

    Raises:
        InputError: If the file is damaged, or if its default prompt does not exist.
    """
    options = read_json(name, TOP_LEVEL, setting) or {}
    prompts, chosen = options.get("prompts") or {}, options.get("default_prompt_name")
    if chosen is not None and chosen not in (*prompts, "query", "document"):
        raise InputError(
            key=f"{TOP_LEVEL}, default_prompt_name",
            value=chosen,
            location=f"{setting}={name}",
            expected=f"the name of one of the model's prompts ({', '.join(prompts) or 'the model has none'})",
            hint=f"Correct default_prompt_name in {TOP_LEVEL}.",
        )
    return EncoderPrompts({key: prompt or "" for key, prompt in prompts.items()}, chosen)


def read_similarity(name: str) -> str:
    """Return the name of the similarity function of a model, which is "cosine" if the folder or hub id does not specify
    one.
    """
    return (read_json(name, TOP_LEVEL) or {}).get("similarity_fn_name") or "cosine"


def _refuse_foreign_code(name: str, modules: list[dict[str, Any]], setting: str) -> None:
    types = [module["type"] for module in modules]
    for module in modules:
        router = read_json(name, f"{module['path']}/router_config.json") if module["path"] else None
        types += list((router or {}).get("types", {}).values())
        dense = read_json(name, f"{module['path']}/config.json") if str(module["type"]).endswith(".Dense") else None
        activation = str((dense or {}).get("activation_function", TANH))
        if not activation.startswith("torch."):  # the library would use Tanh instead
            raise InputError(
                key=setting,
                value=name,
                expected=f"activations of torch, because other code is never run, but the Dense layer in "
                f"{module['path']} has {activation}",
                hint="Choose a model with activations of torch.",
            )
    foreign = [kind for kind in types if not str(kind).startswith(LIBRARY)]
    if foreign:
        raise InputError(
            key=setting,
            value=name,
            expected=f"modules of sentence-transformers, because other code is never run, but modules.json names "
            f"{foreign[0]}",
            hint="Choose a model that consists only of the library's modules.",
        )


def _transformer(name: str, path: str) -> tuple[str, dict[str, Any]]:
    """Return the folder or hub id from which the transformer of a model is loaded, and the options of its Transformer
    module.
    """
    if path and not Path(name).is_dir():
        raise UnsupportedModelError("its transformer is in a subfolder on the hub")
    folder = str(Path(name) / path) if path else name
    options = _options(folder)
    unknown = sorted(options.keys() - SUPPORTED_OPTIONS)
    if unknown:
        raise UnsupportedModelError(
            f"the config of its Transformer module contains the unsupported option {unknown[0]}"
        )
    for group in ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs"):
        foreign = sorted((options.get(group) or {}).keys() - HARMLESS_ARGUMENTS)
        if foreign:
            raise UnsupportedModelError(f"its transformer is loaded with the unsupported argument {foreign[0]}")
    modality = options.get("modality_config", {"text": {}}).get("text", {"method_output_name": None})
    output = modality.get("method_output_name", "last_hidden_state")
    if (options.get("transformer_task", "feature-extraction"), output) not in (
        ("feature-extraction", "last_hidden_state"),
        (DECODER_TASK, DECODER_STATES),
    ):
        raise UnsupportedModelError(
            "its transformer has a task or an output other than the last hidden state of a text encoder"
        )
    if options.get("processing_kwargs"):
        raise UnsupportedModelError("its tokenizer is called with processing_kwargs")
    return folder, options


def _prompt_suffix(name: str, options: dict[str, Any], *, decodes: bool) -> str:
    """Return the prompt suffix that the chat template of a transformer adds, or "" if there is none."""
    if "message" not in options.get("modality_config", {}):
        if decodes:
            raise UnsupportedModelError(
                "its pooling uses the decoder, but it has no chat template that replaces </s> inside texts"
            )
        return ""
    found = find_file(name, TEMPLATE_FILE, local_files_only=only_local(name, weights=False))
    parsed = read_template(Path(found).read_text(encoding="utf-8")) if found else None
    if parsed is None or parsed[1] != decodes:
        raise UnsupportedModelError("its texts are formatted by a custom chat template")
    return parsed[0]


def _options(folder: str) -> dict[str, Any]:
    """Return the options of the Transformer module in a folder or hub id, or an empty mapping if there are none."""
    return next((found for file in TRANSFORMER_OPTIONS if (found := read_json(folder, file))), {})


def _pooler(name: str, path: str, averaged: str | None, *, decodes: bool) -> tuple[Pooler, bool]:
    """Return the pooling of a model, and whether it includes the prompt tokens.

    Args:
        name: Folder or hub id of the model.
        path: Path of the Pooling module.
        averaged: Path of a WeightedLayerPooling module before the Pooling, if there is one.
        decodes: Whether the hidden states of the decoder are pooled.

    Raises:
        UnsupportedModelError: If the pooling is not supported.
    """
    options = read_json(name, f"{path}/config.json") or {}
    mode = options.get("pooling_mode")
    if mode is None:
        mode = [short for long, short in MODES.items() if options.get(long)] or ["mean"]
    modes = [mode] if isinstance(mode, str) else list(mode)
    same_tokens = [pooler for pooler in POOLERS.values() if [pooler.tokens.library_mode] == modes]
    if not same_tokens:
        raise UnsupportedModelError(f"its pooling mode is {' and '.join(modes)}")
    if decodes and (same_tokens[0].tokens != CLS or averaged):
        raise UnsupportedModelError("its pooling uses more than the first hidden state of its decoder")
    wanted = None if averaged is None else _averaged_layers(name, averaged)
    for pooler in same_tokens:
        layers = {layer % wanted.states for layer in pooler.layers} if wanted and pooler.averages_layers else None
        if pooler.decodes == decodes and not pooler.is_shipped and layers == (wanted and wanted.layers):
            return pooler, bool(options.get("include_prompt", True))
    raise UnsupportedModelError("its pooling averages a selection of layers that this project does not support")


VECTOR_MODULE_NAMES = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


class _Average(NamedTuple):
    layers: set[int]
    states: int  # number of hidden states: the embeddings and all layers


def _averaged_layers(name: str, path: str) -> _Average:
    """Return the layers that a WeightedLayerPooling module averages.

    Raises:
        UnsupportedModelError: If the layers have different weights.
    """
    options = read_json(name, f"{path}/config.json") or {}
    weights = _weights(name, path).get("layer_weights")
    first, last = options.get("layer_start", 4), options.get("num_hidden_layers", 12)
    if weights is None or weights.shape != (last + 1 - first,):
        raise _damaged(name, path, f"expected {last + 1 - first} layer_weights")
    used = {first + place: float(weight) for place, weight in enumerate(weights) if weight}
    if len(set(used.values())) != 1:
        raise UnsupportedModelError("its WeightedLayerPooling has different weights for different layers")
    return _Average(set(used), last + 1)


def read_head(name: str, paths: Sequence[str], width: int, *, setting: str = "encoder") -> nn.Module | None:
    """Load the Dense layers at the given paths in a folder or hub id. Their input is the pooled embedding, of dimension
    ``width``.

    Return None if ``paths`` is empty.

    Raises:
        InputError: If weights are missing, or if they do not fit the transformer or each other.
    """
    if not paths:
        return None
    options, weights = [], dict[str, Tensor]()
    for place, path in enumerate(paths):
        found = read_json(name, f"{path}/config.json") or {}
        if not {"in_features", "out_features"} <= found.keys():
            raise _damaged(name, path, "expected a config.json with in_features and out_features")
        options.append(found)
        prefix = f"{place}." if len(paths) > 1 else ""
        weights |= {f"{prefix}{key}": weight for key, weight in _weights(name, path).items()}
    return head_of(options, weights, width, f"{setting}={name}: the weights in {' and '.join(paths)}")


def _weights(name: str, path: str) -> dict[str, Tensor]:
    found = find_file(name, f"{path}/model.safetensors", local_files_only=only_local(name))
    if found is None:
        raise _damaged(name, path, "model.safetensors is missing")
    try:
        return load_file(Path(found))
    except (SafetensorError, OSError) as error:
        raise _damaged(name, path, str(error)) from error


def _damaged(name: str, path: str, why: str) -> InputError:
    return InputError(
        key="encoder",
        value=name,
        expected=f"intact files in {path} ({why})",
        hint="Download or export the model again.",
    )
