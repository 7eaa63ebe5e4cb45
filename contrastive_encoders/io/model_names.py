"""Resolve the name of a model, which is a run folder, a GGUF file, or a name that Transformers loads.

It also sets the options of its tokenizer that must be identical when texts are read and when they are encoded.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers

from contrastive_encoders.core import InputError, check_version, missing_package
from contrastive_encoders.io.installed_models import expand_user, find_installed
from contrastive_encoders.io.manifest import CorruptFileError, read_record
from contrastive_encoders.io.output_directory import MARKER

GGUF = ".gguf"
PRODUCTS = ("encoder", "generator", "reranker")  # folders with the product of a run; a run has one of them
BLANK = "_"  # replaces a missing mask token
TRANSFORMER_OPTIONS = (  # files of a sentence-transformers directory; the first one that exists is read
    *(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert")),
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
_HUB_FILE_PATTERN = re.compile(r"(?P<repo>[^:]+):(?P<file>[^:]+\.gguf)")


class ModelLocation(NamedTuple):
    """Location from which Transformers loads a model."""

    name: str  # a folder or Hub id
    gguf_file: str | None = None  # the file in it, if the weights are in llama.cpp's format

    @property
    def options(self) -> dict[str, str]:
        """Arguments of ``from_pretrained`` that are needed in addition to the name."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


def resolve_model_name(name: str, setting: str = "backbone") -> ModelLocation:
    """Return the location of the model ``name``.

    The directory of a run contains the model in a subdirectory, and an older sentence-transformers directory contains
    it in ``0_Transformer``. ``FILE.gguf`` or ``hub/repo:FILE.gguf`` is one file of a directory or Hub id.

    Args:
        setting: the config key that has the name.

    Raises:
        InputError: the file does not exist, the package that reads it is not installed, or another version of the
            project wrote the run.
    """
    name = find_installed(name) or expand_user(name)
    if not name.endswith(GGUF):
        return ModelLocation(_transformer_directory(run_folder(name, setting) or name))
    path = Path(name)
    on_the_hub = None if path.is_file() else _HUB_FILE_PATTERN.fullmatch(name)
    if not path.is_file() and not on_the_hub:
        expected = "the path of a GGUF file, or ORG/REPO:FILE.gguf for a file on the Hugging Face Hub"
        raise InputError(key=setting, value=name, expected=expected)
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise missing_package(package, "gguf", key=setting, value=name)
    return (
        ModelLocation(on_the_hub["repo"], on_the_hub["file"])
        if on_the_hub
        else ModelLocation(str(path.parent), path.name)
    )


def run_folder(name: str, setting: str = "backbone") -> str | None:
    """Return the ``encoder/``, ``generator/`` or ``reranker/`` directory of a run, or None if ``name`` is not a run.

    The checkpoints of a finished run may have been removed.

    Args:
        setting: the config key that has the name.

    Raises:
        InputError: another version of the project wrote the run.
    """
    parts = [Path(name) / part for part in PRODUCTS]
    found = next((part for part in parts if part.is_dir()), None)
    if not has_checkpoint(name) and (found is None or not (Path(name) / "results.json").is_file()):
        return None
    _check_version(Path(name), found, setting)
    return str(found or parts[0])


def _check_version(run: Path, product: Path | None, setting: str) -> None:
    for record in (MARKER, "results.json"):
        try:
            version = read_record(run / record).get("version")
        except (OSError, CorruptFileError):
            continue
        hint = "Train again." if product is None else f"Use {product} in its place."
        check_version(version, "a run", key=setting, value=run, hint=hint)


def has_checkpoint(name: str) -> bool:
    """Return whether ``name`` is a run directory that contains the best checkpoint."""
    return (Path(name) / "checkpoints" / "best.ckpt").is_file()


def _transformer_directory(name: str) -> str:
    """Return the subdirectory that contains the transformer of the sentence-transformers directory ``name``, or
    ``name`` if there is no such subdirectory.
    """
    modules = Path(name) / "modules.json"
    if (Path(name) / "config.json").is_file() or not modules.is_file():
        return name
    try:
        paths = [Path(name) / module["path"] for module in json.loads(modules.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError):  # damaged; the reader of its modules reports it
        return name
    return next((str(path) for path in paths[:1] if (path / "config.json").is_file()), name)


def apply_lower_case(tokenizer: Any, name: str) -> None:
    """Make the tokenizer lowercase texts if the sentence-transformers directory or Hub id sets ``do_lower_case``."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not _transformer_options(name).get("do_lower_case"):
        return
    if not lower_cases(backend):
        backend.normalizer = Normalizers([Lowercase(), *_normalizers(backend)])


def lower_cases(backend: Tokenizer) -> bool:
    """Return whether any normalizer of a tokenizer converts text to lowercase."""
    return any(isinstance(step, Lowercase) for step in _normalizers(backend))


def _normalizers(backend: Tokenizer) -> list[Any]:
    normalizer: Any = backend.normalizer
    steps = list(cast(Any, normalizer)) if isinstance(normalizer, Normalizers) else [normalizer]
    return [step for step in steps if step is not None]


def _transformer_options(name: str) -> dict[str, Any]:
    """Return the options of the transformer module of a sentence-transformers directory or a cached Hub id."""
    for file in TRANSFORMER_OPTIONS:
        path = str(Path(name) / file) if Path(name).is_dir() else try_to_load_from_cache(name, file)
        if isinstance(path, str) and Path(path).is_file():
            try:
                return dict(json.loads(Path(path).read_text(encoding="utf-8")))
            except (ValueError, TypeError):  # damaged; the reader of its modules reports it
                return {}
    return {}


def append_eos(tokenizer: Any, name: str) -> None:
    """Make the tokenizer append the end-of-sequence token to every text, unless it already does. The token counts
    toward the maximum length.

    Raises:
        InputError: it has no such token, or the token cannot be appended.
    """
    end, end_id = tokenizer.eos_token, tokenizer.eos_token_id
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if end is not None and tokenizer("a")["input_ids"][-1] == end_id:
        return
    if end is not None and backend is not None:
        state = json.loads(backend.to_str())
        processor = state["post_processor"]
        parts = [] if processor is None else processor.get("processors", [processor])
        template = next((part for part in parts if part["type"] == "TemplateProcessing"), None)
        if template is None:
            one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
            template = {"type": "TemplateProcessing", "single": [one], "pair": [one, other], "special_tokens": {}}
            parts = [*parts, template]
        for texts in ("single", "pair"):
            template[texts].append({"SpecialToken": {"id": end, "type_id": 0}})
        template["special_tokens"][end] = {"id": end, "ids": [end_id], "tokens": [end]}
        state["post_processor"] = {"type": "Sequence", "processors": parts}
        backend.post_processor = Tokenizer.from_str(json.dumps(state)).post_processor
    if end is None or tokenizer("a")["input_ids"][-1] != end_id:
        reason = "has no end-of-sequence token" if end is None else "does not append the end-of-sequence token"
        raise InputError(
            key="model.append_eos", value=True, expected=f"false, because the tokenizer of backbone={name} {reason}"
        )


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """Return the token ids of a prompt that precedes a text. A trailing space of the prompt belongs to the text."""
    found: list[int] = tokenizer(prompt.rstrip(" "), add_special_tokens=False)["input_ids"]
    return found


def prompt_slice(tokenizer: Any, prompt: str) -> slice:
    """Return the slice of a tokenized text, including special tokens, that contains the prompt."""
    ids, whole = prompt_ids(tokenizer, prompt), tokenizer(prompt.rstrip(" "))["input_ids"]
    start = next((at for at in range(len(whole)) if whole[at : at + len(ids)] == ids), 0) if ids else 0
    return slice(start, start + len(ids))


def mask_id(tokenizer: Any, mask_token: str | None = None) -> int | None:
    """Return the id of the mask token: ``mask_token`` if it is set, otherwise the tokenizer's mask token, or "_" (as in
    LLM2Vec) if the tokenizer has no mask token. Return None if the vocabulary does not contain it.

    Raises:
        InputError: ``mask_token`` is not a token of the tokenizer.
    """
    found: int | None = tokenizer.get_vocab().get(mask_token or tokenizer.mask_token or BLANK)
    if found is None and mask_token is not None:
        raise InputError(
            key="model.mask_token",
            value=mask_token,
            expected=f"a token of the backbone's vocabulary, such as {BLANK!r}, or null",
        )
    return found
