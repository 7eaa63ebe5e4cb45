"""Addresses such as ``s3://BUCKET/FILE``, and checks that a path is local."""

import re
from collections.abc import Mapping
from typing import Any

from contrastive_encoders.core.errors import InputError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # prefix of an address on another machine; C:/ is a disk
# A user with a password. A pattern that also contains the scheme would take quadratic time for long texts.
USER = re.compile(r"(?<=[A-Za-z0-9+.-]{2}://)[^\s/?#'\"@:]*:[^\s/?#'\"@]*@")
WEB_URL = re.compile(r"(https?://)(?:[^\s/?#'\"]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")


def is_address(path: object) -> bool:
    """Return whether a path is a remote address, such as ``s3://BUCKET/FILE``, instead of a local path."""
    return ADDRESS.match(str(path).strip()) is not None


def without_secrets(value: Any) -> Any:
    """Return a value, mapping, or list in which secrets are removed from all strings, so that it may be published.

    User names and passwords are removed from addresses. The query string of web addresses, which may grant access, is
    also removed.
    """
    if isinstance(value, Mapping):
        return {key: without_secrets(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    return USER.sub("", WEB_URL.sub(r"\1\2", value)) if isinstance(value, str) else value


def check_local_output(key: str, path: object) -> None:
    """Check that an output path is local.

    Raises:
        InputError: ``path`` is an address.
    """
    if is_address(path):
        raise InputError(
            key=key,
            value=path,
            expected="a local path, since results cannot be written to a URL",
            hint="Set a local path, and copy the files when the command has finished.",
        )


def check_local_input(key: str, path: object) -> None:
    """Check that an input path is local. For inputs other than texts, which cannot be read from a URL.

    Raises:
        InputError: ``path`` is an address.
    """
    if is_address(path):
        raise InputError(
            key=key,
            value=path,
            expected="a local path or a Hub id, not a URL",
            hint="Copy the files to this host, and set the path of the copy. The id of a Hub model is OWNER/NAME.",
        )
