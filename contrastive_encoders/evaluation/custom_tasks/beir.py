"""Retrieval folders in the layout of BEIR or in the Parquet files of NanoBEIR, with one or several sets.

FOLDER/corpus.jsonl  queries.jsonl  qrels/test.tsv           BEIR; qrels may have no header or TREC's format
FOLDER/{corpus,queries,qrels}/train-00000-of-00001.parquet   one set of NanoBEIR
FOLDER/{corpus,queries,qrels}/NAME-00000-of-00001.parquet    all sets of NanoBEIR together
FOLDER/NAME/...                                              a set in each folder
"""

import csv
import logging
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.evaluation.custom_tasks.columns import TableRow, columns_in, read
from contrastive_encoders.io.column_names import GAINS, IDS, RELEVANCE, choose_columns
from contrastive_encoders.io.delimited import LOOKED_AT, found_separator
from contrastive_encoders.io.file_discovery import FORMS, form_of
from contrastive_encoders.io.rows import AUTO, LINE, Encoding, ParsedRow, read_rows, require_valid_row

log = logging.getLogger(__name__)

PARTS = ("corpus", "queries", "qrels")
PIECE = re.compile(r"(.+?)(-\d+-of-\d+)?(\.[^.]+)(\.gz)?")  # parts of a file's name: split, part number, endings
USUAL = "test"
TREC = (".qrels", ".qrel", ".trec", ".txt")  # endings of qrels with spaces between the columns
UNNAMED = {  # columns of qrels without a header, by the number of columns
    2: ("query-id", "corpus-id"),
    3: ("query-id", "corpus-id", "score"),
    4: ("query-id", "iteration", "corpus-id", "score"),
}
WORD = re.compile(r"\w+")
IgnoreIdenticalIds = bool | Literal["auto"]


class Files(NamedTuple):
    """The files of a set."""

    corpus: list[Path]
    queries: list[Path]
    qrels: list[Path]


def is_beir(folder: Path) -> bool:
    """Return whether a folder contains a part of a set, or folders with complete sets."""
    if not folder.is_dir():
        return False
    return any(_splits(folder, part) for part in PARTS) or bool(_sets_below(folder))


def sets_in(folder: Path | None, split: str | None, given: Mapping[str, list[Path]]) -> dict[str, Files]:
    """Return the files of each set by its name, "" for a single set. ``given`` files replace those of the folder.

    Raises:
        InputError: a part or the split is missing.
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
    if len(parts["corpus"]) > 1 and names:  # all sets in one folder
        names = [split] if split in names else names
        return {name if len(names) > 1 else "": Files(*(parts[part][name] for part in PARTS)) for name in names}
    qrels = _of_split(folder, parts["qrels"], split)
    corpus, queries = ([file for files in parts[part].values() for file in files] for part in ("corpus", "queries"))
    return {"": Files(corpus, queries, qrels)}


def _sets_below(folder: Path) -> list[Path]:
    below = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    return [one for one in below if all(_splits(one, part) for part in PARTS)]


def _splits(folder: Path | None, part: str) -> dict[str, list[Path]]:
    """Return the files of each split. The split of a file with the name of the part is ""."""
    found = dict[str, list[Path]]()
    if folder is None:
        return found
    inside = folder / part
    forms = (*FORMS, *TREC) if part == "qrels" else FORMS
    for path in sorted(inside.iterdir() if inside.is_dir() else folder.glob(f"{part}.*")):
        match = PIECE.fullmatch(path.name)
        if match and form_of(path, forms) and (inside.is_dir() or match[1] == part):
            found.setdefault(match[1] if inside.is_dir() else "", []).append(path)
    return found


def _of_split(folder: Path | None, splits: Mapping[str, list[Path]], split: str | None) -> list[Path]:
    if len(splits) == 1 and split in (None, *splits):
        return next(iter(splits.values()))
    if (split or USUAL) not in splits:
        raise InputError(
            key="split",
            value=split or USUAL,
            expected=f"one of {', '.join(splits)}, for which {folder} has qrels",
            hint=f"Set split: {next(iter(splits))} in the task.",
        )
    return splits[split or USUAL]


def read_set(
    name: str, files: Files, ignore_identical_ids: IgnoreIdenticalIds = "auto", encoding: Encoding = AUTO
) -> RetrievalData:
    """Read all documents, and the queries that have a relevant document. The title precedes the document's text.

    With ``ignore_identical_ids=True``, a document with the id of a query is not ranked for this query, as in BEIR.
    "auto" also compares the texts, because some sets number queries and documents independently. It ranks such a
    document if it is judged relevant.

    Raises:
        InputError: a file cannot be read, an id occurs twice, or no document is relevant.
    """
    corpus = _texts(files.corpus, encoding, may_be_empty=True)
    queries = _texts(files.queries, encoding, may_be_empty=False)
    documents = {key: f"{title} {text}" if title else text for key, (title, text) in corpus.items()}
    gains = _gains(files.qrels, encoding)
    place_of = {key: row for row, key in enumerate(documents)}
    asked = [key for key in queries if key in gains]
    if not asked:
        raise InputError(
            f"{files.qrels[0]}: none of its queries with a relevant document is in {files.queries[0]}. Wanted the ids "
            "of that file."
        )
    own = {}
    for row, key in enumerate(asked if ignore_identical_ids else []):
        text = _normalized(queries[key][1])
        is_same = key in corpus and text in map(_normalized, (corpus[key][1], documents[key]))
        if key in corpus and (ignore_identical_ids is True or (is_same and key not in gains[key])):
            own[row] = place_of[key]
    if own:
        reason = "id" if ignore_identical_ids is True else "id and text"
        hint = "ignore_identical_ids: false ranks it, too."
        log.info("%s: %d queries are documents with the same %s, not ranked. %s", name, len(own), reason, hint)
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
        {
            -1 - number if key not in place_of or own.get(row) == place_of[key] else place_of[key]: gain
            for number, (key, gain) in enumerate(gains[one].items())
        }
        for row, one in enumerate(asked)
    ]
    unranked = {row: [place] for row, place in own.items()}
    return RetrievalData(
        name, [queries[one][1] for one in asked], list(documents.values()), relevant, unranked_documents=unranked
    )


def _normalized(text: str) -> str:
    """Return the words of a text in lower case, or the unchanged text if it has no words."""
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", text).casefold())) or text.strip()


def _texts(files: Sequence[Path], encoding: Encoding, *, may_be_empty: bool) -> dict[str, tuple[str, str]]:
    """Return id -> (title, text). The title is empty for a row without a title."""
    found = dict[str, tuple[str, str]]()
    for file in files:
        (key,) = choose_columns(columns_in(file, encoding), IDS) or IDS[0]
        for one in read([file], [key, "text"], ["title"], encoding):
            name, head = one.word(key), one.row.values.get("title")
            if name in found:
                raise InputError(f"{one.where}: the id {name} stands twice; wanted each id once. Delete the row.")
            title = head.strip() if isinstance(head, str) else ""
            found[name] = title, one.text("text", may_be_empty=may_be_empty)
    return found


def _gains(files: Sequence[Path], encoding: Encoding) -> dict[str, dict[str, float]]:
    """Return query -> document -> gain for gains above 0."""
    found = dict[str, dict[str, float]]()
    for file in files:
        is_table = form_of(file) in (".jsonl", ".json", ".parquet")
        judgments = _judgments_of_table if is_table else _judgments_of_lines
        for one, query, document, gain in judgments(file, encoding):
            value = one.number(gain) if gain else 1.0
            if value > 0:
                found.setdefault(one.word(query), {})[one.word(document)] = value
    return found


Judgment = tuple[TableRow, str, str, str | None]  # a row, and the names of its columns with query, document, and gain


def _judgments_of_table(file: Path, encoding: Encoding) -> Iterator[Judgment]:
    there = columns_in(file, encoding)
    query, document = choose_columns(there, RELEVANCE) or RELEVANCE[0]
    (gain,) = choose_columns(there, GAINS) or (None,)
    for one in read([file], [query, document], [gain] if gain else [], encoding):
        yield one, query, document, gain


def _judgments_of_lines(file: Path, encoding: Encoding) -> Iterator[Judgment]:
    """Yield the rows of qrels with or without a header. The columns are separated by tabs, spaces, or (.csv) commas."""
    found = read_rows(file, form=".txt", encoding=encoding)
    lines = [row for one in found if (row := require_valid_row(one, file)).values[LINE].strip()]
    texts = [str(row.values[LINE]) for row in lines]
    rows = [_cells(text, found_separator(texts[:LOOKED_AT]) if form_of(file) == ".csv" else "") for text in texts]
    names = tuple(rows[0]) if rows and _is_header(rows[0]) else ()
    columns = names or UNNAMED.get(len(rows[0]) if rows else 0, ())
    query, document = choose_columns(columns, RELEVANCE) or ("", "")
    if not query:
        raise InputError(
            location=f"{file}:{lines[0].line if lines else 1}",
            expected="the columns query-id, corpus-id, and score, named in the first line or in this order, or TREC's "
            "query, iteration, document, relevance",
            value=texts[0] if texts else "no line",
            hint="Rename the columns, or write the file again.",
        )
    (gain,) = choose_columns(columns, GAINS) or (None,)
    if gain is None and len(columns) > 2:  # rows with a gain of 0 would count as relevant
        raise InputError(
            location=f"{file}:{lines[0].line}",
            expected=f"a column of relevance, named {', '.join(name for (name,) in GAINS)}",
            value=texts[0],
            hint="Rename the column, or leave out the first line.",
        )
    for row, cells in list(zip(lines, rows, strict=True))[bool(names) :]:
        where = f"{file}:{row.line}"
        if len(cells) != len(columns):
            raise InputError(
                location=where,
                expected=f"{len(columns)} columns as in the first line",
                value=row.values[LINE],
                hint="Correct the line or delete it.",
            )
        yield TableRow(where, ParsedRow(dict(zip(columns, cells, strict=True)), row.line)), query, document, gain


def _cells(line: str, separator: str) -> list[str]:
    if separator:
        cells = next(csv.reader([line], delimiter=separator))
    else:
        cells = line.split("\t") if "\t" in line else line.split()
    return [cell.strip() for cell in cells]


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether cells are column names: some are known names, or the last of three or more is not a number."""
    if not {name for names in (*RELEVANCE, *GAINS) for name in names}.isdisjoint(cells):
        return True
    try:
        return len(cells) > 2 and not math.isfinite(float(cells[-1]))
    except ValueError:
        return True
