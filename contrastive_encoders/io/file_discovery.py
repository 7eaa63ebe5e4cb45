"""Which files a path of the user's means: a file, a folder, a pattern such as ``texts/*.jsonl``, here or at an address,
or several of them."""

import difflib
import fnmatch
import glob
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.io.remote_files import fetched

FORMS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")  # each also with .gz behind it
MARKDOWN = (".md", ".markdown")
DOCUMENTS = (*MARKDOWN, ".html", ".htm", ".pdf", ".docx", ".xlsx")  # a file is one text; .gz too
SHEET = ".xlsx"  # a table, unless documents are read
DATASET_METADATA_FILES = (
    "manifest.json",
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
)  # describe it: no rows
OF_A_SYNTHESIS = "manifest.json"  # lies beside its shards


class TextFile(NamedTuple):
    """A file to read rows from."""

    path: Path
    in_folder: bool  # found by walking a folder, where a .txt is one document by default


def form_of(path: Path, forms: Container[str] = FORMS) -> str:
    """Return which of ``forms`` the file has by its name; empty if it has none."""
    form = _ending(path)
    return form if form in forms else ""


def list_files(
    paths: str | Path | Sequence[str | Path],
    key: str = "data.path",
    *,
    any_name: bool = False,
    documents: Literal["none", "named", "all"] = "none",
) -> list[TextFile]:
    """Return files as given, and those of folders and patterns in sorted order. ``any_name`` allows a given file to end
    in anything. ``documents`` takes what is one text, besides rows: where it is named, or in folders, too.

    Of the output folder of a synthesis only the shards count: other tables lie beside and below them. A README, or what
    else has a name in capitals, describes the rows that lie beside or below it, and is no document.

    Raises:
        InputError: there is nothing to read, or a file that is none of ours; ``key`` names who asked for it.
    """
    files, forms = list[TextFile](), (*FORMS, SHEET) if documents == "none" else (*FORMS, *DOCUMENTS)
    for given in _given(paths, key):
        path = local(given, key, forms)
        matches = _matches(path)
        if not matches:
            raise InputError(_missing(path, key))
        for match in matches:
            if match.is_dir():
                files += [TextFile(found, True) for found in _walk(match, FORMS if documents == "named" else forms)]
            elif any_name or form_of(match, forms):
                files.append(TextFile(match, False))
            else:
                raise InputError(_unknown(match, forms))
    if not files:
        raise InputError(f"no data: the list of paths is empty. Pass {key}=FILE_OR_FOLDER.")
    return _only_shards(files)


def check_output_apart(paths: str | Path | Sequence[str | Path], *outputs: Path, key: str = "input") -> None:
    """What is written must not become input: the first of ``outputs`` is named, the others are written beside it.

    Raises:
        InputError: one of them lies in a folder of ``paths``, or a pattern of them finds it.
    """
    for path in (Path(given).expanduser() for given in _given(paths, key) if not is_address(given)):
        there, rest = _there(path)
        for output in outputs:
            whole, folder = output.expanduser().resolve(), there.resolve()
            if whole.is_relative_to(folder) and _finds(rest, whole.relative_to(folder).parts):
                raise InputError(
                    f"output={outputs[0]} lies in {key}={path}, and would be read as input. Choose one beside it."
                )


def local(path: str | Path, key: str, forms: Container[str] = FORMS) -> Path:
    """Where a path of the user's lies on this machine; what is at an address is fetched.

    Raises:
        InputError: there is nothing at the address, or it cannot be had.
    """
    return (
        fetched(str(path).strip(), key, partial(form_of, forms=forms)) if is_address(path) else Path(path).expanduser()
    )


def _given(paths: str | Path | Sequence[str | Path], key: str) -> Iterator[str | Path]:
    for given in [paths] if isinstance(paths, str | Path) else paths:
        if not str(given).strip():
            raise InputError(f"{key} is empty: wanted a name. Pass {key}=FILE_OR_FOLDER.")
        yield given


def _there(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The longest leading part that exists, brackets in its name or not, and what follows it: names or patterns."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return there, path.relative_to(there).parts


def _matches(path: Path) -> list[Path]:
    there, rest = _there(path)
    if not rest:
        return [path]
    found = sorted(glob.glob(str(Path(*rest)), root_dir=there, recursive=True))  # noqa: PTH207  # pathlib finds hidden ones
    return [there / one for one in found if (there / one).exists()]  # a link may lead nowhere


def _finds(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a pattern finds what has these parts, or a folder that it lies in."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_finds(pattern[1:], parts[place:]) for place in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _finds(pattern[1:], parts[1:])


def _walk(folder: Path, forms: Sequence[str]) -> list[Path]:
    visible = _visible(folder)
    found = [path for path in visible if form_of(path, forms) and path.name not in DATASET_METADATA_FILES]
    rows = [path for path in found if form_of(path) not in ("", ".txt")]
    found = [path for path in found if not _describes(path, rows)]
    if not found:
        seen = f"{len(visible)} other file(s), e.g. {visible[0].name}" if visible else "an empty folder"
        wanted, named = f"Wanted {', '.join(forms)} in this folder or below", ""
        if not set(DOCUMENTS) <= set(forms) and any(form_of(path, DOCUMENTS) for path in visible):
            named = f" Documents are read by data=text, and if a pattern names them: '{folder}/**/*.md'."
        raise InputError(f"{folder}: no file to read. {wanted}; got {seen}.{named}")
    return found


def _visible(folder: Path) -> list[Path]:
    everything = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in everything if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _describes(path: Path, rows: Sequence[Path]) -> bool:
    named = path.stem.isupper() or path.stem.lower() == "readme"
    return named and form_of(path, DOCUMENTS) != "" and any(row.is_relative_to(path.parent) for row in rows)


def count_kinds(files: Sequence[Path]) -> dict[str, int]:
    """Count files by how their names end, the most first."""
    return dict(Counter(_ending(path) or path.name for path in files).most_common())


def count_skipped(
    paths: str | Path | Sequence[str | Path], files: Sequence[TextFile], key: str = "data.path"
) -> dict[str, int]:
    """Count by kind what lies in the folders of ``paths``, hidden files apart, and is none of the ``files``."""
    here = (Path(given).expanduser() for given in _given(paths, key) if not is_address(given))
    folders = [match for path in here for match in _matches(path) if match.is_dir()]
    visible = {path for folder in folders for path in _visible(folder)}
    return count_kinds(sorted(visible - {file.path for file in files}))


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _unknown(path: Path, forms: Sequence[str]) -> str:
    wanted = f"Wanted one of {', '.join(forms)}, also with .gz behind it; got {path.name!r}."
    if form_of(path, DOCUMENTS):
        return f"{path}: a document, where rows are read. {wanted} Documents are read by data=text."
    advice = "Convert it to one of these, or unpack it if it is an archive."
    return f"{path}: cannot tell what this file is by its name. {wanted} {advice}"


def _missing(path: Path, key: str) -> str:
    parent, rest = _there(path)
    if glob.has_magic(str(Path(*rest))):
        return f"{path}: no file has such a name (seen from {Path.cwd()}). Check {key}."
    path = parent / rest[0]
    siblings = [sibling.name for sibling in parent.iterdir() if sibling.exists()] if parent.is_dir() else []
    close = difflib.get_close_matches(path.name, siblings, n=3)
    hint = f" Did you mean {' or '.join(str(parent / name) for name in close)}?" if close else f" Check {key}."
    return f"{path}: no such file or folder (seen from {Path.cwd()}).{hint}"


def _only_shards(files: list[TextFile]) -> list[TextFile]:
    sharded = {file.path.parent for file in files if file.in_folder and file.path.name.startswith("shard-")}
    sharded = {folder for folder in sharded if (folder / OF_A_SYNTHESIS).is_file()}

    def belongs(file: TextFile) -> bool:
        outermost = next((folder for folder in reversed(file.path.parents) if folder in sharded), None)
        if not file.in_folder or outermost is None:
            return True
        return file.path.parent == outermost and file.path.name.startswith("shard-")

    return [file for file in files if belongs(file)]
