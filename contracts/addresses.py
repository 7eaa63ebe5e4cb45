"""Addresses such as ``s3://BUCKET/FILE``, and checks that a path is a local one."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    pass
from contracts.errors import InputError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # how one on another machine begins; C:/ is a disk


def is_address(path: object) -> bool:
    """Whether a path is an address, such as ``s3://BUCKET/FILE``, and no name on a disk here."""
    return ADDRESS.match(str(path).strip()) is not None


def check_local_output(key: str, path: object) -> None:
    """
    Raises:
        InputError: ``path``, under which something is to be written, is an address.
    """
    if is_address(path):
        raise InputError(
            f"{key}={path}: results can only be written to a disk of this machine, and this is an address. Name a "
            "local path, and copy what lies there once the command is done."
        )


def check_local_input(key: str, path: object) -> None:
    """
    Raises:
        InputError: ``path``, from which something is read that is no text, is an address.
    """
    if is_address(path):
        raise InputError(
            f"{key}={path}: wanted a path on this machine, and this is an address. Copy what lies there to this "
            "machine, and name the copy; a model of the Hugging Face hub is OWNER/NAME."
        )
