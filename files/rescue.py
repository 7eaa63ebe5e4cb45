"""What was computed is not lost because it cannot be written: it lies in another file, and its name is told."""

import contextlib
import json
import os
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contracts import InputError, NotWritten, interruption_behind
from files.whole import write_whole


@contextlib.contextmanager
def kept_otherwise(wanted: Path, computed: Mapping[str, Any]) -> Iterator[None]:
    """Around the last writing of a job: where that fails, ``computed`` is left as JSON beside ``wanted`` or, where that
    cannot be written, among the temporary files.

    Raises:
        NotWritten: it failed; what was computed is in the file that it names.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if interruption_behind(error):  # the same command begins it again: it is no failure
            raise
        text = json.dumps(computed, indent=1, ensure_ascii=False, default=str) + "\n"
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")
        for folder in (wanted.parent, Path(tempfile.gettempdir()), Path.cwd()):
            place = folder / f"{wanted.stem}-kept-{os.getpid()}.json"
            with contextlib.suppress(OSError):
                write_whole(place, text)
                raise NotWritten(
                    f"{wanted} could not be written ({reason}). What was computed is in {place}."
                ) from error
        raise
