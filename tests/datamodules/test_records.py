"""Rows are read from every format unchanged, and every error of a file is named."""

import csv
import json
import math
import re
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import NLI, PAIRS, QA, SENTENCES, TRIPLETS
from tests.data import RecordSource


def write(path, names, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file).writerows([names, *rows])
        else:
            file.writelines(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    return path


def texts_of(source):
    return [record.texts for record in source]


def refused(path, kind, **options):
    with pytest.raises(InputError) as caught:
        list(RecordSource(path, kind, **options))
    return str(caught.value)


def test_a_header_between_semicolons_is_named_with_what_mends_it(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("frage;antwort\nWas?;Das, und das.\n", encoding="utf-8")
    assert re.search(r"'frage', 'antwort'.*data\.columns=\[frage,antwort\]", refused(path, QA))
    assert [record.texts for record in RecordSource(path, QA, columns=["frage", "antwort"])] == [
        ("Was?", "Das, und das.")
    ]


@pytest.mark.parametrize(
    "names", [(" question", "answer "), ("Größe", "sep="), ('say "why"', "it's {so}\\"), ("true", "1"), ("a.b", "C-d")]
)
def test_the_names_that_a_message_advises_are_read_by_shell_and_hydra_as_those_of_the_file(tmp_path, names):
    rows = [{names[0]: "where?", names[1]: "here"}]
    (tmp_path / "qa.jsonl").write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        list(RecordSource(tmp_path / "qa.jsonl", QA))
    advice = str(caught.value).partition("in the order of question, answer: ")[2].partition("; inside of another")[0]
    (override,) = OverridesParser.create().parse_overrides(shlex.split(advice))
    columns = OmegaConf.to_container(OmegaConf.create({"columns": override.value()}))["columns"]
    assert tuple(columns) == names
    assert [one.texts for one in RecordSource(tmp_path / "qa.jsonl", QA, columns=columns)] == [("where?", "here")]


def test_a_column_that_is_named_by_a_number_is_no_text_of_a_pair(tmp_path):
    """This happens with the columns that pandas writes for a table without a header, plus one more column."""
    path = tmp_path / "qa.csv"
    path.write_text("question,answer,1\nwhere?,here,x\n")
    assert [record.texts for record in RecordSource(path, QA)] == [("where?", "here")]
    path.write_text("0,1\nwhere?,here\n")
    assert "expected question, answer" in refused(path, QA)


def test_another_separator_and_a_missing_header_are_seen_by_the_columns_that_are_said(tmp_path):
    (tmp_path / "hash.csv").write_text("question#answer\nWhat?#That.\n")
    assert re.search("'question#answer'.*data.columns=", refused(tmp_path / "hash.csv", QA))
    assert "model=simcse" in refused(tmp_path / "hash.csv", QA)
    (tmp_path / "two.csv").write_text("Frage;Antwort\nWas?;Das.\n")
    assert "model=simcse" not in refused(tmp_path / "two.csv", QA)
    (tmp_path / "bare.csv").write_text(f"What is it?,{'It is that. ' * 20}\nAnd this?,This.\n")
    said = refused(tmp_path / "bare.csv", QA)
    assert len(said) < 600


def test_the_files_of_stsb_have_pairs_with_ratings(tmp_path):
    path = tmp_path / "sts-train.csv"
    path.write_text("main-captions\tMSRvid\t2012test\t0024\t1.000\tA.\tB, b.\n")
    assert [(record.texts, record.label) for record in RecordSource(path, PAIRS)] == [(("A.", "B, b."), 1.0)]
    line = "main-captions\tMSRvid\t2012test\t0024\t{}\tA.\tB, b.\n"
    path.write_text(line.format("2.500") + line.format("0.000") + line.format("4.800"))
    assert "score / 5" in refused(path, PAIRS)


@pytest.mark.parametrize(
    ("scores", "formula"),
    [
        ([1, 2, 3, 4, 5], "(score - 1) / 4"),
        (["0", "2.5", "4.8"], "score / 5"),
        ([0, 1, 2], "score / 2"),
        ([-1, 0, 0.5, 1], "(score + 1) / 2"),
        ([10, 95, 37.5], "(score - 10) / 85"),
        ([1, 2, 2, 1], "(score - 1)"),
    ],
    ids=str,
)
def test_advice_about_scores_maps_their_range_to_0_and_1(tmp_path, scores, formula):
    rows = [(f"a{place}", "b", value) for place, value in enumerate(scores)]
    message = refused(write(tmp_path / "d.jsonl", ("text_a", "text_b", "score"), rows), PAIRS)
    assert f"replace each by {formula}." in message
    mapped = [eval(formula, {"score": math.ceil(float(one)) if float(one) > 1 else float(one)}) for one in scores]
    assert (min(mapped), max(mapped)) == (0, 1)
    rows = [(*row[:2], value) for row, value in zip(rows, mapped, strict=True)]
    assert len(list(RecordSource(write(tmp_path / "new.jsonl", ("text_a", "text_b", "score"), rows), PAIRS))) == len(
        rows
    )


@pytest.mark.parametrize("scores", [[0.5, "high"], [0, 1, None], [3, 3]], ids=str)
def test_no_advice_about_a_range_that_is_right_or_unknown(tmp_path, scores):
    rows = [("a", "b", value) for value in scores]
    message = refused(write(tmp_path / "d.jsonl", ("text_a", "text_b", "score"), rows), PAIRS)
    assert "replace" not in message


@pytest.mark.parametrize(
    ("kind", "names", "width"),
    [
        (PAIRS, ("text_a", "text_b", "label"), 2),
        (NLI, ("premise", "hypothesis", "label"), 2),
        (QA, ("question", "answer", "source"), 2),
        (TRIPLETS, ("anchor", "positive", "source"), 2),
        (TRIPLETS, ("sent0", "sent1", "hard_neg"), 3),
        (SENTENCES, ("text", "id", "source"), 1),
    ],
)
def test_columns_and_their_aliases(tmp_path, kind, names, width):
    source = RecordSource(write(tmp_path / "data.jsonl", names, [("a", "b", "1")]), kind)
    (record,) = source
    assert (source.width, record.texts) == (width, ("a", "b", "1")[:width])
    assert record.label == (1.0 if kind in (PAIRS, NLI) else None)


def test_own_columns(tmp_path):
    path = write(tmp_path / "d.csv", ("q", "a", "n"), [("x", "y", "z")])
    assert texts_of(RecordSource(path, TRIPLETS, columns=["a", "q"])) == [("y", "x")]
    assert texts_of(RecordSource(path, TRIPLETS, columns=["a", "q", "n"])) == [("y", "x", "z")]
    assert "2 or 3 different names" in refused(path, TRIPLETS, columns=["a"])
    assert "different names" in refused(path, TRIPLETS, columns=["a", "a"])
    assert "the columns 'q', 'a', 'n'" in refused(path, TRIPLETS, columns=["a", "b"])


@pytest.mark.parametrize(
    ("value", "label"),
    [("0", 0), ("0.5", 0.5), ("1", 1), (0, 0), (0.25, 0.25), (1, 1), ("1.0", 1), (" 0.5 ", 0.5), ("1e-1", 0.1)],
)
def test_scores(tmp_path, value, label):
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"text_a": "a", "text_b": "b", "label": value}))
    assert [record.label for record in RecordSource(path, PAIRS)] == [label]


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", '"nan"', '"high"', '""', "-0.1", "1.01", "5", "null", "[1]", '"2"', "9" * 400]
)
def test_scores_that_are_none(tmp_path, value):
    path = tmp_path / "d.jsonl"
    row = '{"text_a": "a", "text_b": "b", "label": VALUE}'
    path.write_text(row.replace("VALUE", "0") + "\n" + row.replace("VALUE", value))
    message = refused(path, PAIRS)
    assert re.search(r":2: label is .*wanted a number from 0 to 1.*data\.on_error=skip", message)


@pytest.mark.parametrize(
    ("value", "label"),
    [("entailment", 0), ("Neutral", 1), ("contradiction", 2), (0, 0), (1, 1), (2, 2), ("2", 2), (1.0, 1)],
)
def test_relations(tmp_path, value, label):
    path = write(tmp_path / "d.jsonl", ("premise", "hypothesis", "label"), [("p", "h", value)])
    assert [record.label for record in RecordSource(path, NLI)] == [label]


def test_pairs_without_a_gold_label_are_left_out_and_counted(tmp_path):
    rows = [("p", "h", -1), ("p", "h", "-"), ("p", "h", "-1"), ("p", "h", 2)]
    source = RecordSource(write(tmp_path / "d.jsonl", ("premise", "hypothesis", "label"), rows), NLI)
    assert len(texts_of(source)) == 1
    assert source.manifest()["left_out"] == {"no gold label": 3}
    for bad in (3, "yes", 0.5, True, None, float("nan"), 10**400):
        path = write(tmp_path / "bad.jsonl", ("premise", "hypothesis", "label"), [("p", "h", bad)])
        assert "wanted entailment, neutral, contradiction" in refused(path, NLI)


def test_skipped_rows_are_counted_and_listed(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes("question,answer\nq1,ä1".encode() + b'\nq2\nq3,"a"x\nq4,\xff\nq5,\nq6,"two\nlines"\n,\nq7,a7\n')
    source = RecordSource(path, QA, on_error="skip", max_skipped=0.375)  # 3 of 8
    assert texts_of(source) == [("q1", "ä1"), ("q6", "two\nlines"), ("q7", "a7")]
    manifest = source.manifest()
    assert [manifest[name] for name in ("skipped", "empty", "undecodable", "malformed")] == [5, 2, 1, 2]
    assert [where.split(":")[1] for where in manifest["skipped_where"]] == ["3", "4", "5", "6", "9"]


@pytest.mark.parametrize(
    ("bad", "stops"),
    [
        ({"malformed": 5}, False),  # 5 of 100
        ({"malformed": 6}, True),
        ({"undecodable": 3, "malformed": 3}, True),
        ({"undecodable": 2, "malformed": 3}, False),
        ({"empty": 40}, False),
        ({"empty": 40, "malformed": 6}, True),
    ],
    ids=str,
)
def test_too_many_unusable_rows_stop_the_reading_but_for_empty_ones(tmp_path, bad, stops):
    line = {"malformed": b"one cell\n", "undecodable": b"q,\xff\n", "empty": b"q,\n"}
    rows = [line[fault] for fault, number in bad.items() for _ in range(number)]
    rows += ["q,ä\n".encode()] * (100 - len(rows))
    path = tmp_path / "d.csv"
    path.write_bytes(b"question,answer\n" + b"\n".join(rows))  # blank lines are not counted
    source = RecordSource(path, QA, on_error="skip")
    if not stops:
        assert len(texts_of(source)) == 100 - sum(bad.values())
        assert {fault: source.manifest()[fault] for fault in bad} == bad
        return
    with pytest.raises(InputError) as caught:
        texts_of(source)
    assert (caught.value.key, caught.value.value) == ("data.max_skipped", 0.05)
    share = float(re.search(r"data\.max_skipped=(\S+)\. ", caught.value.hint)[1])
    assert texts_of(RecordSource(path, QA, on_error="skip", max_skipped=share)), "the advice works"


def test_a_generator_leaves_empty_texts_which_are_dropped(tmp_path):
    rows = [("a", " ", "1"), ("a", "b", "0")]
    source = RecordSource(write(tmp_path / "d.jsonl", ("text_a", "text_b", "label"), rows), PAIRS)
    assert texts_of(source) == [("a", "b")]
    assert source.manifest()["left_out"] == {"with an empty text": 1}
    x1_only = write(tmp_path / "x1.jsonl", ("text_a", "text_b", "label"), [("a", None, "1")])
    assert "text_b is null" in refused(x1_only, PAIRS)


def test_only_the_wanted_split_is_taken(tmp_path):
    rows = [("q1", "a1", "train"), ("q2", "a2", "valid"), ("q3", "a3", None)]
    path = write(tmp_path / "d.jsonl", ("question", "answer", "split"), rows)
    source = RecordSource(path, QA)
    assert texts_of(source) == [("q1", "a1"), ("q3", "a3")]
    assert source.manifest()["other_splits"] == {"valid": 1}
    assert texts_of(RecordSource(path, QA, split="valid")) == [("q2", "a2"), ("q3", "a3")]


def test_several_files_and_a_folder_of_shards(tmp_path):
    for number in (2, 0, 1):
        write(tmp_path / f"shard-{number:05}.jsonl", ("question", "answer"), [(f"q{number}", "a")])
    write(tmp_path / "dropped.jsonl", ("question", "answer"), [("never", "a")])
    (tmp_path / "x1").mkdir()
    write(tmp_path / "x1" / "shard-00000.jsonl", ("text_a", "text_b"), [("first", None)])
    (tmp_path / "manifest.json").write_text('{"generator": "some/model"}')
    folder = RecordSource(tmp_path, QA)
    assert [texts[0] for texts in texts_of(folder)] == ["q0", "q1", "q2"]
    assert folder.manifest()["synthesis"] == [{"generator": "some/model"}]
    assert folder.manifest()["number_of_files"] == 3
    named = RecordSource([tmp_path / "dropped.jsonl", tmp_path / "shard-00002.jsonl"], QA)
    assert [texts[0] for texts in texts_of(named)] == ["never", "q2"]


def test_files_must_agree_on_how_many_texts_a_row_has(tmp_path):
    two = write(tmp_path / "two.jsonl", ("sent0", "sent1"), [("a", "b")])
    three = write(tmp_path / "three.csv", ("anchor", "positive", "negative"), [("a", "b", "c")])
    message = refused([two, three], TRIPLETS)
    assert message.startswith(f"{three}: its rows have 3 texts, those of {two} have 2")


def test_the_fingerprint_follows_content_and_settings(tmp_path):
    path = write(tmp_path / "d.jsonl", ("question", "answer"), [("a", "b")])
    first = RecordSource(path, QA).fingerprint()
    assert RecordSource(path, QA).fingerprint() == first
    json.dumps(first)
    assert RecordSource(path, QA, split="valid").fingerprint() != first
    write(path, ("question", "answer"), [("a", "c")])
    assert RecordSource(path, QA).fingerprint() != first


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("sentence1,sentence2", ["Add"]),
        ("sentence1,sentence2,Note", ["Rename"]),
        ("a,b", ["Name", "Add"]),
        ("a,b,c", ["Name"]),
    ],
)
def test_a_table_without_labels(tmp_path, header, words):
    path = tmp_path / "pairs.csv"
    path.write_text(f"{header}\n{','.join('12345'[: header.count(',') + 1])}\n")
    with pytest.raises(InputError) as caught:
        RecordSource(path, PAIRS)
    assert caught.value.location == f"{path}:2"
    assert [word for word in ("Name", "Add", "Rename") if word in caught.value.hint] == words
