"""Rows are read from every format unchanged, and every error of a file is named."""

import csv
import json
import math
import re
import shlex
from types import SimpleNamespace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import NLI, PAIRS, QA, SENTENCES, TRIPLETS
from contrastive_encoders.training.prepare import check_labels
from tests.data import RecordSource, data_module


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
    return caught.value


def test_the_names_of_a_header_with_semicolons_are_shown_with_the_setting(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("frage;antwort\nWas?;Das, und das.\n", encoding="utf-8")
    error = refused(path, QA)
    assert (error.location, re.findall(r"'(\w+)'", error.value)) == (str(path), ["frage", "antwort"])
    assert "data.columns=[frage,antwort]" in error.hint
    assert [record.texts for record in RecordSource(path, QA, columns=["frage", "antwort"])] == [
        ("Was?", "Das, und das.")
    ]


@pytest.mark.parametrize(
    "names", [(" question", "answer "), ("Größe", "sep="), ('say "why"', "it's {so}\\"), ("true", "1"), ("a.b", "C-d")]
)
def test_advised_column_names_are_parsed_by_the_shell_and_by_hydra(tmp_path, names):
    rows = [{names[0]: "where?", names[1]: "here"}]
    (tmp_path / "qa.jsonl").write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        list(RecordSource(tmp_path / "qa.jsonl", QA))
    advice = re.search(r"('?data\.columns=.*\]'?);", caught.value.hint)[1]
    (override,) = OverridesParser.create().parse_overrides(shlex.split(advice))
    columns = OmegaConf.to_container(OmegaConf.create({"columns": override.value()}))["columns"]
    assert tuple(columns) == names
    assert [one.texts for one in RecordSource(tmp_path / "qa.jsonl", QA, columns=columns)] == [("where?", "here")]


def test_columns_with_numbers_as_names_are_not_texts(tmp_path):
    """This happens with the columns that pandas writes for a table without a header, plus one more column."""
    path = tmp_path / "qa.csv"
    path.write_text("question,answer,1\nwhere?,here,x\n")
    assert [record.texts for record in RecordSource(path, QA)] == [("where?", "here")]
    path.write_text("0,1\nwhere?,here\n")
    assert "question, answer" in refused(path, QA).expected


def test_an_unknown_separator_and_a_missing_header_are_refused(tmp_path):
    (tmp_path / "hash.csv").write_text("question#answer\nWhat?#That.\n")
    error = refused(tmp_path / "hash.csv", QA)
    assert "'question#answer'" in error.value
    assert "model=simcse" in error.hint
    assert "data.columns=" in error.hint
    (tmp_path / "two.csv").write_text("Frage;Antwort\nWas?;Das.\n")
    assert "model=simcse" not in refused(tmp_path / "two.csv", QA).hint
    (tmp_path / "bare.csv").write_text(f"What is it?,{'It is that. ' * 20}\nAnd this?,This.\n")
    assert len(str(refused(tmp_path / "bare.csv", QA))) < 600


def test_the_files_of_stsb_have_pairs_with_ratings(tmp_path):
    path = tmp_path / "sts-train.csv"
    path.write_text("main-captions\tMSRvid\t2012test\t0024\t1.000\tA.\tB, b.\n")
    assert [(record.texts, record.label) for record in RecordSource(path, PAIRS)] == [(("A.", "B, b."), 1.0)]
    line = "main-captions\tMSRvid\t2012test\t0024\t{}\tA.\tB, b.\n"
    path.write_text(line.format("2.500") + line.format("0.000") + line.format("4.800"))
    assert "score / 5" in str(refused(path, PAIRS))


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
    error = refused(write(tmp_path / "d.jsonl", ("text_a", "text_b", "score"), rows), PAIRS)
    assert f"{formula}." in str(error)
    mapped = [eval(formula, {"score": math.ceil(float(one)) if float(one) > 1 else float(one)}) for one in scores]
    assert (min(mapped), max(mapped)) == (0, 1)
    rows = [(*row[:2], value) for row, value in zip(rows, mapped, strict=True)]
    assert len(list(RecordSource(write(tmp_path / "new.jsonl", ("text_a", "text_b", "score"), rows), PAIRS))) == len(
        rows
    )


@pytest.mark.parametrize("scores", [[0.5, "high"], [0, 1, None], [3, 3]], ids=str)
def test_no_rescaling_is_advised_for_a_valid_or_unknown_range(tmp_path, scores):
    rows = [("a", "b", value) for value in scores]
    error = refused(write(tmp_path / "d.jsonl", ("text_a", "text_b", "score"), rows), PAIRS)
    assert "(score" not in str(error)


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


@pytest.mark.parametrize("line", ["Where is it?,On the table.", "how do i change the password of my account,open it"])
def test_a_table_without_a_header_is_recognized_and_all_its_rows_are_read_with_the_header_of_the_hint(line, tmp_path):
    rows = [line, "Who is it?,A friend.", "When is it?,Now."]
    (tmp_path / "x.csv").write_text("\n".join(rows))
    with pytest.raises(InputError) as refused:
        RecordSource(tmp_path / "x.csv", QA)
    [header] = re.findall(r" such as (\w+ and \w+)\. ", refused.value.hint)
    (tmp_path / "x.csv").write_text("\n".join([header.replace(" and ", ","), *rows]))
    assert len(list(RecordSource(tmp_path / "x.csv", QA))) == 3


def test_names_of_columns_are_not_rows(tmp_path):
    (tmp_path / "x.csv").write_text("Frage,Antwort (Support)\nWhere is it?,On the table.\n")
    with pytest.raises(InputError) as refused:
        RecordSource(tmp_path / "x.csv", QA)
    assert "above it" not in refused.value.hint


def test_own_columns(tmp_path):
    path = write(tmp_path / "d.csv", ("q", "a", "n"), [("x", "y", "z")])
    assert texts_of(RecordSource(path, TRIPLETS, columns=["a", "q"])) == [("y", "x")]
    assert texts_of(RecordSource(path, TRIPLETS, columns=["a", "q", "n"])) == [("y", "x", "z")]
    for columns in (["a"], ["a", "a"]):
        error = refused(path, TRIPLETS, columns=columns)
        assert (error.key, error.value) == ("data.columns", columns)
    assert re.findall(r"'(\w+)'", refused(path, TRIPLETS, columns=["a", "b"]).value) == ["q", "a", "n"]


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
def test_invalid_scores_are_refused(tmp_path, value):
    path = tmp_path / "d.jsonl"
    row = '{"text_a": "a", "text_b": "b", "label": VALUE}'
    path.write_text(row.replace("VALUE", "0") + "\n" + row.replace("VALUE", value))
    error = refused(path, PAIRS)
    assert error.location == f"{path}:2"
    assert "data.on_error=skip" in error.hint


@pytest.mark.parametrize(
    ("value", "label"),
    [("entailment", 0), ("Neutral", 1), ("contradiction", 2), (0, 0), (1, 1), (2, 2), ("2", 2), (1.0, 1)],
)
def test_relations(tmp_path, value, label):
    path = write(tmp_path / "d.jsonl", ("premise", "hypothesis", "label"), [("p", "h", value)])
    assert [record.label for record in RecordSource(path, NLI)] == [label]


def test_pairs_without_a_gold_label_are_skipped_and_counted(tmp_path):
    rows = [("p", "h", -1), ("p", "h", "-"), ("p", "h", "-1"), ("p", "h", 2)]
    source = RecordSource(write(tmp_path / "d.jsonl", ("premise", "hypothesis", "label"), rows), NLI)
    assert len(texts_of(source)) == 1
    assert list(source.manifest()["left_out"].values()) == [3]
    for bad in (3, "yes", 0.5, True, None, float("nan"), 10**400):
        path = write(tmp_path / "bad.jsonl", ("premise", "hypothesis", "label"), [("p", "h", bad)])
        assert refused(path, NLI).location.startswith(str(path))


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
def test_too_many_unusable_rows_are_refused_except_empty_ones(tmp_path, bad, stops):
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


def test_empty_texts_of_a_generator_are_dropped(tmp_path):
    rows = [("a", " ", "1"), ("a", "b", "0")]
    source = RecordSource(write(tmp_path / "d.jsonl", ("text_a", "text_b", "label"), rows), PAIRS)
    assert texts_of(source) == [("a", "b")]
    assert list(source.manifest()["left_out"].values()) == [1]
    x1_only = write(tmp_path / "x1.jsonl", ("text_a", "text_b", "label"), [("a", None, "1")])
    assert "text_b" in str(refused(x1_only, PAIRS))


def test_only_the_selected_split_is_used(tmp_path):
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
    error = refused([two, three], TRIPLETS)
    assert (error.location, error.value) == (str(three), 3)
    assert str(two) in error.expected


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
    assert caught.value.location == str(path)
    assert [word for word in ("Name", "Add", "Rename") if word in caught.value.hint] == words


@pytest.mark.parametrize(
    ("columns", "advised"),
    [
        (["Frage", "Antwort"], ["Frage", "Antwort (Support)"]),
        (["frage", "Antwrot (Support)"], ["Frage", "Antwort (Support)"]),
        (["Frage", "Zeit"], None),
        (["Frage", "frag"], None),  # the same column
    ],
)
def test_the_columns_that_are_similar_to_those_of_the_command_are_advised(columns, advised, tmp_path):
    (tmp_path / "x.csv").write_text("Nummer;Frage;Antwort (Support)\n1;wo?;hier\n")
    with pytest.raises(InputError) as refused:
        RecordSource(tmp_path / "x.csv", QA, columns=columns)
    settings = [word for word in shlex.split(refused.value.hint) if word.startswith("data.columns=[")]
    if advised is None:
        assert "Antwort (Support)" not in "".join(settings)
        return
    override = OverridesParser.create().parse_override(settings[0].removesuffix("."))
    names = [str(name) for name in override.value()]
    assert names == advised
    assert len(list(RecordSource(tmp_path / "x.csv", QA, columns=names))) == 1


@pytest.mark.parametrize(
    ("names", "kind", "labels", "is_named"),
    [
        (("question", "answer", "Label"), QA, "01", True),
        (("question", "answer", "is_relevant"), QA, "01", True),
        (("anchor", "positive", "score"), TRIPLETS, "01", True),
        (("question", "answer", "label"), QA, "11", False),  # all rows are positive pairs
        (("question", "answer", "date"), QA, "01", False),
        (("sentence1", "sentence2", "score"), PAIRS, "01", False),  # the labels are read
        (("question", "text", "label"), SENTENCES, "01", False),  # no pairs
    ],
)
def test_labels_that_are_not_read_are_named(names, kind, labels, is_named, tmp_path, caplog):
    RecordSource(write(tmp_path / "x.csv", names, [(f"a{label}", f"b{label}", label) for label in labels]), kind)
    assert [record.args[1] for record in caplog.records] == [names[2]] * is_named


def test_pairs_to_classify_with_a_single_label_are_refused(tmp_path, tiny_bert):
    """The parts of a mixture are trained on together, so each of them may have a single label."""
    parts = {}
    for label in (0, 2):
        rows = [(f"a{n}", f"b{n}", label) for n in range(9)]
        path = write(tmp_path / f"{label}.csv", ("premise", "hypothesis", "label"), rows)
        parts[f"part{label}"] = data_module("nli", path=path, tokenizer=tiny_bert, cache_dir=tmp_path / "cache")
        parts[f"part{label}"].prepare_data()
        parts[f"part{label}"].setup()
    check_labels(SimpleNamespace(parts=parts))
    with pytest.raises(InputError) as caught:
        check_labels(parts["part2"])
    assert str(caught.value.location).endswith("2.csv")
    assert "contradiction" in str(caught.value.value)


def test_the_columns_of_json_rows_may_be_missing_in_the_first_rows(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"question": "a"}, {"answer": "b"}, {"question": "c", "answer": "d"}, {"question": "e", "answer": "f"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = RecordSource(path, QA, on_error="skip")
    assert texts_of(source) == [("c", "d"), ("e", "f")]
    assert (source.manifest()["empty"], source.manifest()["malformed"]) == (2, 0)
