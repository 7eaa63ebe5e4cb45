"""Read retrieval data from folders that contain files in BEIR's layout or NanoBEIR's Parquet files; a folder may
contain several data sets.

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
from contrastive_encoders.evaluation.tables import TableRow, read_custom_table, read_header
from contrastive_encoders.io.beir_layout import PARTS, set_folders, splits_of
from contrastive_encoders.io.column_names import GAINS, IDS, RELEVANCE, choose_columns
from contrastive_encoders.io.delimited import LINES_INSPECTED, detect_separator
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.rows import read_rows
from contrastive_encoders.io.text_files import AUTO, LINE, Encoding, require_valid_row

log = logging.getLogger(__name__)

DEFAULT_SPLIT = "test"
COLUMNS_WITHOUT_HEADER = {  # columns of qrels without a header, by the number of columns
    2: ("query-id", "corpus-id"),
    3: ("query-id", "corpus-id", "score"),
    4: ("query-id", "iteration", "corpus-id", "score"),
}
WORD = re.compile(r"\w+")
IgnoreIdenticalIds = bool | Literal["auto"]


class Files(NamedTuple):
    """The files of a retrieval data set."""

    corpus: list[Path]
    queries: list[Path]
    qrels: list[Path]


def find_sets(folder: Path | None, split: str | None, files: Mapping[str, list[Path]]) -> dict[str, Files]:
    """Return a mapping from the name of each data set to its files; a single data set has the name "".

    ``files`` replace those of the folder.

    Raises:
        InputError: the corpus, the queries, the qrels, or the split is missing.
    """
    parts = {part: {"": files[part]} if files.get(part) else splits_of(folder, part) for part in PARTS}
    folders = set_folders(folder) if folder and not any(parts.values()) else []
    if folders:
        return {one.name: find_sets(one, split, {})[""] for one in folders}
    if missing := [part for part in PARTS if not parts[part]]:
        raise InputError(
            location=str(folder or "task"),
            key=missing[0],
            expected="a file or a directory, such as corpus.jsonl, queries.jsonl, or qrels/test.tsv",
            hint=f"Add {missing[0]}: FILE to the task.",
        )
    names = [name for name in parts["corpus"] if all(name in parts[one] for one in PARTS)]
    if len(parts["corpus"]) > 1 and names:  # all sets in one folder
        names = [split] if split in names else names
        return {name if len(names) > 1 else "": Files(*(parts[part][name] for part in PARTS)) for name in names}
    qrels = _files_of_split(folder, parts["qrels"], split)
    corpus, queries = ([file for files in parts[part].values() for file in files] for part in ("corpus", "queries"))
    return {"": Files(corpus, queries, qrels)}


def _files_of_split(folder: Path | None, splits: Mapping[str, list[Path]], split: str | None) -> list[Path]:
    if len(splits) == 1 and split in (None, *splits):
        return next(iter(splits.values()))
    if (split or DEFAULT_SPLIT) not in splits:
        raise InputError(
            key="split",
            value=split or DEFAULT_SPLIT,
            expected=f"one of {', '.join(splits)}, for which {folder} has qrels",
            hint=f"Set split: {next(iter(splits))} in the task.",
        )
    return splits[split or DEFAULT_SPLIT]


def read_set(
    name: str, files: Files, ignore_identical_ids: IgnoreIdenticalIds = "auto", encoding: Encoding = AUTO
) -> RetrievalData:
    """Read a retrieval data set: all documents, and the queries that have at least one relevant document. The title
    precedes the document's text.

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
    known_queries = [key for key in queries if key in gains]
    if not known_queries:
        raise InputError(
            location=str(files.qrels[0]),
            expected=f"query ids that occur in {files.queries[0]}",
            hint=f"{files.queries[0]} contains none of the queries with a relevant document.",
        )
    same_document = {}
    for row, key in enumerate(known_queries if ignore_identical_ids else []):
        text = _normalized(queries[key][1])
        is_same = key in corpus and text in map(_normalized, (corpus[key][1], documents[key]))
        if key in corpus and (ignore_identical_ids is True or (is_same and key not in gains[key])):
            same_document[row] = place_of[key]
    if same_document:
        reason = "id" if ignore_identical_ids is True else "id and text"
        message = (
            "%s: %d queries have a document with the same %s, which is not ranked for them. Set ignore_identical_ids: "
            "false to rank it."
        )
        log.info(message, name, len(same_document), reason)
    missing = sum(key not in documents for one in known_queries for key in gains[one])
    is_present = [key in documents for one in known_queries for key in gains[one]]
    if not any(is_present):
        raise InputError(
            location=str(files.qrels[0]),
            expected=f"document ids that occur in {files.corpus[0]}",
            hint=f"{files.corpus[0]} contains none of the relevant documents.",
        )
    if unknown := len(gains) - len(known_queries):
        log.warning(
            "%s: %d queries of %s are not in %s and are skipped", name, unknown, files.qrels[0], files.queries[0]
        )
    if missing:
        log.warning("%s: %d relevant documents are not in %s and cannot be retrieved", name, missing, files.corpus[0])
    relevant = [
        {
            -1 - number if key not in place_of or same_document.get(row) == place_of[key] else place_of[key]: gain
            for number, (key, gain) in enumerate(gains[one].items())
        }
        for row, one in enumerate(known_queries)
    ]
    unranked = {row: [place] for row, place in same_document.items()}
    return RetrievalData(
        name,
        [queries[one][1] for one in known_queries],
        list(documents.values()),
        relevant,
        unranked_documents=unranked,
    )


def _normalized(text: str) -> str:
    """Return the lowercased words of a text, or the text itself if it contains no words."""
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", text).casefold())) or text.strip()


def _texts(files: Sequence[Path], encoding: Encoding, *, may_be_empty: bool) -> dict[str, tuple[str, str]]:
    """Return a mapping from the id of each document or query to its title and text. The title is empty if a row
    contains none.
    """
    texts = dict[str, tuple[str, str]]()
    for file in files:
        (key,) = choose_columns(read_header(file, encoding), IDS) or IDS[0]
        for one in read_custom_table(file, [key, "text"], ["title"], encoding):
            name, head = one.word(key), one.values.get("title")
            if name in texts:
                raise InputError(
                    location=one.where,
                    key=key,
                    value=name,
                    expected="a unique id",
                    hint="The id occurs twice. Delete the row.",
                )
            title = head.strip() if isinstance(head, str) else ""
            texts[name] = title, one.text("text", may_be_empty=may_be_empty)
    return texts


def _gains(files: Sequence[Path], encoding: Encoding) -> dict[str, dict[str, float]]:
    """Return the positive relevance gains as {query id: {document id: gain}}."""
    gains = dict[str, dict[str, float]]()
    for file in files:
        is_table = form_of(file) in (".jsonl", ".json", ".parquet")
        judgments = _judgments_of_table if is_table else _judgments_of_lines
        for one, query, document, gain in judgments(file, encoding):
            value = one.number(gain) if gain else 1.0
            if value > 0:
                gains.setdefault(one.word(query), {})[one.word(document)] = value
    return gains


Judgment = tuple[TableRow, str, str, str | None]  # a row, and the names of its columns with query, document, and gain


def _judgments_of_table(file: Path, encoding: Encoding) -> Iterator[Judgment]:
    columns = read_header(file, encoding)
    query, document = choose_columns(columns, RELEVANCE) or RELEVANCE[0]
    (gain,) = choose_columns(columns, GAINS) or (None,)
    for one in read_custom_table(file, [query, document], [gain] if gain else [], encoding):
        yield one, query, document, gain


def _judgments_of_lines(file: Path, encoding: Encoding) -> Iterator[Judgment]:
    """Yield the relevance judgments in the lines of a qrels file, which may start with a header.

    The columns are separated by tabs, spaces, or (.csv) commas.
    """
    raw_rows = read_rows(file, form=".txt", encoding=encoding)
    lines = [row for one in raw_rows if (row := require_valid_row(one, file)).values[LINE].strip()]
    texts = [str(row.values[LINE]) for row in lines]
    rows = [
        _cells(text, detect_separator(texts[:LINES_INSPECTED]) if form_of(file) == ".csv" else "") for text in texts
    ]
    names = tuple(rows[0]) if rows and _is_header(rows[0]) else ()
    columns = names or COLUMNS_WITHOUT_HEADER.get(len(rows[0]) if rows else 0, ())
    query, document = choose_columns(columns, RELEVANCE) or ("", "")
    if not query:
        raise InputError(
            location=f"{file}:{lines[0].line if lines else 1}",
            expected="the columns query-id, corpus-id, and score (named in the first line, or in this order), or "
            "TREC's columns query, iteration, document, and relevance",
            value=texts[0] if texts else "no lines",
            hint="Rename the columns.",
        )
    (gain,) = choose_columns(columns, GAINS) or (None,)
    if gain is None and len(columns) > 2:  # rows with a gain of 0 would count as relevant
        raise InputError(
            location=f"{file}:{lines[0].line}",
            expected=f"a column of relevance scores, with one of the names {', '.join(name for (name,) in GAINS)}",
            value=texts[0],
            hint="Rename that column in the header (first line). Or delete the header, if the columns are in the order "
            "query, document, score or query, iteration, document, score.",
        )
    for row, cells in list(zip(lines, rows, strict=True))[bool(names) :]:
        location = f"{file}:{row.line}"
        if len(cells) != len(columns):
            raise InputError(
                location=location,
                expected=f"{len(columns)} columns as in the first line",
                value=row.values[LINE],
                hint="Correct the line or delete it.",
            )
        yield TableRow(location, dict(zip(columns, cells, strict=True))), query, document, gain


def _cells(line: str, separator: str) -> list[str]:
    if separator:
        cells = next(csv.reader([line], delimiter=separator))
    else:
        cells = line.split("\t") if "\t" in line else line.split()
    return [cell.strip() for cell in cells]


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether a row is a header: it contains a known column name, or it has 3 or more cells and the last is not
    a number.
    """
    if not {name for names in (*RELEVANCE, *GAINS) for name in names}.isdisjoint(cells):
        return True
    try:
        return len(cells) > 2 and not math.isfinite(float(cells[-1]))
    except ValueError:
        return True
