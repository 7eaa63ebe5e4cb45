"""Models and data sets of the Hugging Face hub, asked for once and then read from the local cache.

Its own client would ask for every file of a model at every start, and try for a minute where there is no hub.
"""

import functools
import http.client
import json
import logging
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from huggingface_hub import constants, get_token, snapshot_download, try_to_load_from_cache

log = logging.getLogger(__name__)

SECONDS = 5.0
# What is read of a model besides its weights: configs, and the vocabularies of all kinds of tokenizers
SMALL = (".json", ".txt", ".model", ".jinja", ".bpe", ".vocab", ".spm", ".tiktoken", ".dict")
WEIGHTS = (  # one kind of them for each folder, the first that is there
    re.compile(r"(adapter_)?model\.safetensors"),
    re.compile(r"model-\d+-of-\d+\.safetensors"),
    re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin"),
)
FOR_OTHERS = re.compile(r"(onnx|openvino|original|coreml|tf|flax|gguf|runs|logs|checkpoint-.*)/.*")


class Answer(NamedTuple):
    """What the hub says of a model or a data set; no commit where it has none, or shows none to us."""

    reached: bool
    commit: str = ""
    files: tuple[str, ...] = ()


def only_local(name: str, *, weights: bool = True, gguf_file: str | None = None) -> bool:
    """True where ``name`` must come from the disk: a folder, a hub id while there is no hub, and one of which all is
    here as the hub has it now; what is lacking is fetched first.
    """
    if Path(name).is_dir() or constants.HF_HUB_OFFLINE:
        return True
    answer = asked(_endpoint(), name)
    if not answer.commit:
        return not answer.reached  # where it was, transformers says what the hub said
    return _fetched(name, answer, weights, gguf_file)


def hub_answers(kind: str, name: str, revision: str | None = None) -> bool:
    """Whether there is a hub to ask for one of its ``models`` or ``datasets``, of which it may know nothing."""
    return not constants.HF_HUB_OFFLINE and asked(_endpoint(), name, kind, revision or "main").reached


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")


@functools.cache
def asked(endpoint: str, name: str, kind: str = "models", revision: str = "main") -> Answer:
    """One request, within a few seconds; none where this endpoint has not answered before."""
    if endpoint in _silent:
        return Answer(False)
    token = get_token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = f"{endpoint}/api/{kind}/{urllib.parse.quote(name)}/revision/{urllib.parse.quote(revision, safe='')}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SECONDS) as response:
            found = json.load(response)
        return Answer(True, found["sha"], tuple(one["rfilename"] for one in found["siblings"]))
    except urllib.error.HTTPError:
        return Answer(True)
    except OSError as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLError):
            return Answer(True)  # a certificate that we doubt, and its client may not
        log.warning(
            "%s is out of reach (%s); models and data sets come from the cache on this disk only.", endpoint, error
        )
        _silent.add(endpoint)
        return Answer(False)
    except (ValueError, KeyError, TypeError, http.client.HTTPException):  # something else answers there
        return Answer(True)


_silent = set[str]()  # endpoints


@functools.cache
def _fetched(name: str, answer: Answer, weights: bool, gguf_file: str | None) -> bool:
    """Whether all that is read of this model is here, now at the latest."""
    wanted = [one for one in answer.files if one.endswith(SMALL) and not FOR_OTHERS.fullmatch(one)]
    if gguf_file:  # which holds the config and the vocabulary, too
        wanted.append(gguf_file)
    elif weights:
        large = list(weights_of(answer.files))
        if not large:
            return False
        wanted += large
    if all(_is_here(name, answer.commit, one) for one in wanted):
        return True
    try:
        snapshot_download(name, allow_patterns=wanted)
    except (OSError, ValueError) as error:
        log.debug("%s: %s", name, error)
        return False  # transformers fetches it, and says what is wrong
    return True


def weights_of(files: Sequence[str]) -> Iterator[str]:
    """The files that hold a model's weights, of each folder in one form."""
    for folder in dict.fromkeys(PurePosixPath(one).parent for one in files if not FOR_OTHERS.fullmatch(one)):
        inside = [one for one in files if PurePosixPath(one).parent == folder]
        forms = [[one for one in inside if form.fullmatch(PurePosixPath(one).name)] for form in WEIGHTS]
        yield from next((form for form in forms if form), [])


def _is_here(name: str, commit: str, file: str) -> bool:
    """Whether this version of the file is in the cache, as that which is read where nobody asks the hub."""
    found = try_to_load_from_cache(name, file)
    return isinstance(found, str) and commit in Path(found).parts
