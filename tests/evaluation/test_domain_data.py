"""The on-disk tables of the domain tasks: small ones written here, and the published ones if they are available."""

import re
from pathlib import Path

import numpy as np
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.catalog import ENTRIES
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table, table
from contrastive_encoders.evaluation.tasks.cqadupstack import FORUMS


def write(root: Path, name: str, *rows: str) -> None:
    path = root / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row.split("|")) + "\n" for row in rows), encoding="utf-8")


def read(root: Path, name: str):
    return ENTRIES[name].read(root, name, EvaluateConfig())


# ------------------------------------------------------------------------------------- AskUbuntu


@pytest.fixture
def askubuntu(tmp_path) -> Path:
    write(
        tmp_path,
        "AskUbuntu/test",
        "query_id|positive_ids|candidate_ids",
        "1|3 4|2 3 4",
        "2||1 3 4",  # no similar question: not a query
        "5|1|4 1",
    )
    titles = {1: "no sound", 2: "wifi lost", 3: "sound gone", 4: "", 5: "no sound at all", 6: "not used"}
    write(tmp_path, "AskUbuntu/texts", "id|title|body", *(f"{i}|{title}|body {i}" for i, title in titles.items()))
    return tmp_path


def test_askubuntu_has_titles_in_the_order_of_the_file(askubuntu):
    first, second = read(askubuntu, "askubuntu").queries
    assert first.query == "no sound"
    assert first.texts == ["wifi lost", "sound gone", "."]
    assert first.relevant == [False, True, True]
    assert (second.query, second.texts, second.relevant) == ("no sound at all", [".", "no sound"], [False, True])


@pytest.mark.parametrize(("text", "wanted"), [("body", "body 1"), ("title+body", "no sound body 1")])
def test_askubuntu_with_other_texts(askubuntu, text, wanted):
    assert (
        ENTRIES["askubuntu"].read(askubuntu, "askubuntu", EvaluateConfig(askubuntu_text=text)).queries[0].query
        == wanted
    )


@pytest.mark.parametrize(
    ("row", "location", "key", "value"),
    [
        ("1|3|2 3 99", "test.tsv:2", None, "99"),
        ("1|6|2 3", "test.tsv:2", "positive_ids", None),
        ("1||2 3", "test.tsv", "positive_ids", None),
    ],
)
def test_damaged_askubuntu(askubuntu, row, location, key, value):
    write(askubuntu, "AskUbuntu/test", "query_id|positive_ids|candidate_ids", row)
    with pytest.raises(InputError) as refused:
        read(askubuntu, "askubuntu")
    assert refused.value.location == str(askubuntu / "AskUbuntu" / location)
    assert (refused.value.key, refused.value.value) == (key, value)


def test_the_published_ids_have_189_and_186_queries(real_data, tmp_path):
    """Texts are invented: the title of a question is its id."""
    ids = set()
    for split in ("dev", "test"):
        source = real_data / "AskUbuntu_ids" / f"{split}.ids.tsv"
        if not source.is_file():
            pytest.skip(f"{source} is not there")
        write(tmp_path, "AskUbuntu/" + split)
        table(tmp_path, "AskUbuntu/" + split).write_bytes(source.read_bytes())
        for row in read_table(source, ["query_id", "candidate_ids"]):
            ids |= {row.values["query_id"], *row.values["candidate_ids"].split()}
    write(tmp_path, "AskUbuntu/texts", "id|title|body", *(f"{i}|title {i}|" for i in sorted(ids)))
    dev, test = read(tmp_path, "askubuntu-dev"), read(tmp_path, "askubuntu")
    assert (len(dev.queries), len(test.queries)) == (189, 186)
    assert {len(one.texts) for one in (*dev.queries, *test.queries)} == {20}


# ----------------------------------------------------------------------------------- CQADupStack


@pytest.fixture
def cqadupstack(tmp_path) -> Path:
    rows = [f"{forum}|{i}|{forum} text {i}" for forum in FORUMS for i in range(6)]
    write(tmp_path, "CQADupStack/corpus", "forum|id|text", *rows)
    for split in ("valid", "test"):
        asked = [row for forum in FORUMS for row in (f"{forum}|0|3 1", f"{forum}|1|0", f"{forum}|5|4 2")]
        write(tmp_path, f"CQADupStack/{split}", "forum|query_id|relevant_ids", *asked)
    return tmp_path


def test_a_forum_s_documents_are_all_its_questions_but_the_queries(cqadupstack):
    android, *rest = read(cqadupstack, "cqadupstack").forums
    assert [android.name, *(forum.name for forum in rest)] == FORUMS
    assert android.queries == ["android text 0", "android text 1", "android text 5"]
    assert android.documents == ["android text 2", "android text 3", "android text 4"]
    assert android.relevant == [[1], [], [2, 0]]  # queries are not documents, even if they are duplicates
    assert android.duplicates == [2, 1, 2]


@pytest.mark.parametrize(
    ("rows", "location", "value"),
    [
        (["gis|77|3"], "test.tsv:2", ["77", "gis"]),
        (["golf|1|3"], "test.tsv:2", ["1", "golf"]),
        ([], "test.tsv", []),
    ],
)
def test_damaged_cqadupstack(cqadupstack, rows, location, value):
    write(cqadupstack, "CQADupStack/test", "forum|query_id|relevant_ids", *rows)
    with pytest.raises(InputError) as refused:
        read(cqadupstack, "cqadupstack")
    assert refused.value.location == str(cqadupstack / "CQADupStack" / location)
    assert re.findall(r"'(\w+)'", refused.value.value) == value


# -------------------------------------------------------------------------- TwitterPara, BIOSSES


def test_votes_out_of_range_and_empty_tables(tmp_path):
    header = "votes_of_6|sentence1|sentence2"
    write(tmp_path, "TwitterURL/test_with_debatable", header, "7|a|b")
    path = tmp_path / "TwitterURL" / "test_with_debatable.tsv"
    with pytest.raises(InputError) as refused:
        read(tmp_path, "twitterurl")
    assert (refused.value.location, refused.value.key, refused.value.value) == (f"{path}:2", "votes_of_6", "'7'")
    write(tmp_path, "TwitterURL/test_with_debatable", header)
    with pytest.raises(InputError) as refused:
        read(tmp_path, "twitterurl")
    assert (refused.value.location, refused.value.key) == (str(path), None)


def test_the_published_twitter_sets_agree_with_their_labels(real_data):
    turl = read(real_data, "twitterurl").pairs
    labels = [
        (row.values["sentence1"], row.values["sentence2"], row.values["label"] == "1")
        for row in read_table(real_data / "TwitterURL/test.tsv", ["sentence1", "sentence2", "label"])
    ]
    decided = [
        (left, right, votes > 3)
        for left, right, votes in zip(turl.left, turl.right, turl.gold, strict=True)
        if votes != 3
    ]
    assert len(turl.gold) == 10120
    assert decided == labels
    pit = read(real_data, "pit").pairs
    given = [row.values["label"] for row in read_table(real_data / "PIT2015/test.tsv", ["label"])]
    assert len(given) == 972
    assert given == [{-1: "0", 0: "-1", 1: "1"}[int(np.sign(score - 3))] for score in pit.gold]
