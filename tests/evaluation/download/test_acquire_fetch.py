"""Downloads from a server that has the authors' archives, made from a few rows of the test."""

import pickle
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.download import registry
from contrastive_encoders.evaluation.download.fetch import fetch
from contrastive_encoders.evaluation.download.registry import listing
from tests.evaluation.download.conftest import TABLES

OWN = {
    "STS12/test": [
        ["MSRpar", "The U.S. won't pay.", 'It\'s "over" in the U.S.', "2.75"],
        ["MSRvid", "A man plays.", "A man is playing a guitar.", "3"],
        ["SMTeuroparl", "I vote – gladly.", "We vote.", "0"],
        ["surprise.OnWN", "a thing", "an (odd) thing", "4.5"],
        ["surprise.SMTnews", "News, at last.", "Old news.", "5"],
    ],
    "STS16/test": [
        [subset, f"{subset} Left.", f"{subset} Right!", "1"]
        for subset in ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")
    ],
    "STSBenchmark/train": [["main-news", "MSRpar", "2012test", "0001", "Don't go.", "Do not go.", "4.2"]],
    "STSBenchmark/dev": [["main-news", "MSRpar", "2012test", "0002", 'A "quote.', "No quote.", "0.5"]],
    "STSBenchmark/test": [["main-captions", "images", "2014", "0003", "A dog.", "A Dog!", "5"]],
    "SICK/train": [["1", "A Man isn't here", "Nobody is here", "3.6", "NEUTRAL"]],
    "SICK/dev": [["2", "Kids play", "Kids are playing", "4.9", "ENTAILMENT"]],
    "SICK/test": [["3", "It rains", "It doesn't rain", "2", "CONTRADICTION"], ["6", "A, b", "B", "1", "NEUTRAL"]],
    "BIOSSES/test": [["1", 'Cells "divide" here.', "Cells divide.", "3.2"]],
    "MR/all": [["1", "it's a café – no ' doubt"], ["1", "good ."], ["0", "i'll say : bad"]],
    "CR/all": [["1", "works"], ["1", ""], ["0", 'can\'t "work"']],
    "SUBJ/all": [["1", "fine\x81"], ["0", "he leaves ."]],
    "MPQA/all": [["1", "people's"], ["0", "cannot"]],
    "SST2/train": [["1", "a fine phrase"], ["0", "poor"]],
    "SST2/dev": [["1", "crème brûlée"]],
    "SST2/test": [["0", "no"]],
    "SST5/train": [["4", "great"], ["0", "dire"]],
    "SST5/dev": [["2", "middling"]],
    "SST5/test": [["3", "rather good"]],
    "TREC/train": [["DESC", "manner", "How does ` it ' work in S\xe3o Paulo ?"]],
    "TREC/test": [["NUM", "dist", "What 's far ?"]],
    "MRPC/train": [["1", "10", "11", 'He said "yes" .', "Yes , he said ."]],
    "MRPC/test": [["0", "12", "13", "No .", "Nope ."]],
    "PROBING/length": [["tr", "0", "one two"], ["va", "1", "three"], ["te", "0", "four"]],
    "PROBING/tense": [["tr", "PAST", "went"], ["te", "PRES", "goes"]],
    "AskUbuntu/dev": [["7", "8", "9 8 10"]],
    "AskUbuntu/test": [["8", "", "7 9"], ["9", "7 10", "10 7 8"]],
    "AskUbuntu/texts": [[str(key), f"title {key}", "" if key == 9 else "body"] for key in range(7, 11)],
    "CQADupStack/corpus": [
        ["gis", "1", "map"],
        ["gis", "2", "maps"],
        ["tex", "1", "font\tor\nbox"],
        ["tex", "3", "fonts"],
    ],
    "CQADupStack/valid": [["gis", "2", "1"]],
    "CQADupStack/test": [["gis", "1", "2"], ["tex", "1", "3"]],
    "TwitterURL/test_with_debatable": [["6", "same", "the same"], ["3", "so", "so so"], ["0", "one", "other"]],
    "PIT2015/test": [
        ["51", "8 Mile", "1", "4", "a", "b"],
        ["51", "8 Mile", "-1", "3", "a", "c"],
        ["52", "x", "0", "0", "d", "e"],
    ],
}
SENTEVAL = {  # Moses (-no-escape) and lower case, cased for SICK; cat -v and the treebank script; no quotes
    "STS12/test.senteval": [
        ["MSRpar", "the u.s. won 't pay .", 'it \'s " over " in the u.s .', "2.75"],
        ["MSRvid", "a man plays .", "a man is playing a guitar .", "3"],
        ["SMTeuroparl", "i vote – gladly .", "we vote .", "0"],
        ["surprise.OnWN", "a thing", "an ( odd ) thing", "4.5"],
        ["surprise.SMTnews", "news , at last .", "old news .", "5"],
    ],
    "STSBenchmark/train.senteval": [["main-news", "MSRpar", "2012test", "0001", "don 't go .", "do not go .", "4.2"]],
    "SICK/train.senteval": [["1", "A Man isn 't here", "Nobody is here", "3.6", "NEUTRAL"]],
    "MR/all.senteval": [["1", "it 's a cafM-i M-^V no ' doubt"], ["1", "good ."], ["0", "i 'll say : bad"]],
    "CR/all.senteval": [["1", "works"], ["1", ""], ["0", "ca n't `` work ''"]],
    "SUBJ/all.senteval": [["1", "fineM-^A"], ["0", "he leaves ."]],
    "MPQA/all.senteval": [["1", "people 's"], ["0", "can not"]],
    "TREC/train.senteval": [["DESC", "manner", "How does  it  work in S\xe3o Paulo ?"]],
}
FORMED = {name: OWN[name.removesuffix(".senteval")] for name in TABLES if name.removesuffix(".senteval") in OWN}


@pytest.fixture
def mirror(server, archives, small):
    archives.official(server.folder, OWN)
    small(FORMED)
    return server


def tables(root, archives):
    names = {str(path.relative_to(root)).removesuffix(".gz").removesuffix(".tsv") for path in root.rglob("*.tsv*")}
    return {name: archives.read(TABLES[name].path(root)) for name in names - {"downloads/BIOSSES/all"}}


def test_every_set_from_a_mirror(tmp_path, mirror, archives):
    root = tmp_path / "root"
    report = fetch(root, source=mirror.url, quiet=True)
    found = tables(root, archives)
    assert set(found) == set(FORMED)
    expected = {**OWN, **SENTEVAL}
    # a tab and a line break inside a text would split cells and rows
    expected["CQADupStack/corpus"] = [
        [cell.replace("\t", " ").replace("\n", " ") for cell in row] for row in OWN["CQADupStack/corpus"]
    ]
    for name, rows in expected.items():
        assert found[name][0] == list(TABLES[name].columns)
        assert found[name][1:] == rows, name
    states = {row.table: row.state for row in report.rows}
    assert {name for name, state in states.items() if state == "fetched"} == set(found)
    assert all(states[name] == "failed" for name in ("SNLI/train", "COCO/test", "PROBING/depth"))
    assert not report.ok


def test_what_is_there_is_kept_and_not_asked_for(tmp_path, mirror):
    assert fetch(tmp_path, ["STS12", "MR"], mirror.url, quiet=True).ok
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tsv")}
    mirror.asked.clear()
    again = fetch(tmp_path, ["STS12", "MR"], mirror.url, quiet=True)
    assert again.ok
    assert {row.state for row in again.rows} == {"kept"}
    assert not mirror.asked
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tsv")}
    (tmp_path / "STS12/test.senteval.tsv").unlink()  # made again from the raw table, without a server
    row = next(row for row in fetch(tmp_path, ["STS12"], mirror.url, quiet=True).rows if row.state != "kept")
    assert re.fullmatch("5 .* STS12/test", row.detail)
    assert not mirror.asked


def test_tasks_and_suites_name_sets_too(tmp_path, mirror):
    report = fetch(tmp_path, ["mrpc", "stsb-dev@senteval"], mirror.url, quiet=True)
    assert {row.table.partition("/")[0] for row in report.rows} == {"MRPC", "STSBenchmark"}
    assert {row.table for row in listing(tmp_path, ["sst2"]).rows if row.state == "there"} == set()
    assert len(listing(tmp_path, ["MRPC"]).rows) == 2
    with pytest.raises(InputError) as refused:
        fetch(tmp_path, ["mrcp"], mirror.url)
    assert (refused.value.key, refused.value.value) == ("suite", "mrcp")
    assert "mrpc" in refused.value.hint


@pytest.mark.advice("contrastive_encoders.evaluation.download.fetch:_failed")
def test_the_next_source_is_tried_and_the_report_says_which(tmp_path, mirror, archives):
    (mirror.folder / "STS2016-en-test.zip").rename(mirror.folder / "sts2016-english-with-gs-v1.0.zip")
    (mirror.folder / "Stsbenchmark.tar.gz").write_bytes(b"<html>moved</html>")
    archives.senteval_tar(
        mirror.folder / "senteval.tar", {f"{name}.senteval": rows for name, rows in OWN.items() if "STSB" in name}
    )
    rows = {row.table: row for row in fetch(tmp_path, ["STS16", "STSBenchmark"], mirror.url, quiet=True).rows}
    assert rows["STS16/test"].state == "fetched"
    assert re.search(r"SemEval.*STS2016-en-test\.zip: 404 Client Error", rows["STS16/test"].detail)
    assert rows["STSBenchmark/dev"].state == "failed"
    assert re.search("(?s)Stsbenchmark.*404.*download_mirror=FOLDER", rows["STSBenchmark/dev"].detail)
    assert rows["STSBenchmark/dev.senteval"].state == "fetched"
    [advised] = re.findall(r"put (\S+?),? .* download_mirror=FOLDER", rows["STSBenchmark/dev"].detail)
    (tmp_path / "here").mkdir()
    archives.official(tmp_path / "here", OWN)
    assert (tmp_path / "here" / advised).is_file()
    rows = fetch(tmp_path, ["STSBenchmark"], str(tmp_path / "here"), quiet=True).rows
    assert {row.state for row in rows if row.table == "STSBenchmark/dev"} == {"fetched"}


@pytest.mark.parametrize("place", ["", "downstream", "data/downstream"])
def test_an_unpacked_senteval_folder_is_a_source(tmp_path, archives, small, place):
    import tarfile

    small(FORMED)
    rows = {"STS12/test.senteval": SENTEVAL["STS12/test.senteval"], "MR/all.senteval": SENTEVAL["MR/all.senteval"]}
    archives.senteval_tar(tmp_path / "senteval.tar", rows)
    (tmp_path / "source" / place).mkdir(parents=True)
    with tarfile.open(tmp_path / "senteval.tar") as archive:
        archive.extractall(tmp_path / "source" / place, filter="data")
    fetch(tmp_path / "root", ["STS12", "MR"], str(tmp_path / "source"), quiet=True)
    assert tables(tmp_path / "root", archives) == {
        name: [list(TABLES[name].columns), *content] for name, content in rows.items()
    }


def test_pairs_without_a_gold_label_leave_snli(tmp_path, archives, small):
    header = "gold_label binary1 binary2 parse1 parse2 sentence1 sentence2 captionID"
    (tmp_path / "source").mkdir()
    rows = [["entailment", *"bbpp", "A man isn't here.", "Nobody.", "x"], ["-", *"bbpp", "Odd.", "Odder.", "x"]]
    data = "".join("\t".join(row) + "\n" for row in [header.split(), *rows]).encode()
    archives.zip(
        tmp_path / "source" / "snli_1.0.zip",
        {f"snli_1.0/snli_1.0_{split}.txt": data for split in ("train", "dev", "test")},
    )
    expected = [["entailment", "A man is n't here .", "Nobody ."]]
    small({f"SNLI/{split}": expected for split in ("train", "dev", "test")})
    assert fetch(tmp_path / "root", ["snli"], str(tmp_path / "source"), quiet=True).ok
    assert archives.read(tmp_path / "root/SNLI/train.tsv.gz")[1:] == expected


def test_coco_pickles_become_tables_and_vectors(tmp_path, archives, monkeypatch):
    origin = registry.ORIGINS["COCO"]
    small = tuple(table._replace(rows=3 * (5 if table.format == "tsv" else 1)) for table in origin.tables)
    monkeypatch.setitem(registry.ORIGINS, "COCO", origin._replace(tables=small))
    (tmp_path / "source/COCO").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (tmp_path / "source/COCO" / f"{split}.pkl").write_bytes(archives.coco(3, 4))
    assert fetch(tmp_path / "root", ["coco"], str(tmp_path / "source"), quiet=True).ok
    rows = archives.read(tmp_path / "root/COCO/valid.tsv")
    assert rows[0] == ["image", "caption"]
    assert rows[6:11] == [["1", f"caption {key}"] for key in range(10, 15)]  # the first five of six
    vectors = load_file(tmp_path / "root/COCO/valid.safetensors")["images"]
    np.testing.assert_array_equal(vectors, np.repeat([[0.0], [1], [2]], 4, axis=1).astype(np.float32))
    assert vectors.dtype == np.float32


class Wicked:
    def __reduce__(self):
        return (eval, ("__import__('pathlib').Path('was-here').touch()",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path, archives, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source/COCO").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (tmp_path / "source/COCO" / f"{split}.pkl").write_bytes(pickle.dumps({"features": Wicked()}))
    row = fetch(tmp_path / "root", ["COCO"], str(tmp_path / "source"), quiet=True).rows[0]
    assert row.state == "failed"
    assert "builtins.eval" in row.detail
    assert not (tmp_path / "was-here").exists()
