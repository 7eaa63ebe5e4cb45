"""Write the output files of the recipe ``queries``: training rows, BEIR folders, a sheet for manual judgments, and all
candidates.
"""

import csv
import gzip
import io
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from contrastive_encoders.datamodules.passages import SENTENCE_END
from contrastive_encoders.io.atomic import atomic_write, remove
from contrastive_encoders.synthesis.questions.passages import Collection, Part
from contrastive_encoders.synthesis.questions.rules import KEPT, Question
from contrastive_encoders.synthesis.questions.scores import NearestPassages
from contrastive_encoders.synthesis.report.annotate import KEY, SHEET, cell

PAIRS, TRAIN, CANDIDATES = "pairs.jsonl.gz", "train.jsonl.gz", "candidates.jsonl.gz"
DOCUMENTS, SENTENCES = "documents.jsonl.gz", "sentences.txt.gz"  # of the training part
# part -> directory; a custom task named dev would get the name of its parent as a prefix
HELD_OUT: dict[Part, str] = {"held_out": "held_out", "dev": "development"}
BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
ANSWERED = "answered"  # column of the sheet to be filled in with yes or no
SHEET_COLUMNS = ("id", "style", "question", "heading", "passage", ANSWERED)
SHEET_QUESTIONS = 50


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as JSON lines, and return the number of rows. Equal rows give equal bytes.

    The file is compressed if its name ends in .gz.
    """
    text = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return text.count(b"\n")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file, which is compressed if its name ends in .gz."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def candidate_rows(
    questions: Sequence[Question], collection: Collection, neighbors: NearestPassages
) -> Iterator[dict[str, Any]]:
    """Yield a row for each candidate question, with its scores and the rules that it violates."""
    for one in questions:
        passage = collection.passages[one.passage]
        cosine = float(neighbors.cosines_Q[one.place])
        yield {
            "id": one.id,
            "part": collection.part(one.passage),
            "document": collection.documents[passage.document],
            "passage": passage.id,
            "style": one.style,
            "number": one.candidate["number"],
            "text": one.text,
            "whole": one.candidate["whole"],
            "cut": one.candidate["cut"],
            "p_yes": one.candidate["p_yes"],
            "rank": one.rank,
            "cosine": round(cosine, 6) if cosine == cosine else None,
            "copied": round(one.copied, 4),
            "from_prompt": round(one.from_prompt, 4),
            "fate": one.outcome,
            "broken": list(one.broken),
        }


def training_rows(
    questions: Sequence[Question], collection: Collection, neighbors: NearestPassages, negatives: int, margin: float
) -> Iterator[dict[str, str]]:
    """Yield training rows: an anchor, a positive, and ``negatives`` hard negatives for each kept training question.

    Questions with fewer hard negatives are skipped.

    Hard negatives are the nearest training passages of other documents whose cosine is below that of the positive by at
    least the fraction ``margin`` (NV-Retriever's relative margin, Moreira et al. 2024).
    """
    for one in kept(questions, collection, "train"):
        row = {"anchor": one.text, "positive": collection.passages[one.passage].whole}
        if negatives:
            found = _negatives(one, collection, neighbors, margin)[:negatives]
            if len(found) < negatives:
                continue
            row |= {f"negative_{at}": collection.passages[place].whole for at, place in enumerate(found, start=1)}
        yield row


def _negatives(one: Question, collection: Collection, neighbors: NearestPassages, margin: float) -> list[int]:
    most = float(neighbors.cosines_Q[one.place]) * (1 - margin)
    near = zip(neighbors.nearest_QK[one.place], neighbors.nearest_cosines_QK[one.place], strict=True)
    return [
        int(place) for place, cosine in near if place >= 0 and cosine <= most and collection.part(int(place)) == "train"
    ]


def kept(questions: Sequence[Question], collection: Collection, part: Part) -> list[Question]:
    return [one for one in questions if one.outcome == KEPT and collection.part(one.passage) == part]


def document_rows(collection: Collection) -> Iterator[dict[str, str]]:
    """Yield the training documents as rows, one for each section, with the heading and the passages of the section.

    The rows contain no documents of the dev and held-out splits. `data=text` may therefore train on them.
    """
    own = [one for place, one in enumerate(collection.passages) if collection.part(place) == "train"]
    for (_, heading), passages in groupby(own, key=lambda one: (one.document, one.heading)):
        yield {"title": heading, "text": "\n\n".join(one.text for one in passages)}


def sentence_rows(collection: Collection) -> Iterator[str]:
    """Yield the distinct sentences of the training documents."""
    own = [one.text for place, one in enumerate(collection.passages) if collection.part(place) == "train"]
    yield from dict.fromkeys(sentence for text in own for sentence in SENTENCE_END.split(text) if " " in sentence)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a gzip file. Equal lines give equal bytes."""
    atomic_write(path, gzip.compress("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"), mtime=0))


def write_beir(folder: Path, asked: Sequence[Question], collection: Collection) -> None:
    """Write a folder in BEIR's layout, with all passages of the collection as corpus and ``asked`` as queries."""
    remove(folder)
    corpus = ({"_id": one.id, "title": one.heading, "text": one.text} for one in collection.passages)
    write_rows(folder / "corpus.jsonl", corpus)
    write_rows(folder / "queries.jsonl", ({"_id": one.id, "text": one.text} for one in asked))
    lines = [f"{one.id}\t{collection.passages[one.passage].id}\t1\n" for one in asked]
    (folder / "qrels").mkdir(exist_ok=True)
    atomic_write(folder / "qrels" / "test.tsv", "".join(["query-id\tcorpus-id\tscore\n", *lines]))


def write_sheet(folder: Path, questions: Sequence[Question], collection: Collection, seed: int) -> None:
    """Write the sheet of questions for manual judgment, and the answer key of the sheet.

    Half of the questions on the sheet were kept by the rules, if there are enough. An existing sheet is not changed,
    since it may be partly completed.
    """
    if (folder / SHEET).exists():
        return
    draw = random.Random(f"{seed}/sheet")
    some = [one for one in questions if one.text]
    draw.shuffle(some)
    good, bad = ([one for one in some if (one.outcome == KEPT) is wanted] for wanted in (True, False))
    half = SHEET_QUESTIONS // 2
    number = min(len(good), max(half, SHEET_QUESTIONS - len(bad)))
    drawn = [*good[:number], *bad[: SHEET_QUESTIONS - number]]
    draw.shuffle(drawn)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(SHEET_COLUMNS)
    for place, one in enumerate(drawn, start=1):
        passage = collection.passages[one.passage]
        writer.writerow((place, one.style, *map(cell, (one.text, passage.heading, passage.text)), ""))
    key = {"labels": ["yes", "no"], "key": {str(place): one.id for place, one in enumerate(drawn, start=1)}}
    atomic_write(folder / KEY, json.dumps(key, indent=1).encode())
    atomic_write(folder / SHEET, text.getvalue().encode("utf-8-sig"))  # spreadsheets need the signature
