"""The layout of retrieval data: a folder with files or subfolders named corpus, queries, and qrels."""

import re
from collections.abc import Iterable
from pathlib import Path

from contrastive_encoders.io.file_formats import FORMS, form_of, has_columns

PARTS = ("corpus", "queries", "qrels")
FILE_NAME = re.compile(r"(.+?)(-\d+-of-\d+)?(\.[^.]+)(\.gz)?")  # parts of a file's name: split, part number, endings
TREC = (".qrels", ".qrel", ".trec", ".txt")  # endings of qrels with spaces between the columns


def is_beir(folder: Path) -> bool:
    """Return whether a folder contains a corpus, queries, or qrels, or subfolders that contain all three."""
    if not folder.is_dir():
        return False
    return any(splits_of(folder, part) for part in PARTS) or bool(set_folders(folder))


def set_folders(folder: Path) -> list[Path]:
    """Return the subfolders that each contain a corpus, queries, and qrels."""
    folders = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    return [one for one in folders if all(splits_of(one, part) for part in PARTS)]


def splits_of(folder: Path | None, part: str) -> dict[str, list[Path]]:
    """Return a mapping from the name of each split to its files of the kind ``part``, which is "corpus", "queries", or
    "qrels".

    A file that is named like the part has the split "".
    """
    splits = dict[str, list[Path]]()
    if folder is None:
        return splits
    part_folder = folder / part
    forms = (*FORMS, *TREC) if part == "qrels" else FORMS
    for path in sorted(part_folder.iterdir() if part_folder.is_dir() else folder.glob(f"{part}.*")):
        match = FILE_NAME.fullmatch(path.name)
        if match and form_of(path, forms) and (part_folder.is_dir() or match[1] == part):
            splits.setdefault(match[1] if part_folder.is_dir() else "", []).append(path)
    return splits


def query_files(files: Iterable[Path]) -> set[Path]:
    """Return the queries and the qrels in folders of retrieval data, which contain a corpus and queries.

    Qrels are not required, because some test sets do not publish them.
    """
    found = list(files)
    folders = {path.parent for path in found}
    roots = {path.parent for path in found if path.name.startswith("corpus.")}
    roots |= {one.parent for folder in folders for one in (folder, *folder.parents) if one.name == "corpus"}
    skipped = set[Path]()
    for root in roots:
        corpus, queries, qrels = ([path for path in found if _is_part(path, root, part)] for part in PARTS)
        if any(map(has_columns, corpus)) and any(map(has_columns, queries)):
            skipped.update(queries, qrels)
    return skipped


def _is_part(path: Path, root: Path, part: str) -> bool:
    """Return whether a file is in the folder ``part`` of ``root``, or the file of ``root`` that is named like it."""
    return path.is_relative_to(root / part) or (path.parent == root and path.name.startswith(f"{part}."))
