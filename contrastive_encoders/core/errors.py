"""Errors that end a command, their exit codes, and the fields of their messages."""

import errno
import signal
from collections.abc import Mapping, Sequence
from typing import Any

MAX_VALUE_CHARS = 200  # of a value in a message
NO_VALUE: Any = object()  # default of InputError's value, since null is a value too


class InputError(ValueError):
    """The command line, the config, or an input file is invalid; the process exits with code 2.

    The message is composed of the fields: ``KEY=VALUE: expected X. HINT`` without a location, and ``LOCATION, KEY:
    expected X, got VALUE. HINT`` with one.

    Args:
        message: the full message, replacing the one composed of the fields.
        key: dotted key of the config or name of the argument, such as ``data.path``.
        value: value of the key, or what was found at the location.
        expected: noun phrase that describes valid values.
        location: place in the input, such as ``faq.csv, line 3``.
        hint: what to do, in complete sentences. Write an override as ``KEY=VALUE``.

    Example:
        >>> from contrastive_encoders import InputError
        >>> print(InputError(key="model.lr", value=-1, expected="a number greater than 0", hint="Set model.lr=2e-5."))
        model.lr=-1: expected a number greater than 0. Set model.lr=2e-5.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        key: str | None = None,
        value: Any = NO_VALUE,
        expected: str | None = None,
        location: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.key = key
        self.value: Any = None if value is NO_VALUE else value
        self.expected = expected
        self.location = location
        self.hint = hint
        super().__init__(self._message(value is not NO_VALUE) if message is None else message)

    def copy(self, message: str, **changes: Any) -> "InputError":
        """Return a copy of the error with the given message, and with the fields in ``changes`` replaced."""
        fields = {name: getattr(self, name) for name in ("key", "value", "expected", "location", "hint")}
        return InputError(message, **fields | changes)

    def with_hint(self, hint: str) -> "InputError":
        """Return a copy of the error with another hint."""
        message = str(self).replace(self.hint, hint) if self.hint else f"{self} {hint}"
        return self.copy(message, hint=hint)

    def with_prefix(self, prefix: str) -> "InputError":
        """Return a copy of the error whose message begins with ``prefix``."""
        return self.copy(f"{prefix}: {self}")

    def _message(self, has_value: bool) -> str:
        value = shorten(_as_override(self.value))
        if self.location is None:
            place = f"{self.key}={value}" if has_value else str(self.key)
            sentence = f"{place}: expected {self.expected}."
        else:
            place = self.location if self.key is None else f"{self.location}, {self.key}"
            sentence = f"{place}: expected {self.expected}{f', got {value}' if has_value else ''}."
        return sentence if self.hint is None else f"{sentence} {self.hint}"


def missing_package(
    package: str, extra: str, *, key: str | None = None, value: Any = NO_VALUE, location: str | None = None
) -> InputError:
    """Return the error about a missing package. Its hint says how to install the extra of this project that contains
    the package.
    """
    hint = f"Install it: pip install 'contrastive-encoders[{extra}]'."
    return InputError(key=key, value=value, location=location, expected=f"the package {package}", hint=hint)


def shorten(value: Any) -> str:
    """Return a value as text for a message, truncated to `MAX_VALUE_CHARS` characters."""
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}... ({len(text):,} characters)"


def _as_override(value: Any) -> str:
    """Format a value as in an override."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}: {_as_override(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"[{','.join(map(_as_override, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


class OutputError(RuntimeError):
    """The output could not be written, for example because the disk is full; the process exits with code 1.

    The message says what to do, or where the output was written instead. Run the same command again after freeing disk
    space.

    Example:
        >>> from contrastive_encoders import OutputError
        >>> raise OutputError("outputs/: no space left on the device. Run the command again.")
        Traceback (most recent call last):
        contrastive_encoders.core.errors.OutputError: outputs/: no space left on the device. Run the command again.
    """


def interruption_behind(error: BaseException | None) -> BaseException | None:
    """If a library raised ``error`` while it cleaned up after Ctrl-C or SIGTERM, return the exception of that signal;
    otherwise return None.

    OmegaConf raises such errors, and so does a zip file that is closed while one of its members is open.
    """
    while error is not None:
        terminated = isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM
        if terminated or isinstance(error, KeyboardInterrupt):
            return error
        error = error.__context__
    return None


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of a disk that is full, or fails


class TrainingError(RuntimeError):
    """Training stopped, for example because the loss is not finite; the process exits with code 1.

    The last good checkpoint is on disk when this is raised.

    Example:
        >>> from contrastive_encoders import TrainingError
        >>> raise TrainingError("step 12: the loss is nan. Set model.lr=1e-5.")
        Traceback (most recent call last):
        contrastive_encoders.core.errors.TrainingError: step 12: the loss is nan. Set model.lr=1e-5.
    """


def input_error(error: BaseException | None) -> InputError | None:
    """Return the `InputError` in the chain of causes of an error, such as an error that Hydra has wrapped, or None if
    there is none.
    """
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error
