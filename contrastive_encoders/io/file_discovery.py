"""Find the files that a user's setting refers to: a file, a folder, a pattern such as ``texts/*.jsonl``, or a list of
these, each local or remote.
"""

import difflib
import fnmatch
import glob
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.io.beir_layout import query_files
from contrastive_encoders.io.file_formats import DOCUMENTS, FORMS, SHEET, count_kinds, form_of
from contrastive_encoders.io.remote_files import fetch

DATASET_METADATA_FILES = (
    "manifest.json",
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
)  # files that describe a data set and contain no rows
HIDDEN = (".", "~$")  # first characters of hidden files, and of the lock files of Office programs
SYNTHESIS_MANIFEST = "manifest.json"  # in the folder of its shards
QUERY_FILES = "files of queries and judgments"  # in a folder of retrieval data, where they are skipped


class TextFile(NamedTuple):
    """A file to read rows from."""

    path: Path
    in_folder: bool  # found by listing a folder, where a .txt is one document by default


def list_files(
    paths: str | Path | Sequence[str | Path],
    key: str = "data.path",
    *,
    any_name: bool = False,
    documents: Literal["none", "named", "all"] = "none",
) -> list[TextFile]:
    """Return the files at ``paths``, in the given order. Folders and patterns are replaced by their files, in sorted
    order.

    In the output folder of a synthesis only the shards count, because other tables are next to and below them. A
    README, or another file with a name in capitals, describes the rows next to or below it and is not read as a
    document. The queries and the judgments in a folder of retrieval data are not documents.

    Args:
        key: the config key that the error messages name.
        any_name: allow any extension for a given file.
        documents: read files that are one text, in addition to rows: only if they are named, or also in folders. An
            .xlsx file is such a file only with "all".

    Raises:
        InputError: there is nothing to read, or a file has an unsupported format.
    """
    files, forms = list[TextFile](), (*FORMS, SHEET) if documents == "none" else (*FORMS, *DOCUMENTS)
    for given in _each_path(paths, key):
        path = local_path(given, key, forms)
        matches = _matches(path)
        if not matches:
            raise _missing_path_error(path, key)
        for match in matches:
            if match.is_dir():
                found = _list_folder(match, (*FORMS, SHEET) if documents == "named" else forms, key)
                skipped = set() if documents == "none" else query_files(found)
                files += [TextFile(one, True) for one in found if one not in skipped]
            elif any_name or form_of(match, forms):
                files.append(TextFile(match, False))
            else:
                raise _unknown_format_error(match, forms, key)
    if not files:
        raise InputError(key=key, value=[], expected="at least one path", hint=f"Set {key}=FILE_OR_FOLDER.")
    return _only_shards(files)


def check_output_apart(paths: str | Path | Sequence[str | Path], *outputs: Path, key: str = "input") -> None:
    """Check that output files would not be read as input. The first of ``outputs`` is the one to name in messages; the
    others are written next to it.

    Raises:
        InputError: an output is in a folder of ``paths``, or matches a pattern of ``paths``.
    """
    for path in (Path(given).expanduser() for given in _each_path(paths, key) if not is_address(given)):
        there, rest = _split_existing(path)
        for output in outputs:
            whole, folder = output.expanduser().resolve(), there.resolve()
            if whole.is_relative_to(folder) and _pattern_matches(rest, whole.relative_to(folder).parts):
                raise InputError(
                    key="output",
                    value=outputs[0],
                    expected=f"a path outside of {key}={path}, so that the output is not read as input",
                )


def local_path(path: str | Path, key: str, forms: Container[str] = FORMS) -> Path:
    """Return the local path of a file or folder that the user set as a path or an address. Files at an address are
    downloaded.

    Raises:
        InputError: there is nothing at the address, or it cannot be downloaded.
    """
    return fetch(str(path).strip(), key, partial(form_of, forms=forms)) if is_address(path) else Path(path).expanduser()


def _each_path(paths: str | Path | Sequence[str | Path], key: str) -> Iterator[str | Path]:
    for given in [paths] if isinstance(paths, str | Path) else paths:
        if not str(given).strip():
            raise InputError(key=key, value=given, expected="a path", hint=f"Set {key}=FILE_OR_FOLDER.")
        yield given


def _split_existing(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Split a path into its longest existing leading part, whose names may contain brackets, and the remaining names or
    patterns.
    """
    there = next(one for one in (path, *path.parents) if one.exists())
    return there, path.relative_to(there).parts


def _matches(path: Path) -> list[Path]:
    there, rest = _split_existing(path)
    if not rest:
        return [path]
    found = sorted(glob.glob(str(Path(*rest)), root_dir=there, recursive=True))  # noqa: PTH207  # pathlib finds hidden
    return [there / one for one in found if (there / one).exists()]  # a link may be broken


def _pattern_matches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether a glob pattern matches a path or one of its parent folders. Both are given as lists of
    components.
    """
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_pattern_matches(pattern[1:], parts[place:]) for place in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _pattern_matches(pattern[1:], parts[1:])


def _list_folder(folder: Path, forms: Sequence[str], key: str) -> list[Path]:
    visible = _visible_files(folder)
    found = [path for path in visible if form_of(path, forms) and path.name not in DATASET_METADATA_FILES]
    rows = [path for path in found if form_of(path) not in ("", ".txt")]
    found = [path for path in found if not _is_description(path, rows)]
    if not found:
        content = f"{len(visible)} other file(s), such as {visible[0].name}" if visible else "an empty folder"
        hint = None
        if (
            key.startswith("data.")
            and not set(DOCUMENTS) <= set(forms)
            and any(form_of(path, DOCUMENTS) for path in visible)
        ):
            hint = f"To read documents, set data=text, or use a pattern that matches them: '{folder}/**/*.md'."
        raise InputError(
            key=key,
            value=content,
            expected=f"files with the extensions {', '.join(forms)} in this folder or its subfolders",
            location=str(folder),
            hint=hint,
        )
    return found


def _visible_files(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders, without hidden ones and the lock files of Office programs."""
    everything = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in everything if not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)]


def _is_description(path: Path, rows: Sequence[Path]) -> bool:
    named = path.stem.isupper() or path.stem.lower() == "readme"
    return named and form_of(path, DOCUMENTS) != "" and any(row.is_relative_to(path.parent) for row in rows)


def count_skipped(paths: str | Path | Sequence[str | Path], files: Iterable[Path]) -> dict[str, int]:
    """Count the files that are skipped: those in the folders of ``paths`` that are neither hidden nor among ``files``.

    The keys are extensions, and `QUERY_FILES` for the queries and judgments of retrieval data (BEIR's layout).
    """
    here = (Path(given).expanduser() for given in _each_path(paths, "data.path") if not is_address(given))
    folders = [match for path in here for match in _matches(path) if match.is_dir()]
    visible = {path for folder in folders for path in _visible_files(folder)}
    skipped = sorted(visible.difference(files))
    queries = query_files(visible).intersection(skipped)
    return count_kinds([path for path in skipped if path not in queries]) | (
        {QUERY_FILES: len(queries)} if queries else {}
    )


def _unknown_format_error(path: Path, forms: Sequence[str], key: str) -> InputError:
    hint = "Convert the file to one of these formats, or unpack it if it is an archive."
    if key.startswith("data.") and form_of(path, DOCUMENTS):
        hint = "To read documents, set data=text."
    expected = f"a file of rows with one of the extensions {', '.join(forms)}, optionally with .gz appended"
    return InputError(key=key, value=path, expected=expected, hint=hint)


def _missing_path_error(path: Path, key: str) -> InputError:
    parent, rest = _split_existing(path)
    if glob.has_magic(str(Path(*rest))):
        expected = f"a pattern that matches at least one file (current directory: {Path.cwd()})"
        return InputError(key=key, value=path, expected=expected)
    several = [Path(part.strip()).expanduser() for part in str(path).split(",") if part.strip()]
    if len(several) > 1 and all(one.exists() for one in several):
        hint = f"Set {key}=[{','.join(map(str, several))}]."
        return InputError(key=key, value=path, expected="one path, or a list of paths in brackets", hint=hint)
    path = parent / rest[0]
    expected = f"an existing file or folder (current directory: {Path.cwd()})"
    return InputError(key=key, value=path, expected=expected, hint=similar_path_hint(path))


def similar_path_hint(path: Path) -> str | None:
    """Return a hint that suggests existing paths in the same folder with similar names, or None if there are none."""
    parent = path.parent
    try:
        siblings = [sibling.name for sibling in parent.iterdir() if sibling.exists()]
    except OSError:  # not a folder, or not readable
        return None
    close = difflib.get_close_matches(path.name, siblings, n=3)
    return f"Did you mean {' or '.join(str(parent / name) for name in close)}?" if close else None


def _only_shards(files: list[TextFile]) -> list[TextFile]:
    sharded = {file.path.parent for file in files if file.in_folder and file.path.name.startswith("shard-")}
    sharded = {folder for folder in sharded if (folder / SYNTHESIS_MANIFEST).is_file()}

    def belongs(file: TextFile) -> bool:
        outermost = next((folder for folder in reversed(file.path.parents) if folder in sharded), None)
        if not file.in_folder or outermost is None:
            return True
        return file.path.parent == outermost and file.path.name.startswith("shard-")

    return [file for file in files if belongs(file)]
