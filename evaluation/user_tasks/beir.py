"""Retrieval folders in BEIR's layout or NanoBEIR's Parquet, one set or several.

FOLDER/corpus.jsonl  queries.jsonl  qrels/test.tsv           BEIR
FOLDER/{corpus,queries,qrels}/train-00000-of-00001.parquet   a set of NanoBEIR
FOLDER/{corpus,queries,qrels}/NAME-00000-of-00001.parquet    all sets of NanoBEIR in one
FOLDER/NAME/...                                              a set in each folder
"""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from contracts import InputError, RetrievalTask
from evaluation.user_tasks.columns import choose, columns_in, read
from readers.listing import form_of

log = logging.getLogger(__name__)

PARTS = ("corpus", "queries", "qrels")
PIECE = re.compile(r"(.+?)(-\d+-of-\d+)?(\.[^.]+)(\.gz)?")  # of a file's name: its split, which part of it, endings
IDS = (("_id",), ("id",))
RELEVANCE = (("query-id", "corpus-id"), ("query_id", "corpus_id"), ("query_id", "doc_id"), ("qid", "docid"))
GAINS = (("score",), ("relevance",), ("label",))
USUAL = "test"


class Files(NamedTuple):
    """The files of a set."""

    corpus: list[Path]
    queries: list[Path]
    qrels: list[Path]


def is_beir(folder: Path) -> bool:
    """Whether a folder holds a part of a set, or folders that hold all of one."""
    if not folder.is_dir():
        return False
    return any(_splits(folder, part) for part in PARTS) or bool(_sets_below(folder))


def sets_in(folder: Path | None, split: str | None, given: Mapping[str, list[Path]]) -> dict[str, Files]:
    """Return the files of each set by its name, "" for a single one. ``given`` files replace those of the folder.

    Raises:
        InputError: a part is missing, or the split.
    """
    parts = {part: {"": given[part]} if given.get(part) else _splits(folder, part) for part in PARTS}
    below = _sets_below(folder) if folder and not any(parts.values()) else []
    if below:
        return {one.name: sets_in(one, split, {})[""] for one in below}
    if missing := [part for part in PARTS if not parts[part]]:
        raise InputError(
            f"{folder or ''}: wanted {', '.join(PARTS)}, each a file or a folder, such as corpus.jsonl, queries.jsonl "
            f"and qrels/test.tsv; {missing[0]} is not there. Name it: {missing[0]}: FILE."
        )
    names = [name for name in parts["corpus"] if all(name in parts[one] for one in PARTS)]
    if len(parts["corpus"]) > 1 and names:  # all sets in one
        names = [split] if split in names else names
        return {name if len(names) > 1 else "": Files(*(parts[part][name] for part in PARTS)) for name in names}
    qrels = _of_split(folder, parts["qrels"], split)
    corpus, queries = ([file for files in parts[part].values() for file in files] for part in ("corpus", "queries"))
    return {"": Files(corpus, queries, qrels)}


def _sets_below(folder: Path) -> list[Path]:
    below = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    return [one for one in below if all(_splits(one, part) for part in PARTS)]


def _splits(folder: Path | None, part: str) -> dict[str, list[Path]]:
    """Split -> its files; "" of a file that is called like the part."""
    found = dict[str, list[Path]]()
    if folder is None:
        return found
    inside = folder / part
    for path in sorted(inside.iterdir() if inside.is_dir() else folder.glob(f"{part}.*")):
        match = PIECE.fullmatch(path.name)
        if match and form_of(path) and (inside.is_dir() or match[1] == part):
            found.setdefault(match[1] if inside.is_dir() else "", []).append(path)
    return found


def _of_split(folder: Path | None, splits: Mapping[str, list[Path]], split: str | None) -> list[Path]:
    if len(splits) == 1 and split in (None, *splits):
        return next(iter(splits.values()))
    if (split or USUAL) not in splits:
        raise InputError(
            f"{folder}: no qrels of split {split or USUAL}; there are {', '.join(splits)}. Say split: NAME."
        )
    return splits[split or USUAL]


def read_set(name: str, files: Files) -> RetrievalTask:
    """The queries that have a relevant document, and all documents; a title stands before its text.

    Raises:
        InputError: a file cannot be read, an id stands twice, or nothing is relevant.
    """
    documents, queries = _texts(files.corpus, title=True), _texts(files.queries)
    gains = _gains(files.qrels)
    place_of = {key: row for row, key in enumerate(documents)}
    asked = [key for key in queries if key in gains]
    if not asked:
        raise InputError(
            f"{files.qrels[0]}: none of its queries with a relevant document is in {files.queries[0]}. Wanted the ids "
            "of that file."
        )
    lost = sum(key not in documents for one in asked for key in gains[one])
    found = [key in documents for one in asked for key in gains[one]]
    if not any(found):
        raise InputError(
            f"{files.qrels[0]}: none of its documents is in {files.corpus[0]}. Wanted the ids of that file."
        )
    if unknown := len(gains) - len(asked):
        log.warning(
            "%s: %d queries of %s are not in %s and are left out", name, unknown, files.qrels[0], files.queries[0]
        )
    if lost:
        log.warning("%s: %d relevant documents are not in %s and cannot be found", name, lost, files.corpus[0])
    relevant = [
        {place_of.get(key, -1 - number): gain for number, (key, gain) in enumerate(gains[one].items())} for one in asked
    ]
    return RetrievalTask(name, [queries[one] for one in asked], list(documents.values()), relevant)


def _texts(files: Sequence[Path], title: bool = False) -> dict[str, str]:
    """id -> text"""
    found = dict[str, str]()
    for file in files:
        (key,) = choose(columns_in(file), IDS) or IDS[0]
        for one in read([file], [key, "text"], ["title"]):
            name = one.word(key)
            if name in found:
                raise InputError(f"{one.where}: the id {name} stands twice; wanted each id once. Delete the row.")
            head = one.row.values.get("title") if title else None
            text = one.text("text", may_be_empty=title)
            found[name] = f"{head.strip()} {text}" if isinstance(head, str) and head.strip() else text
    return found


def _gains(files: Sequence[Path]) -> dict[str, dict[str, float]]:
    """query -> document -> gain, of those above 0"""
    found = dict[str, dict[str, float]]()
    for file in files:
        there = columns_in(file)
        query, document = choose(there, RELEVANCE) or RELEVANCE[0]
        (gain,) = choose(there, GAINS) or (None,)
        for one in read([file], [query, document], [gain] if gain else []):
            value = one.number(gain) if gain else 1.0
            if value > 0:
                found.setdefault(one.word(query), {})[one.word(document)] = value
    return found
