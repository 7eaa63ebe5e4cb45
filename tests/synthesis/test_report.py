"""The report's numbers against counts by hand, the data card against ``datasets``, the sheet against a person."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from contrastive_encoders.cli.generate import as_trained
from contrastive_encoders.core import InputError
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.synthesis.report.annotate import KEY, Item, draw_items, read_agreement, write_sheet
from contrastive_encoders.synthesis.report.cards import write_label_card
from contrastive_encoders.synthesis.report.examples import add_cosines, draw_examples
from contrastive_encoders.synthesis.report.figures import lengths
from contrastive_encoders.synthesis.report.measures import measure
from contrastive_encoders.synthesis.report.report import write_report
from contrastive_encoders.synthesis.report.texts import GeneratedTexts, ReportText, texts_of
from contrastive_encoders.synthesis.shards.store import ShardStore, to_json_lines
from tests.synthesis.commands import here

LABELS = ["1", "0.5", "0"]
PAIRS = [
    ("A dog runs.", "A dog runs.", "1"),
    ("A dog runs.", " a DOG runs", "1"),
    ("A dog runs.", "A cat | sleeps <b>long</b>", "0"),
    ("The sun.", "The the moon", "0"),
]


def entries(pairs):
    return [{"text_a": a, "text_b": b, "label": label} for a, b, label in pairs]


def accepted(pairs):
    return [text for entry in entries(pairs) for text in texts_of(entry)]


def data_set(folder, pairs, kind="x2", labels=LABELS):
    """Make a folder as a synthesis leaves it; two texts of label 0.5 were rejected."""
    store = ShardStore(folder)
    found = Counter(label for *_, label in pairs)
    counts = {label: {"samples": found[label], "accepted": found[label], "rejected": {}} for label in labels}
    counts[labels[-1]]["samples"] += 2
    counts[labels[-1]]["rejected"] = {"newline": 2}
    store.write(0, to_json_lines(entries(pairs)), {"first": 0, "inputs": 2, "tokens": 9, "labels": counts})
    spec = {"task_name": "sts-x2", "labels": {name: {"instruction": 'x "', "counter_labels": []} for name in labels}}
    identity = {
        "kind": kind,
        "spec": spec,
        "generator": {"sha256": "0"},
        "precision": "fp32",
        "decoding": {},
        "plan": {},
    }
    header = {"identity": identity, "generator": {"name": "toy <lm>"}}
    manifest = store.manifest(header, 1, complete=True)
    store.write_manifest(manifest)
    return manifest


def test_labels_of_any_script_and_sign_stand_in_the_figures():
    labels = ["矛", r"$\nothing{$", "нет", "_other", "<b>", "@ink"]
    texts = accepted([("A.", "B.", label) for label in labels])
    picture = ElementTree.fromstring(draw([lengths(measure(texts, labels))])["lengths"].svg)
    assert set(labels) <= {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}


def test_measures_are_those_of_counting_by_hand():
    found = measure(accepted(PAIRS), LABELS)
    same, none, other = (found[label] for label in LABELS)
    assert (same.texts, same.mean_words, same.copies, same.folded_copies, same.overlap) == (2, 3, 0.5, 1.0, 1.0)
    assert same.distinct_1 == 3 / 6  # a dog runs a dog runs
    assert same.distinct_2 == 2 / 4
    assert none.texts == 0
    assert other.copies == 0
    # A dog runs / a cat sleeps b long b: one of seven words; the sun / the moon: one of three
    assert other.overlap == pytest.approx((1 / 7 + 1 / 3) / 2)
    assert other.mean_words == 4
    assert other.distinct_1 == 7 / 9  # a cat sleeps b long b the the moon
    assert sum(other.words) == sum(other.overlaps) == 2


def test_a_report_holds_the_counts_the_texts_and_the_figures(tmp_path):
    write_report(tmp_path, data_set(tmp_path, PAIRS))
    text = (tmp_path / "report.html").read_text()
    assert re.search(r"4 of 6 .*66\.7", text)
    assert "A cat | sleeps &lt;b&gt;long&lt;/b&gt;" in text
    assert list(dict.fromkeys(re.findall(r'data-figure="([\w-]+)"', text))) == ["lengths", "overlaps"]
    assert not re.search(r'(src|href)="https?:', text)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
        "manifest.json",
        "report.html",
        "shard-00000.jsonl",
    ]


def test_examples_are_random_with_equally_many_of_each_label_and_reason():
    pairs = [(f"x{n}", f"y{n} {label}", label) for n in range(100) for label in LABELS]
    refused = [ReportText(None, f"{n}", "1", "short" if n % 10 else "copy") for n in range(1000)]
    drawn = Counter[str]()
    for seed in range(100):
        found = draw_examples(GeneratedTexts(accepted(pairs), refused), seed)
        assert Counter((one.outcome, one.label) for one in found) == {
            **{("accepted", label): 40 for label in LABELS},
            ("copy", "1"): 60,
            ("short", "1"): 60,
        }
        drawn.update(one.text for one in found if one.outcome == "accepted")
    assert len(drawn) == 300
    assert max(drawn.values()) < 65, "40 is the mean, 4.9 the standard deviation"


def test_the_cosine_of_an_example_is_that_of_its_two_texts():
    vectors = {"A dog runs.": [3.0, 4.0], " a DOG runs": [4.0, 3.0], "A cat | sleeps <b>long</b>": [0.0, 0.0]}
    some = [one for one in accepted(PAIRS) if one.text in vectors]
    found = add_cosines(some, lambda texts: np.array([vectors[text] for text in texts]))
    assert [one.cosine for one in found] == pytest.approx([1.0, 24 / 25, 0.0])


def test_the_data_card_makes_the_folder_loadable(tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "set"
    manifest = data_set(folder, PAIRS)
    write_report(folder, manifest)
    write_label_card(folder, manifest)
    write_sheet(folder, 3, LABELS, 42, as_trained)  # a CSV next to the shards
    found = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert [tuple(row[key] for key in ("text_a", "text_b", "label")) for row in found] == PAIRS


MANY = [(f"first {n}", f"second {n} {label}", label) for n in range(40) for label in LABELS]


def filled_in(sheet, label_of):
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = label_of(row)
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return rows


COPIED = [(f"first {n}", f"first {n}", "1") for n in range(40)]


def test_the_sheet_is_blind_and_drawn_from_what_is_trained_on(tmp_path):
    """Section 4: no copies, two of a label for a sentence, two random ones; 0.1, 0.5, 0.9 and 0. All of them here."""
    data_set(tmp_path, [*MANY, *COPIED, *MANY, *((a, f"{b} again", label) for a, b, label in MANY + MANY)])
    sheet, allowed = write_sheet(tmp_path, 40 * 8, LABELS, 42, as_trained)
    rows = filled_in(sheet, lambda row: "")
    key = json.loads((tmp_path / KEY).read_text())["key"]
    assert allowed == ["0.0", "0.1", "0.5", "0.9"]
    assert list(rows[0]) == ["id", "text_a", "text_b", "label"]
    found = Counter((row["text_a"], row["text_b"], key[row["id"]]) for row in rows)
    smoothed = {"1": "0.9", "0.5": "0.5", "0": "0.1"}
    written = {(a, f"{b}{again}", smoothed[label]) for a, b, label in MANY for again in ("", " again")}
    assert {one: count for one, count in found.items() if one[2] != "0.0"} == dict.fromkeys(written, 1)
    strangers = [(a, b) for (a, b, label), count in found.items() if label == "0.0" for _ in range(count)]
    assert Counter(a for a, _ in strangers) == {f"first {n}": 2 for n in range(40)}
    assert all(a.removeprefix("first ") != b.split()[1] for a, b in strangers)
    order = [key[row["id"]] for row in rows]
    assert order != sorted(order)
    with pytest.raises(InputError) as error:
        write_sheet(tmp_path, 100, LABELS, 42, as_trained)
    assert (error.value.key, error.value.value, str(sheet) in error.value.expected) == ("annotation_sample", 100, True)


def test_items_are_drawn_whatever_their_label():
    """If a label is nine times as frequent as another, so it is on the sheet; each item is equally likely."""
    pool = [Item(str(n), "", "rare" if n < 20 else "often") for n in range(200)]
    drawn = Counter(item for seed in range(400) for item in draw_items(pool, 50, seed))
    assert all(60 < drawn[item] < 140 for item in pool), "400 x 50 / 200 = 100 each, standard deviation 8.7"
    share = sum(count for item, count in drawn.items() if item.label == "rare") / drawn.total()
    assert share == pytest.approx(0.1, abs=0.01)


def test_a_spreadsheet_takes_no_text_for_a_formula(tmp_path):
    texts = ["=1+1", "+1", "-1 x", "@SUM(A1)", "\t=1", "'quoted'", "plain = text", '=cmd|"/c x"!A1']
    labels = ["-1", "+1"]
    data_set(tmp_path, [(text, f"{text}, too", labels[n % 2]) for n, text in enumerate(texts)], labels=labels)
    sheet, _ = write_sheet(tmp_path, len(texts), labels, 42, as_trained)
    rows = filled_in(sheet, lambda row: "'+1")
    cells = [row[column] for row in rows for column in ("text_a", "text_b")]
    assert not [cell for cell in cells if cell.strip()[0] in "=+-@"]
    assert {row["text_a"].removeprefix("'") for row in rows} == set(texts)
    assert read_agreement(tmp_path, sheet).percent == {"-1": {"-1": 0, "+1": 0}, "+1": {"-1": 100, "+1": 100}}


def test_what_a_person_says_comes_back_as_table_3(tmp_path):
    data_set(tmp_path, MANY)
    sheet, _ = write_sheet(tmp_path, 100, LABELS, 42, as_trained)
    key = json.loads((tmp_path / KEY).read_text())["key"]
    said, seen = {}, Counter()
    for item, dino in key.items():  # of each column: the first 2 as 0.5, the next 4 correct, the others blank
        seen[dino] += 1
        said[item] = "0,5" if seen[dino] <= 2 else dino if seen[dino] <= 6 else ""
    assert min(seen.values()) >= 6
    filled_in(sheet, lambda row: said[row["id"]])
    found = read_agreement(tmp_path, sheet)
    assert found.items == dict.fromkeys(["0.0", "0.1", "0.5", "0.9"], 6)
    assert found.unlabeled == 76
    third = pytest.approx(100 / 3)
    assert found.percent["0.5"] == {"0.0": third, "0.1": third, "0.5": 100.0, "0.9": third}
    assert found.percent["0.0"]["0.0"] == pytest.approx(200 / 3)
    assert sum(row["0.9"] for row in found.percent.values()) == pytest.approx(100)


@pytest.mark.advice("contrastive_encoders.synthesis.report.actions:write_annotation_sheet")
def test_a_sheet_that_was_filled_in_is_taken_back_as_its_message_says(tmp_path, caplog):
    caplog.set_level("INFO")
    data_set(tmp_path, MANY)
    here(f"output={tmp_path}", "annotation_sample=5")
    [(label, sheet)] = re.findall(r"one of (\S+), .* annotation_sheet=(\S+)\.", caplog.text)
    filled_in(Path(sheet), lambda row: label)
    here(f"output={tmp_path}", f"annotation_sheet={sheet}")
    assert sum(read_agreement(tmp_path, Path(sheet)).items.values()) == 5


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [("1,first", "999,first", "id", "999"), (",\r\n", ",maybe\r\n", "label", "maybe")],
)
def test_an_invalid_sheet_is_refused(tmp_path, old, new, key, value):
    data_set(tmp_path, MANY)
    sheet, _ = write_sheet(tmp_path, 8, LABELS, 42, as_trained)
    text = sheet.read_bytes().decode("utf-8-sig")
    assert old in text
    sheet.write_bytes(text.replace(old, new).encode())
    with pytest.raises(InputError) as error:
        read_agreement(tmp_path, sheet)
    assert error.value.location.startswith(f"{sheet}, row ")
    assert (error.value.key, error.value.value) == (key, value)
    assert key == "id" or "0.0, 0.1, 0.5, 0.9" in error.value.expected
