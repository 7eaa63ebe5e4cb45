"""Corpora from a local server, from a folder and from file URLs: truncated, counted, refused."""

import json
import re
import shlex
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from contrastive_encoders.cli import download_data
from contrastive_encoders.cli.download_data import read_arguments
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.corpora import CORPORA, NLI, WIKI
from contrastive_encoders.datamodules.sources.row_schemas import QA, SENTENCES, TRIPLETS
from contrastive_encoders.io.download import File
from contrastive_encoders.training.checks import check_model_and_data, check_values
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.resolve import resolve
from tests.data import RecordSource

TEXT = "".join(f"Sentence number {n} of the harbour.\n" for n in range(30_000)).encode()
CSV = "sent0,sent1,hard_neg\n" + "".join(f'"A, {n}","None",c{n}\n' for n in range(40))
HOSTED = [name for name, corpus in CORPORA.items() if corpus.pieces]
DOMAINS = ("askubuntu", "cqadupstack", "scidocs", "twitter")


@pytest.fixture
def hosted(tmp_path, server, monkeypatch):
    """Serve small files under the published names, and patch the table to expect their rows."""
    folder = server.folder
    (folder / NLI).write_text(CSV)
    (folder / WIKI).write_bytes(TEXT)
    with zipfile.ZipFile(folder / "data-train.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in DOMAINS:
            archive.writestr(f"data-train/{name}/unsupervised/train.txt", f"One of {name}.\nAnother.\n")
    addresses = []
    for number, rows in enumerate((3, 2)):
        table = pyarrow.table({"question": [f"q{n}" for n in range(rows)], "answer": [f"a{n}" for n in range(rows)]})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
        addresses.append(f"{server.url}/{number}.parquet")
    (folder / "list.json").write_text(json.dumps(addresses))
    at = {NLI: 40, WIKI: 30_000}
    found = {}
    for name in HOSTED:
        corpus = CORPORA[name]
        pieces = [
            one._replace(
                file=File(one.file.name, f"{server.url}/{'list.json' if one.listed else one.file.name}"),
                rows=5 if one.listed else at.get(one.name),
            )
            for one in corpus.pieces
        ]
        found[name] = corpus._replace(pieces=tuple(pieces))
    monkeypatch.setattr(download_data, "CORPORA", found)
    return tmp_path / "corpora"


def got(*overrides):
    return download_data.prepare(read_arguments(["quiet=true", *overrides]))


@pytest.mark.advice("contrastive_encoders.cli.download_data:get#2")
def test_every_corpus_is_read_by_the_data_of_its_kind(hosted, caplog):
    caplog.set_level("INFO")
    assert got(*HOSTED, f"output={hosted}") == 0
    rows = [one.texts for one in RecordSource(str(hosted / "simcse_nli"), TRIPLETS)]
    assert rows == [(f"A, {n}", "None", f"c{n}") for n in range(40)]
    assert len(list(RecordSource(str(hosted / "wiki1m" / WIKI), SENTENCES))) == 30_000
    for name in DOMAINS:
        texts = [one.texts for one in RecordSource(str(hosted / "tsdae" / f"{name}.txt"), SENTENCES)]
        assert texts == [(f"One of {name}.",), ("Another.",)]
    assert len(list(RecordSource(str(hosted / "qa"), QA))) == 3 * 5
    assert re.search(r"\b30,000\b.*\b30,000\b", caplog.text)
    advised = re.findall(r"contrastive-encoders train (.*)", caplog.text)
    assert len(advised) == len(HOSTED)
    for overrides in map(shlex.split, advised):
        for run in resolve(compose([*overrides, "backbone=tiny"])).trainings:
            check_model_and_data(run)
            check_values(run)
    record = json.loads((hosted / "sources.json").read_text())
    assert {NLI, WIKI, "data-train.zip", "gooaq-0.parquet", "gooaq-1.parquet"} <= set(record)


def test_what_broke_off_begins_anew_and_what_is_there_is_not_asked_for(hosted, server, caplog):
    server.break_off_after = [1_000] * 3
    assert got("wiki1m", f"output={hosted}") == 2
    assert "1000 bytes read" in caplog.text
    assert not (hosted / "wiki1m").exists()
    assert got("wiki1m", f"output={hosted}") == 0
    assert (hosted / "wiki1m" / WIKI).read_bytes() == TEXT
    asked = len(server.asked)
    assert got("wiki1m", f"output={hosted}") == 0
    assert len(server.asked) == asked


@pytest.mark.advice("contrastive_encoders.cli.download_data:get#1")
@pytest.mark.parametrize("how", ["folder", "file URL", "mirror"])
def test_files_that_somebody_brought(hosted, server, tmp_path, how):
    """The files are given as a folder or under one address, with the names that the message lists."""
    for name in ("gooaq", "eli5", "yahoo"):
        (server.folder / f"{name}.json").write_text((server.folder / "list.json").read_text())
        for number in range(2):
            (server.folder / f"{name}-{number}.parquet").write_bytes((server.folder / f"{number}.parquet").read_bytes())
    source = {"folder": server.folder, "file URL": server.folder.as_uri(), "mirror": server.url}[how]
    asked = len(server.asked)
    assert got("qa", "tsdae", "wiki1m", f"output={hosted}", f"download_mirror={source}") == 0
    assert (len(server.asked) == asked) == (how != "mirror")
    assert len(list(RecordSource(str(hosted / "qa"), QA))) == 15


@pytest.mark.advice("contrastive_encoders.cli.download_data:obtain")
def test_another_number_of_rows_is_refused_until_it_is_asked_for(hosted, server, caplog):
    (server.folder / NLI).write_text(CSV.rpartition('"A')[0])
    assert got("simcse_nli", f"output={hosted}") == 2
    assert re.search(r"\b40 .*\b39\b.* rows=any", caplog.text)
    assert not (hosted / "simcse_nli").exists()
    assert got("simcse_nli", f"output={hosted}", "rows=any") == 0
    assert len(list(RecordSource(str(hosted / "simcse_nli"), TRIPLETS))) == 39


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        (WIKI, b"", WIKI),
        ("list.json", b"<html>", "JSON list"),
        ("0.parquet", b"PAR1 cut", "gooaq-0.parquet"),
    ],
)
def test_what_a_host_sends_instead_is_not_taken(hosted, server, caplog, name, data, says):
    (server.folder / name).write_bytes(data)
    assert got(*HOSTED, f"output={hosted}") == 2
    assert says in caplog.text
    there = {path.name for path in hosted.glob("*/*") if path.parent.name != "downloads"}
    assert not there & ({WIKI} if name == WIKI else {"gooaq-0.parquet", "gooaq-1.parquet", "eli5-0.parquet"})
    assert there >= {NLI}


def test_an_archive_that_points_outside_is_refused(hosted, server, caplog):
    with zipfile.ZipFile(server.folder / "data-train.zip", "a") as archive:
        archive.writestr("../askubuntu/unsupervised/train.txt", "bad")
    assert got("tsdae", f"output={hosted}") == 2
    assert caplog.text.count("askubuntu/unsupervised/train.txt") == 1


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], "^NAME=null: .*simcse_nli"),
        (["wiki"], "^NAME=wiki: .*wiki1m"),
        (["qa", "outptu=x"], r"outptu=x: .*\boutput\b"),
        (["qa", "rows=some"], "^rows=some: .*published, any"),
        (["qa", "download_mirror=/no/such"], "^download_mirror=/no/such: "),
        (["qa", "output=/dev/null/x"], "^output=/dev/null/x: "),
    ],
)
def test_wrong_arguments_are_refused(overrides, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=says):
        got(*overrides)
