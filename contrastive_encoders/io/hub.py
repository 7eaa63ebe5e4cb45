"""Access to models and data sets of the Hugging Face Hub, which are requested once and then read from the local cache.

A library that loads a model requests each of its files at every start, and retries for a minute if the Hub is
unreachable.
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
)  # HTTPError is raised by the client that it uses

log = logging.getLogger(__name__)

SECONDS = 5.0
# Files of a model other than weights: configs, and the vocabularies of all kinds of tokenizers
SMALL = (".json", ".txt", ".model", ".jinja", ".bpe", ".vocab", ".spm", ".tiktoken", ".dict")
WEIGHTS = re.compile(r"((adapter_)?model(-\d+-of-\d+)?\.safetensors)|(pytorch_model(-\d+-of-\d+)?\.bin)")
SKIPPED_FILES = re.compile(r"(onnx|openvino|original|coreml|tf|flax|gguf|runs|logs|checkpoint-.*)/.*")


class HubInfo(NamedTuple):
    """The Hub's response to a request about a model or data set. The commit is empty if the repository does not exist
    or is not accessible.
    """

    reached: bool
    commit: str = ""
    files: tuple[str, ...] = ()


def only_local(name: str, *, weights: bool = True, gguf_file: str | None = None) -> bool:
    """Return whether the model ``name`` should be loaded from the local disk, without requests to the Hub.

    This applies to a folder, to a Hub id while the Hub is unreachable, and to a Hub id whose current version is
    completely cached. Missing files are downloaded first.
    """
    if Path(name).is_dir():
        return True
    answer = model_info(name)
    if not answer.commit:
        return not answer.reached  # if it was reached, Transformers reports its answer
    return _ensure_cached(name, answer, weights, gguf_file)


def hub_answers(dataset: str, revision: str | None = None) -> bool:
    """Return whether the Hub answers a request about a data set, which need not exist."""
    return model_info(dataset, "dataset", revision).reached


@functools.cache
def model_info(name: str, kind: str = "model", revision: str | None = None) -> HubInfo:
    """Request information about a model or data set from the Hub, with a timeout of a few seconds. No request is sent
    after an earlier one failed.
    """
    if is_offline_mode() or constants.ENDPOINT in _unreachable_endpoints:
        return HubInfo(False)
    try:
        about = HfApi().dataset_info if kind == "dataset" else HfApi().model_info
        found = about(name, revision=revision, timeout=SECONDS)
        return HubInfo(True, found.sha or "", tuple(one.rfilename for one in found.siblings or ()))
    except (HfHubHTTPError, HFValidationError):
        return HubInfo(True)
    except (HTTPError, ValueError) as error:  # no answer, or the answer of another server
        log.warning(
            "%s is unreachable (%s). Models and data sets are loaded from the local cache only.",
            *(constants.ENDPOINT, error),
        )
        _unreachable_endpoints.add(constants.ENDPOINT)
        return HubInfo(False)


_unreachable_endpoints = set[str]()  # endpoints


@functools.cache
def _ensure_cached(name: str, answer: HubInfo, weights: bool, gguf_file: str | None) -> bool:
    """Download the missing files of a model, and return whether all required files are cached."""
    wanted = [one for one in answer.files if one.endswith(SMALL) and not SKIPPED_FILES.fullmatch(one)]
    if gguf_file:  # it also contains the config and the vocabulary
        wanted.append(gguf_file)
    elif weights:
        large = weights_of(answer.files)
        if not large:
            return False
        wanted += large
    if all(_is_cached(name, answer.commit, one) for one in wanted):
        return True
    try:
        snapshot_download(name, allow_patterns=wanted, etag_timeout=SECONDS)
    except (OSError, ValueError) as error:
        log.debug("%s: %s", name, error)
        return False  # Transformers downloads it, and reports the error
    return True


def weights_of(files: Sequence[str]) -> list[str]:
    """Return the files with a model's weights. Pickle files are included only if their folder has no safetensors
    files.
    """
    found = [one for one in files if WEIGHTS.fullmatch(PurePosixPath(one).name) and not SKIPPED_FILES.fullmatch(one)]
    safe = {PurePosixPath(one).parent for one in found if one.endswith(".safetensors")}
    return [one for one in found if one.endswith(".safetensors") or PurePosixPath(one).parent not in safe]


def _is_cached(name: str, commit: str, file: str) -> bool:
    """Return whether the cache contains the file of this commit, and offline loading would read that version."""
    found = try_to_load_from_cache(name, file)
    return isinstance(found, str) and commit in Path(found).parts
