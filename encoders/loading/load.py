"""`load_encoder`: loading of encoders from runs, checkpoints, folders, hub ids, GGUF files, and word vectors.

An encoder is a run or checkpoint of this package, a sentence-transformers or transformers model (folder or hub id), a
GGUF file, or a file of word vectors.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.core.runtime.devices import check_usable, device_of
from contrastive_encoders.encoders.attention import check_attention, check_first_token
from contrastive_encoders.encoders.dense import head_of
from contrastive_encoders.encoders.lengths import own_length, usual_length
from contrastive_encoders.encoders.loading.backbones import (
    check_vocabulary,
    load_states,
    load_tokenizer,
    read_checkpoint,
    trunk_of_checkpoint,
    without_extras,
)
from contrastive_encoders.encoders.loading.bert_pooler import shipped_pooler
from contrastive_encoders.encoders.loading.encoder_options import ComputingOptions
from contrastive_encoders.encoders.loading.int8_encoder import Int8Encoder
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder, check_name, check_unset
from contrastive_encoders.encoders.loading.sentence_transformers_folder import (
    LOADABLE_FORMS,
    EncoderSettings,
    UnsupportedModelError,
    is_local_path,
    not_found,
    read_encoder_settings,
    read_head,
    read_json,
)
from contrastive_encoders.encoders.loading.word_vectors import FALLBACK, WordVectors, is_word_vector_file
from contrastive_encoders.encoders.pooling import POOLERS, Pooler, pooler_of
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder, check_decoder
from contrastive_encoders.io.file_discovery import similar_path_hint
from contrastive_encoders.io.installed_models import expand_user, find_installed
from contrastive_encoders.io.model_names import GGUF, run_folder

log = logging.getLogger(__name__)

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}  # precision -> type of the weights


class _Options(NamedTuple):
    pooling: str | None  # for word vectors also `FALLBACK`
    prompt: str | None
    max_length: int | None
    precision: str
    device: torch.device
    prompt_suffix: str | None
    truncate: int | None
    attention: str | None
    normalize: bool | None

    def pooler(self, own: Pooler) -> Pooler:
        """Return the requested pooling, or the encoder's ``own`` pooling."""
        return own if self.pooling is None else pooler_of(self.pooling)


def load_encoder(
    name: str | Path,
    *,
    pooling: str | None = None,
    prompt: str | None = None,
    prompt_suffix: str | None = None,
    max_length: int | None = None,
    precision: str = "fp32",
    device: str | torch.device | None = None,
    truncate: int | None = None,
    attention: str | None = None,
    normalize: bool | None = None,
) -> LoadedEncoder:
    """Load an encoder from a run, a checkpoint, a sentence-transformers or transformers model, a GGUF file, or word
    vectors.

    An option that is None keeps the setting that the encoder was saved with; a plain transformer gets mean pooling and
    512 tokens. Nothing that can execute code is loaded.

    Args:
        name: Path of a run, checkpoint, directory, or file; or a hub id. A model that is installed as a package is
            found by its hub id without network access.
        pooling: ``"mean"``, ``"cls"``, ``"last"``, ...; ``"first_decoder"`` reads the decoder of a T5 (GenSE's
            published encoders), ``"pooler_output"`` the output of BERT's pooler, and ``"mean_lower_fallback"`` looks
            up the lowercase form of tokens that are missing in a file of word vectors.
        prompt: Text that is prepended to every input, including spaces; ``""`` for none.
        prompt_suffix: Text that is appended to every input; ``""`` for none.
        max_length: Maximum number of tokens of an input, including special tokens. It is limited by the backbone.
        precision: ``"fp32"`` or ``"bf16"``, of weights and hidden states, or ``"int8"`` for linear layers in 8-bit
            integers by ONNX Runtime, on a CPU (extra ``onnx``); embeddings are always float32.
        device: Device of the weights; None: the GPU if there is one.
        truncate: Number of leading dimensions to keep, for Matryoshka encoders.
        attention: ``"causal"`` or ``"bidirectional"``, for causal language models.
        normalize: L2-normalize embeddings, after ``truncate``; False: never, even if the encoder does by default.

    Returns:
        The encoder, in evaluation mode.

    Raises:
        InputError: If the encoder does not exist, is damaged, or does not support an option.

    Example:
        >>> from contrastive_encoders import load_encoder
        >>> encoder = load_encoder("sentence-transformers/all-MiniLM-L6-v2", device="cpu", truncate=128)
        >>> encoder.encode(["read a file", "open a path"]).shape
        (2, 128)
    """
    name = str(check_name(name, "name", "a path or a hub id"))
    name = find_installed(name) or expand_user(name)
    if device is None:
        device = "cuda" if torch.cuda.is_available() and precision != "int8" else "cpu"
    check_usable(device, "cpu, cuda")
    options = _Options(
        pooling=pooling,
        prompt=prompt,
        max_length=max_length,
        precision=precision,
        device=torch.device(device),
        prompt_suffix=prompt_suffix,
        truncate=truncate,
        attention=attention,
        normalize=normalize,
    )
    _check(name, options)
    if name.endswith(GGUF):
        return _from_model_files(name, options)
    if Path(name).is_file():
        return _from_file(Path(name), options)
    if Path(name).is_dir():
        return _from_folder(Path(name), options)
    if Path(name).suffix in (".ckpt", ".txt", ".vec", ".gz") or is_local_path(name):
        hint = similar_path_hint(Path(name)) or LOADABLE_FORMS
        raise InputError(key="encoder", value=name, expected="an existing file or directory", hint=hint)
    return _from_model_files(name, options)


def load_configured(name: str, config: ComputingOptions, loaded: LoadedEncoder | None = None) -> LoadedEncoder:
    """Load an encoder with the options of a configuration, or check an encoder that is already loaded.

    Raises:
        InputError: The encoder does not exist, or it is already loaded and a key would load it differently.
    """
    if loaded is not None:
        check_unset(config, (*config.options, "device"))
        return loaded
    return load_encoder(name, **config.options, device=device_of(config.device))


def load_encoder_of(key: str, name: str, device: str | torch.device | None = None, **options: Any) -> LoadedEncoder:
    """Load the encoder that a config key such as ``model.teacher`` names; error messages contain the key."""
    try:
        return load_encoder(name, device=device, **options)
    except InputError as error:
        if error.key not in ("encoder", "backbone", None):  # an option
            raise
        message = re.sub(r"^(encoder|backbone)(?=[=:])", key, str(error))
        raise error.copy(message if message.startswith(key) else f"{key}: {message}", key=key) from error


def _check(name: str, options: _Options) -> None:
    if options.pooling is not None and not (options.pooling == FALLBACK and is_word_vector_file(name)):
        pooler_of(options.pooling)
    if options.precision not in PRECISIONS:
        raise InputError(key="precision", value=options.precision, expected=f"one of {', '.join(PRECISIONS)}")
    if options.precision == "int8" and options.device.type != "cpu":
        expected = f"fp32 or bf16 on {options.device}, because int8 runs on a CPU"
        raise InputError(key="precision", value="int8", expected=expected, hint="Set device=cpu for int8.")
    if options.max_length is not None and options.max_length < 1:
        raise InputError(key="max_length", value=options.max_length, expected="at least 1 token")


def _from_file(path: Path, options: _Options) -> LoadedEncoder:
    if path.suffix == ".ckpt":
        return _from_checkpoint(path, options)
    if not is_word_vector_file(path.name):
        raise InputError(
            key="encoder", value=path, expected="a checkpoint file or a word-vector file", hint=LOADABLE_FORMS
        )
    keys = ["prompt", "prompt_suffix", "max_length", "truncate", "attention", "normalize"]
    keys += ["pooling"] * (options.pooling not in ("mean", FALLBACK)) + ["precision"] * (options.precision != "fp32")
    _check_unset(options, keys, f"word vectors ({path}) have no such option and are averaged in fp32")
    return WordVectors(path, lower_fallback=options.pooling == FALLBACK)


def _check_unset(options: _Options, keys: Sequence[str], why: str) -> None:
    for key in keys:
        if (value := getattr(options, key)) not in (None, ""):
            raise InputError(key=key, value=value, expected=f"no value, because {why}")


def _from_folder(folder: Path, options: _Options) -> LoadedEncoder:
    made = run_folder(str(folder), "encoder")  # raises an error for a run of another version
    if made is not None and (product := Path(made).name) != "encoder":
        raise InputError(
            key="encoder", value=folder, expected=f"a run that trained an encoder, but this run trained a {product}"
        )
    if (folder / "encoder" / "modules.json").is_file():
        return _from_model_files(str(folder / "encoder"), options, kind="run", backbone=str(folder))
    for checkpoint in ("best.ckpt", "last.ckpt", "previous.ckpt"):
        if (path := folder / "checkpoints" / checkpoint).is_file():
            return _from_checkpoint(path, options)
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        holds = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise InputError(
            key="encoder",
            value=folder,
            expected=f"a directory with an encoder, but it contains {holds}",
            hint=LOADABLE_FORMS,
        )
    return _from_model_files(str(folder), options)


def _from_checkpoint(path: Path, options: _Options) -> SentenceEncoder:
    """Load an encoder from a checkpoint file.

    The config and the tokenizer are loaded from the run's ``encoder/`` or ``backbone/`` folder, or from its backbone.
    """
    trained = read_checkpoint(path)
    run = path.resolve().parent.parent
    own = [folder for name in ("encoder", "backbone") if ((folder := run / name) / "config.json").is_file()]
    backbone, exported = trained.settings.transformer, trained.settings
    architecture = str(own[0]) if own else backbone
    if not own and Path(backbone).is_absolute() and not Path(backbone).exists():
        raise InputError(
            key="encoder",
            value=path,
            expected=f"a checkpoint whose backbone still exists, but {backbone} does not",
            hint="Restore the backbone, or use the encoder/ directory of a finished run.",
        )
    pooler = options.pooler(exported.pooler)
    transformer = trunk_of_checkpoint(
        path,
        trained,
        architecture,
        decoder=pooler.decodes,
        attention=options.attention,
        whole=not architecture.endswith("/encoder"),
    )
    check_attention(transformer, options.attention, str(path), setting="encoder")
    tokenizer = load_tokenizer(architecture, ends=trained.append_eos)
    head = None
    if trained.head:
        width, where = transformer.config.hidden_size, f"encoder={path}: the layer after the pooling"
        head = head_of(trained.layers, trained.head, width, where)
        if pooler.is_shipped and exported.pooler == POOLERS["cls"]:
            exported = exported._replace(pooler=pooler)
    return _build(transformer, tokenizer, exported, options, kind="checkpoint", backbone=str(path), head=head)


def _from_model_files(
    name: str, options: _Options, kind: str = "sentence-transformers", backbone: str | None = None
) -> LoadedEncoder:
    """Load an encoder from a sentence-transformers or transformers folder, a hub id, or a GGUF file."""
    try:
        exported = read_encoder_settings(name, options.prompt)
    except UnsupportedModelError as reason:
        log.info("encoder=%s is run by the sentence-transformers library: %s.", name, reason)
        return _from_library(name, options, str(reason))
    if exported is None:
        if not name.endswith(GGUF) and not Path(name).is_dir() and read_json(name, "config.json") is None:
            raise not_found(name, "the hub has no config.json for this model, or the hub is unreachable")
        kind, exported = "transformers", EncoderSettings(name, POOLERS["mean"], False, None, EncoderPrompts())
    pooler = options.pooler(exported.pooler)
    transformer = load_states(
        exported.transformer, decoder=pooler.decodes, setting="encoder", attention=options.attention
    )
    transformer = transformer if pooler.decodes else without_extras(transformer)
    tokenizer = load_tokenizer(exported.transformer)
    if kind == "transformers":
        exported = exported._replace(max_length=usual_length(transformer.config, tokenizer))
    head = read_head(name, exported.layers, transformer.config.hidden_size)
    if pooler.is_shipped:
        head = shipped_pooler(name if head else exported.transformer, setting="encoder")
        exported = exported._replace(pooler=pooler)
    return _build(transformer, tokenizer, exported, options, kind=kind, backbone=backbone or name, head=head)


def _from_library(name: str, options: _Options, why: str) -> LoadedEncoder:
    # The only module that imports sentence-transformers
    from contrastive_encoders.encoders.loading.sentence_transformers_fallback import LibraryEncoder

    keys = ["pooling", "prompt_suffix", "attention", "normalize"] + ["precision"] * (options.precision == "int8")
    _check_unset(options, keys, f"the sentence-transformers library runs {name} without this option ({why})")
    return LibraryEncoder(
        name,
        why,
        prompt=options.prompt,
        max_length=options.max_length,
        truncate=options.truncate,
        dtype=PRECISIONS[options.precision],
        device=options.device,
    )


def _build(
    transformer: PreTrainedModel,
    tokenizer: Tokenizer,
    exported: EncoderSettings,
    options: _Options,
    *,
    kind: str,
    backbone: str,
    head: nn.Module | None,
) -> SentenceEncoder:
    """Create an encoder from its loaded components and the options.

    As in SimCSE, ``head`` is used only with the pooling that it was trained with.
    """
    check_vocabulary(transformer, tokenizer, backbone)
    pooler = options.pooler(exported.pooler)
    if options.attention is not None:
        check_first_token(transformer, pooler, backbone, setting="encoder")
    check_decoder(pooler, transformer, setting="encoder")
    encoder = (Int8Encoder if options.precision == "int8" else SentenceEncoder)(
        transformer,
        tokenizer,
        pooling=pooler.name,
        head=head if pooler == exported.pooler else None,
        max_length=options.max_length or own_length(exported, transformer.config, tokenizer),
        prompts=exported.prompts if options.prompt is None else EncoderPrompts.same(options.prompt),
        prompt_suffix=exported.prompt_suffix if options.prompt_suffix is None else options.prompt_suffix,
        normalize=exported.normalize if options.normalize is None else options.normalize,
        truncate=exported.truncate if options.truncate is None else options.truncate,
        similarity_fn_name=exported.similarity,
        progress=True,
        origin={"kind": kind, "backbone": backbone},
    )
    if options.max_length and options.max_length > encoder.longest:
        log.warning(
            "max_length=%d: reduced to %d tokens, the limit of %s", options.max_length, encoder.longest, backbone
        )
    encoder.eval().requires_grad_(False).to(options.device, PRECISIONS[options.precision])
    return encoder.quantize() if isinstance(encoder, Int8Encoder) else encoder
