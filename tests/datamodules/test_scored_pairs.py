"""Generated pairs: read as published, post-processed if they are raw, with a tenth held out before training."""

import logging
from collections import Counter

import numpy as np
import pandas
import pytest
import torch
from scipy import stats
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError, RatedPairs, ScoredPairBatch
from contrastive_encoders.io.manifest import write_record
from contrastive_encoders.training.data_summary import account_of
from tests.data import data_module, sequences_of, write_rows

WORDS = "ferry harbour clock rain string choir fog glass comet bread".split()
LABELS = ("0", "0.5", "1")


def raw_records(x1=30, each=3):
    """Return records as the published generator writes them: labels are strings, and spaces are unchanged."""
    records = []
    for i in range(x1):
        left = f"The {WORDS[i % 10]} and the {WORDS[i // 10]}."
        for label in LABELS:
            for k in range(each):
                right = left if label == "1" and k == 0 else f" {WORDS[(i + 3 * k) % 10]} {label} {WORDS[k]}"
                records.append({"text_a": left, "text_b": right, "label": label})
    return records


def make(path, tokenizer, cache, **options):
    return data_module("dino", **{"path": path, "tokenizer": tokenizer, "batch_size": 8, "cache_dir": cache, **options})


def scored(labels):
    return [{"text_a": f"rain {i}", "text_b": f"fog {i}", "label": label} for i, label in enumerate(labels)]


def test_raw_pairs_are_post_processed_and_a_tenth_of_each_label_is_held_out(tmp_path, tiny_bert, caplog):
    path = write_rows(tmp_path / "dino.jsonl", raw_records())
    data = make(path, tiny_bert, tmp_path, quiet=False)
    with caplog.at_level(logging.INFO):
        data.prepare_data()
        data.prepare_data()
    assert caplog.text.count("data.postprocess: on, ") == 1
    assert caplog.text.count("augment") == 1
    source = data.manifest()["source"]
    steps = {one["step"]: one for one in source["steps"]}
    assert list(steps) == ["shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment"]
    # by hand: one of 9 per x1 is identical; of 3, 3, 2 remaining the cap takes 2, 2, 2; then 2 random ones
    assert (steps["drop_identical"]["dropped"], steps["cap"]["dropped"], steps["augment"]["added"]) == (30, 60, 60)
    assert (source["raw"], source["train"], source["dev"]) == (270, 222, 18)
    (task,) = data.held_out()
    assert isinstance(task, RatedPairs)
    assert task.name == "dino-dev"
    assert Counter(np.round(task.gold, 6).tolist()) == {0.1: 6, 0.5: 6, 0.9: 6}, "no random pair"
    assert len(task.left) == len(task.right) == len(task.subsets) == 18
    train = Counter((record.texts, record.label) for record in data.source())
    assert not train & Counter(
        ((left, right), gold) for left, right, gold in zip(task.left, task.right, task.gold, strict=True)
    )
    lines = dict(account_of(data.manifest()))
    assert "60 " in lines["added"]


def test_batches_hold_the_texts_and_their_scores(tmp_path, tiny_mlm):
    path = write_rows(tmp_path / "dino.jsonl", raw_records())
    data = make(path, tiny_mlm, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    records = list(data.source())
    seen = []
    for batch in data.train_dataloader():
        assert isinstance(batch, ScoredPairBatch)
        assert batch.scores.dtype == torch.float32
        assert batch.scores.tolist() == pytest.approx([records[row].label for row in batch.rows])
        for column, part in enumerate((batch.left, batch.right)):
            texts = [records[row].texts[column] for row in batch.rows]
            assert sequences_of(part) == tokenizer(texts)["input_ids"]
        seen += batch.rows.tolist()
    assert len(seen) == len(set(seen)) == 216, "27 batches of 8, of 222 pairs"


@pytest.mark.parametrize(
    ("labels", "options", "runs", "reason"),
    [
        (["0", "0.5", "1", "0"], {}, "on", "generator"),
        (["0", "1", "1", "0"], {}, "on", "generator"),
        ([0, 0.5, 1, 0], {}, "off", "generator"),
        ([0, 1, 1, "0"], {}, "off", "generator"),
        (["0.1", "0.5", "0.9", "0"], {}, "off", "(0.1, 0.9)"),
        (["0", "0.5", "1", "1"], {"postprocess": "off"}, "off", "set"),
        ([0, 0.5, 1, 1], {"postprocess": "on"}, "on", "set"),
        ([0.2, 0.4, 1, 0], {"postprocess": "on", "smoothing": 0}, "on", "set"),
    ],
)
def test_when_pairs_are_post_processed(tmp_path, tiny_bert, caplog, labels, options, runs, reason):
    path = write_rows(tmp_path / "d.jsonl", scored(labels))
    report = make(path, tiny_bert, tmp_path, dev_fraction=0, **options).source().report
    assert (report["postprocess"], bool(report["steps"])) == (runs, runs == "on")
    assert reason in report["why"]
    assert ("data.postprocess=auto" in caplog.text) == (options == {"postprocess": "off"})
    if runs == "off":
        assert report["train"] == 4


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet", "a.xlsx"])
@pytest.mark.parametrize("columns", [("sentence1", "sentence2", "score"), ("text_a", "text_b", "label")])
def test_a_persons_pairs_with_scores_0_and_1_are_trained_on_as_they_are(tmp_path, tiny_bert, name, columns):
    rows = [(f"a man eats {number} apples", f"he eats {number % 7}", number % 2) for number in range(40)]
    path = tmp_path / name
    table = pandas.DataFrame(rows, columns=columns)
    if name.endswith("parquet"):
        table.to_parquet(path)
    elif name.endswith("xlsx"):
        table.to_excel(path, index=False)
    elif "json" in name:
        table.to_json(path, orient="records", lines=name == "a.jsonl")
    else:
        table.to_csv(path, index=False, sep="\t" if name == "a.tsv" else ",")
    data = make(path, tiny_bert, tmp_path)
    (task,) = data.held_out()
    held_out = [(left, right, gold) for left, right, gold in zip(task.left, task.right, task.gold, strict=True)]
    trained_on = [(*record.texts, record.label) for record in data.source()]
    assert sorted(trained_on + held_out) == sorted(rows)
    assert len(held_out) == 4  # 2 of 20 with each score
    assert "added" not in dict(account_of(data.manifest()))


def test_a_manifest_names_the_generator_whatever_the_labels_are(tmp_path, tiny_bert):
    folder = tmp_path / "made"
    folder.mkdir()
    write_rows(folder / "shard-00000.jsonl", scored([0, 0.5, 1] * 4))
    write_record(folder / "manifest.json", {"identity": {"kind": "x2"}, "complete": True})
    assert make(folder, tiny_bert, tmp_path).source().report["postprocess"] == "on"
    write_record(folder / "manifest.json", {"identity": {"kind": "another"}, "complete": True})
    assert make(folder, tiny_bert, tmp_path / "again").source().report["postprocess"] == "off"


def test_without_x1_on_both_sides_no_added_pair_has_a_held_out_x1(tmp_path, tiny_bert):
    data = make(write_rows(tmp_path / "d.jsonl", raw_records()), tiny_bert, tmp_path, split_by="x1")
    (task,) = data.held_out()
    assert 0.0 not in task.gold
    assert set(task.left).isdisjoint(record.texts[0] for record in data.source())


def test_pairs_are_not_smoothed_twice(tmp_path, tiny_bert):
    path = write_rows(tmp_path / "sts-dino-x2-postprocessed.jsonl", scored([0.1, 0.5, 0.9, 0]))
    with pytest.raises(InputError) as error:
        make(path, tiny_bert, tmp_path, postprocess="on").prepare_data()
    assert (error.value.key, error.value.value) == ("data.postprocess", "on")
    assert "0.1, 0.9" in error.value.expected


def test_no_step_runs_on_the_valid_split_and_its_scores_are_those_of_smoothed_labels(tmp_path, tiny_bert):
    valid = [*scored(["0", "1", "0.5", "1"]), {"text_a": "same", "text_b": "same", "label": "1"}]
    valid += valid[:1]
    records = [
        dict(record, split=split) for split, part in (("train", raw_records()), ("valid", valid)) for record in part
    ]
    data = make(write_rows(tmp_path / "d.jsonl", records), tiny_bert, tmp_path)
    (task,) = data.held_out()
    assert data.source().report["postprocess"] == "on"
    assert task.gold.tolist() == [0.0, 1.0, 0.5, 1.0, 1.0, 0.0]
    smoothed = [{0.0: 0.1, 0.5: 0.5, 1.0: 0.9}[label] for label in task.gold]  # the published ones
    found = np.random.default_rng(0).normal(size=6)
    for correlation in (stats.spearmanr, stats.pearsonr):
        raw = correlation(found, task.gold).statistic
        assert raw == pytest.approx(correlation(found, smoothed).statistic, abs=1e-12)


def test_without_two_labels_held_out_nothing_is_scored(tmp_path, tiny_bert, caplog):
    data = make(write_rows(tmp_path / "d.jsonl", scored([0.2] * 10 + [0.4] * 4)), tiny_bert, tmp_path)
    assert data.held_out() == []
    assert [record.args for record in caplog.records if record.args] == [(1,)]


@pytest.mark.parametrize(
    ("records", "options", "fields"),
    [
        (scored([0, 1, 1.5]), {}, {"location": "d.jsonl:3"}),
        (scored([0, 5]), {}, {"location": "d.jsonl:2"}),
        ([{"text_a": "a", "label": 1}], {}, {"location": "d.jsonl:1", "value": "'text_a', 'label'"}),
        (scored(["1"] * 9), {}, {"location": "d.jsonl", "value": "1 only"}),
        (
            [{"text_a": "a", "text_b": "a", "label": label} for label in LABELS],
            {},
            {"location": "d.jsonl", "expected": "drop_identical dropped 3"},
        ),
        (raw_records(), {"postprocess": "yes"}, None),
        (raw_records(), {"dev_fraction": 1.0}, None),
    ],
)
def test_bad_input(tmp_path, tiny_bert, records, options, fields):
    with pytest.raises(InputError) as error:
        make(write_rows(tmp_path / "d.jsonl", records), tiny_bert, tmp_path, **options).prepare_data()
    for field, text in (fields or {}).items():
        assert text in getattr(error.value, field)
    for key, value in options.items():
        assert (error.value.key, error.value.value) == (f"data.{key}", value)
    assert not list(tmp_path.glob("pairs-*/*"))  # nothing remains that a second run would take for complete
