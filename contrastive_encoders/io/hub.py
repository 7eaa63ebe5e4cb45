"""Models and data sets of the Hugging Face hub, asked for once and then read from the local cache.

A library that loads a model asks for each of its files at every start, and tries for a minute where there is no hub.
"""

import functools
import logging
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from huggingface_hub import HfApi, constants, is_offline_mode, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
)  # the last is of the client that it uses

log = logging.getLogger(__name__)

SECONDS = 5.0
# What is read of a model besides its weights: configs, and the vocabularies of all kinds of tokenizers
SMALL = (".json", ".txt", ".model", ".jinja", ".bpe", ".vocab", ".spm", ".tiktoken", ".dict")
WEIGHTS = re.compile(r"((adapter_)?model(-\d+-of-\d+)?\.safetensors)|(pytorch_model(-\d+-of-\d+)?\.bin)")
SKIPPED_FILES = re.compile(r"(onnx|openvino|original|coreml|tf|flax|gguf|runs|logs|checkpoint-.*)/.*")


class HubInfo(NamedTuple):
    """What the hub says of a model or a data set; no commit where it has none, or shows none to us."""

    reached: bool
    commit: str = ""
    files: tuple[str, ...] = ()


def only_local(name: str, *, weights: bool = True, gguf_file: str | None = None) -> bool:
    """True where ``name`` must come from the disk: a folder, a hub id while there is no hub, and one of which all is
    here as the hub has it now; what is lacking is fetched first.
    """
    if Path(name).is_dir():
        return True
    answer = model_info(name)
    if not answer.commit:
        return not answer.reached  # where it was, transformers says what the hub said
    return _fetched(name, answer, weights, gguf_file)


def hub_answers(dataset: str, revision: str | None = None) -> bool:
    """Whether there is a hub to ask for a data set, of which it may know nothing."""
    return model_info(dataset, "dataset", revision).reached


@functools.cache
def model_info(name: str, kind: str = "model", revision: str | None = None) -> HubInfo:
    """One request, within a few seconds; none where the hub has not answered before."""
    if is_offline_mode() or constants.ENDPOINT in _silent:
        return HubInfo(False)
    try:
        about = HfApi().dataset_info if kind == "dataset" else HfApi().model_info
        found = about(name, revision=revision, timeout=SECONDS)
        return HubInfo(True, found.sha or "", tuple(one.rfilename for one in found.siblings or ()))
    except (HfHubHTTPError, HFValidationError):
        return HubInfo(True)
    except (HTTPError, ValueError) as error:  # no answer, or that of something else
        log.warning(
            "%s is out of reach (%s); models and data sets come from the cache on this disk only.",
            *(constants.ENDPOINT, error),
        )
        _silent.add(constants.ENDPOINT)
        return HubInfo(False)


_silent = set[str]()  # endpoints


@functools.cache
def _fetched(name: str, answer: HubInfo, weights: bool, gguf_file: str | None) -> bool:
    """Whether all that is read of this model is here, now at the latest."""
    wanted = [one for one in answer.files if one.endswith(SMALL) and not SKIPPED_FILES.fullmatch(one)]
    if gguf_file:  # which holds the config and the vocabulary, too
        wanted.append(gguf_file)
    elif weights:
        large = weights_of(answer.files)
        if not large:
            return False
        wanted += large
    if all(_is_here(name, answer.commit, one) for one in wanted):
        return True
    try:
        snapshot_download(name, allow_patterns=wanted, etag_timeout=SECONDS)
    except (OSError, ValueError) as error:
        log.debug("%s: %s", name, error)
        return False  # transformers fetches it, and says what is wrong
    return True


def weights_of(files: Sequence[str]) -> list[str]:
    """The files that hold a model's weights; those of pickles where their folder has no safetensors."""
    found = [one for one in files if WEIGHTS.fullmatch(PurePosixPath(one).name) and not SKIPPED_FILES.fullmatch(one)]
    safe = {PurePosixPath(one).parent for one in found if one.endswith(".safetensors")}
    return [one for one in found if one.endswith(".safetensors") or PurePosixPath(one).parent not in safe]


def _is_here(name: str, commit: str, file: str) -> bool:
    """Whether this version of the file is in the cache, as that which is read where nobody asks the hub."""
    found = try_to_load_from_cache(name, file)
    return isinstance(found, str) and commit in Path(found).parts
