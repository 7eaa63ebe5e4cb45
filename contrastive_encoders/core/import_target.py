"""Imports of the classes that ``_target_`` keys name."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError


def found_at(target: str) -> Any:
    """Return the object at the import path ``package.module.NAME``, or None if the module or the name does not
    exist.
    """
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError, TypeError):
        return None


def is_allowed(target: str, allowed: Sequence[str]) -> bool:
    """Return whether a target is one of the packages or modules in ``allow_targets``, or is defined inside one of
    them.
    """
    return any(target == one or target.startswith(f"{one.rstrip('.')}.") for one in allowed)


def untrusted(key: str, target: Any) -> InputError:
    """Return the error about a ``_target_`` that is not in this project, in Lightning, or in ``allow_targets``."""
    hint = f"If you trust this code, set allow_targets=[{str(target).partition('.')[0]}]."
    return InputError(key=key, value=target, expected="code of this project or of Lightning", hint=hint)


def imported(key: str, target: str) -> Any:
    """Import the object that a key names: a class or function of a module, or an attribute of a class.

    A module in the working directory is found regardless of how the command was started.

    Raises:
        InputError: the module does not exist, importing it fails, or it does not contain the name.
    """
    parts = target.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise InputError(key=key, value=target, expected="the path of a class, such as package.module.Class")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that it hides no installed module
    found, names = None, parts
    for number in range(1, len(parts)):
        module = ".".join(parts[:number])
        try:
            found, names = importlib.import_module(module), parts[number:]
        except ModuleNotFoundError as error:
            if error.name != module:  # it exists, but imports a missing module
                raise _import_failed(key, target, module, error) from error
            if number == 1 or (hasattr(found, "__path__") and not hasattr(found, parts[number - 1])):
                raise _missing(key, target, module) from error
            break  # a class, whose attribute is named
        except (Exception, SystemExit) as error:  # a script without "if __name__" exits the process
            raise _import_failed(key, target, module, error) from error
    for name in names:
        if not hasattr(found, name):
            near = get_close_matches(name, dir(found), n=1, cutoff=0.7)
            place = getattr(found, "__file__", None)
            module = f"{getattr(found, '__name__', found)}{f' ({place})' if place else ''}"
            hint = f"The nearest is {near[0]}." if near else None
            raise InputError(
                key=key, value=target, expected=f"a name in {module}, which does not contain {name!r}", hint=hint
            )
        found = getattr(found, name)
    return found


def _missing(key: str, target: str, module: str) -> InputError:
    places = [os.environ.get("PYTHONPATH") and f"PYTHONPATH={os.environ['PYTHONPATH']}", f"the directory {Path.cwd()}"]
    return InputError(
        key=key,
        value=target,
        expected=f"an existing module, but {module} is neither installed nor in {' or '.join(filter(None, places))}",
        hint="Install the module, or set PYTHONPATH=FOLDER to its directory.",
    )


def _import_failed(key: str, target: str, module: str, error: BaseException) -> InputError:
    """Return the error about a failed import, with Python's message and the line of the user's module that failed."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}: {error.msg}"
    else:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        place = f"{own[-1].filename}, line {own[-1].lineno}: {error}" if len(own) > 1 else str(error)
    return InputError(
        key=key,
        value=target,
        expected=f"a module that can be imported, but {module} raises {type(error).__name__} in {place}",
        hint="Correct the module, or install the packages that it imports.",
    )
