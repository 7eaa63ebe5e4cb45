"""The archives of the sets as their authors laid them out, made from given rows, and a server for them."""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from contrastive_encoders.evaluation.download import registry
from contrastive_encoders.evaluation.download.registry import ORIGINS

TABLES = {table.key: table for origin in ORIGINS.values() for table in origin.tables}
SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[4] / "shared" / "data")) / "eval"
SPLITS = ("train", "dev", "test")
Rows = Mapping[str, Sequence[Sequence[str]]]
Files = dict[str, bytes]

YEARS = {  # archive, folder inside, start of the files' names
    "STS12": ("STS2012-en-test.zip", "test-gold", "STS"),
    "STS13": ("STS2013-en-test.zip", "test-gs", "STS"),
    "STS14": ("STS2014-en-test.zip", "sts-en-test-gs-2014", "STS"),
    "STS15": ("STS2015-en-test.zip", "test_evaluation_task2a", "STS"),
    "STS16": ("STS2016-en-test.zip", "sts2016-english-with-gs-v1.0", "STS2016"),
}
BINARY = {
    "MR": ("rt10662", "rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("customerr", "custrev.pos", "custrev.neg"),
    "SUBJ": ("subj", "subj.subjective", "subj.objective"),
    "MPQA": ("mpqa", "mpqa.pos", "mpqa.neg"),
}
HEADERS = {
    "SICK": ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"],
    "MRPC": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    "BIOSSES": ["", "sentence1", "sentence2", "score"],
}
UNDEFINED = {0x81, 0x8D, 0x8F, 0x90, 0x9D}  # in Windows-1252


def windows(text: str) -> bytes:
    return b"".join(bytes([ord(c)]) if ord(c) in UNDEFINED else c.encode("cp1252") for c in text)


def lines(rows: Sequence[Sequence[str]], end: str = "\n", between: str = "\t") -> bytes:
    return "".join(between.join(row) + end for row in rows).encode()


def zipped(path: Path, files: Files) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def tarred(path: Path, files: Files) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def official(folder: Path, rows: Rows) -> None:
    """Write the authors' archives of every set of which ``rows`` has tables."""
    archives: dict[str, Files] = {}
    for name, (archive, *_) in YEARS.items():
        if f"{name}/test" in rows:
            archives[archive] = year_files(name, rows[f"{name}/test"])
    if "STSBenchmark/test" in rows:
        csv = {f"stsbenchmark/sts-{split}.csv": benchmark(rows[f"STSBenchmark/{split}"]) for split in SPLITS}
        archives["Stsbenchmark.tar.gz"] = {"stsbenchmark/readme.txt": b"read me", **csv}
    if "SICK/test" in rows:
        for split, part in zip(SPLITS, ("train", "trial", "test_annotated"), strict=True):
            data = lines([HEADERS["SICK"], *rows[f"SICK/{split}"]], "\r\n")
            archives[f"sick_{part}.zip"] = {f"SICK_{part}.txt": data, "readme.txt": b"read me"}
    binary = {
        f"data/{inside}/{file}": b"".join(windows(text) + b"\n" for one, text in rows[f"{name}/all"] if one == label)
        for name, (inside, *files) in BINARY.items()
        if f"{name}/all" in rows
        for label, file in zip("10", files, strict=True)
    }
    if binary:
        archives["datasmall_NB_ACL12.zip"] = {**binary, "__MACOSX/data/._subj": b"litter"}
    if of_useb := useb(rows):
        archives["data-eval.zip"] = of_useb
    folder.mkdir(parents=True, exist_ok=True)
    for name, files in archives.items():
        (zipped if name.endswith(".zip") else tarred)(folder / name, files)
    for name, data in single_files(rows):
        if not data:
            continue
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


def year_files(name: str, rows: Sequence[Sequence[str]]) -> Files:
    _, inside, prefix = YEARS[name]
    files = {}
    # STS15 and 16 contain many pairs that were not rated; in 16, the sources follow the texts
    extra = ["source a", "source b"] if name == "STS16" else []
    for subset in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == subset]
        pairs = [[left, right, *extra] for _, left, right, _ in own] + [["not", "rated", *extra]]
        files[f"{inside}/{prefix}.input.{subset}.txt"] = lines(pairs)
        files[f"{inside}/{prefix}.gs.{subset}.txt"] = lines([row[3:] for row in own]) + b"\n"
    return files


def benchmark(rows: Sequence[Sequence[str]]) -> bytes:
    """Write rows, some of which name their sources in further columns; the score precedes the texts."""
    return lines(
        [[*row[:4], f"{float(row[6]):.4f}", row[4], row[5], *["source"] * (at % 3)] for at, row in enumerate(rows)]
    )


def single_files(rows: Rows) -> Iterator[tuple[str, bytes]]:
    """Write sets whose authors have no archive, one file for each table."""
    for split in SPLITS:
        if found := rows.get(f"SST2/{split}"):
            yield f"sentiment-{split}", lines([[text, label] for label, text in found])
        yield f"stsa.fine.{split}", lines(rows.get(f"SST5/{split}", []), between=" ")
    for table, name in {"TREC/train": "train_5500.label", "TREC/test": "TREC_10.label"}.items():
        data = lines([[f"{label}:{fine}", text] for label, fine, text in rows.get(table, [])], between=" ")
        yield name, data.decode().encode("latin-1")
    for split in ("train", "test"):
        if found := rows.get(f"MRPC/{split}"):
            yield f"msr_paraphrase_{split}.txt", b"\xef\xbb\xbf" + lines([HEADERS["MRPC"], *found], "\r\n")
    if found := rows.get("BIOSSES/test"):
        quoted = [
            [key, *('"' + text.replace('"', '""') + '"' for text in texts), score] for key, *texts, score in found
        ]
        yield "BIOSSES/all.tsv", lines([HEADERS["BIOSSES"], *quoted])
    for table, file in {"PROBING/length": "sentence_length", "PROBING/tense": "past_present"}.items():
        if table in rows:
            yield f"probing/{file}.txt", lines(rows[table])


def useb(rows: Rows) -> Files:
    files: Files = {}
    if "AskUbuntu/texts" in rows:
        files["askubuntu/text_tokenized.txt"] = lines(rows["AskUbuntu/texts"])
        for split in ("dev", "test"):
            files[f"askubuntu/{split}.txt"] = lines([shuffled(*row) for row in rows[f"AskUbuntu/{split}"]])
    if "CQADupStack/corpus" in rows:
        corpus: dict[str, dict[str, str]] = {}
        for forum, key, text in rows["CQADupStack/corpus"]:
            corpus.setdefault(forum, {})[key] = text
        splits: dict[str, dict[str, dict[str, list[str]]]] = {"train": {}, "valid": {}, "test": {}}
        for split in ("valid", "test"):
            for forum, query, relevant in rows[f"CQADupStack/{split}"]:
                splits[split].setdefault(forum, {})[query] = relevant.split()
        files["cqadupstack/corpus.json"] = json.dumps(corpus).encode()
        files["cqadupstack/retrieval_split.json"] = json.dumps(splits).encode()
    if "TwitterURL/test_with_debatable" in rows:
        pairs = [[a, b, f"({votes}, 6)", "https://t.co/x"] for votes, a, b in rows["TwitterURL/test_with_debatable"]]
        files["twitterpara/Twitter_URL_Corpus_test.txt"] = lines(pairs)
    if "PIT2015/test" in rows:
        rated = [[number, topic, a, b, score, "tags", "tags"] for number, topic, _, score, a, b in rows["PIT2015/test"]]
        files["twitterpara/test.data"] = lines(rated)
    return {f"data-eval/{name}": data for name, data in files.items()}


def shuffled(query: str, similar: str, candidates: str) -> list[str]:
    """Return a line of AskUbuntu: candidates not in BM25's order, followed by their scores."""
    ids = candidates.split()
    scores = [f"{100 - at / 7:.5f}" for at in range(len(ids))]
    turned = [*range(1, len(ids)), 0] if ids else []
    return [query, similar, " ".join(ids[at] for at in turned), " ".join(scores[at] for at in turned)]


def senteval_tar(path: Path, rows: Rows) -> None:
    """Write SimCSE's archive: the sets as SentEval's script leaves them, with tables in that form."""
    files: Files = {}
    for name in YEARS:
        found = rows.get(f"{name}/test.senteval", [])
        for subset in dict.fromkeys(row[0] for row in found):
            own = [row for row in found if row[0] == subset]
            files[f"STS/{name}-en-test/STS.input.{subset}.txt"] = lines([row[1:3] for row in own])
            files[f"STS/{name}-en-test/STS.gs.{subset}.txt"] = lines([row[3:] for row in own])
    if "STSBenchmark/test.senteval" in rows:
        for split in SPLITS:
            files[f"STS/STSBenchmark/sts-{split}.csv"] = benchmark(rows[f"STSBenchmark/{split}.senteval"])
    for name, (_, *of_label) in BINARY.items():
        for label, file in zip("10", of_label, strict=True) if f"{name}/all.senteval" in rows else ():
            texts = [[text, ""] for one, text in rows[f"{name}/all.senteval"] if one == label]
            files[f"{name}/{file}"] = lines(texts, between=" ")
    if "SNLI/test" in rows:
        for split in SPLITS:
            for column, part in enumerate(("labels", "s1", "s2")):
                files[f"SNLI/{part}.{split}"] = lines(
                    [row[column : column + 1] for row in rows.get(f"SNLI/{split}", [])]
                )
    tarred(path, files)


def coco_pickle(images: int, width: int) -> bytes:
    """Write a pickle like SentEval's: from Python 2, six captions for some images, texts and embeddings by number."""
    ids = {image: [image * 10 + at for at in range(5 + image % 2)] for image in range(images)}
    return pickle.dumps(
        {
            "features": {image: np.full(width, image, dtype=np.float64) for image in range(images)},
            "image_to_caption_ids": ids,
            "captions": {key: {"cleaned_caption": f"caption {key}"} for keys in ids.values() for key in keys},
        },
        protocol=2,
    )


def read(path: Path) -> list[list[str]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line.split("\t") for line in data.decode().split("\n")[:-1]]


@pytest.fixture(scope="session")
def archives() -> SimpleNamespace:
    """Return the writers of the archives, and a reader of the resulting tables."""
    return SimpleNamespace(official=official, senteval_tar=senteval_tar, coco=coco_pickle, read=read, zip=zipped)


@pytest.fixture
def small(monkeypatch) -> Callable[[Rows], None]:
    """``small(rows)`` sets the official number of rows of each table to that of ``rows``."""

    def shrink(rows: Rows) -> None:
        for name, origin in list(ORIGINS.items()):
            tables = tuple(
                table._replace(rows=len(rows[table.name]), labels={}, empty=None) if table.name in rows else table
                for table in origin.tables
            )
            monkeypatch.setitem(registry.ORIGINS, name, origin._replace(tables=tables))

    return shrink


@pytest.fixture(scope="session")
def real_rows() -> dict[str, list[list[str]]]:
    """Return the published tables, in the columns of a downloaded table."""
    if not (SHARED / "STS12").is_dir():
        pytest.skip(f"the published sets are not in {SHARED.parent}; set SHARED_DATA")
    found = {}
    for name, table in TABLES.items():
        path = table.path(SHARED)
        if path.is_file():
            header, *rows = read(path)
            at = [header.index(column) for column in table.columns]
            found[name] = [[row[column] for column in at] for row in rows]
    return found
