"""SentEval's and the probing tables: contents, order, and messages for damaged tables."""

import re

import numpy as np
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tasks import labeled

FAST = EvaluateConfig(protocol="fast")


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def read(root, name, classifiers=FAST):
    entry = {**labeled.SENTEVAL_ENTRIES, **labeled.PROBING_ENTRIES}[name.removesuffix("@senteval")]
    return entry.read(root, name, classifiers)


def movies(count=40):
    """Make texts with lengths 1, 2, 3, 1, ...; labels alternate."""
    return [[str(n % 2), " ".join(["word"] * (n % 3) + [f"w{n}"])] for n in range(count)]


def test_rows_come_by_words_then_label_then_in_the_order_of_the_file(tmp_path):
    rows = movies()
    write(tmp_path / "MR/all.tsv", ["label", "sentence"], rows)
    part = read(tmp_path, "mr").parts["all"]
    truth = sorted(
        zip([row[1].split() for row in rows], [int(row[0]) for row in rows], strict=True),
        key=lambda z: (len(z[0]), z[1]),
    )
    assert [text.split() for text in part.sides[0]] == [words for words, _ in truth]
    assert part.labels_N.tolist() == [label for _, label in truth]
    assert part.labels_N.dtype == np.int64


def test_the_second_form_of_a_text(tmp_path):
    write(tmp_path / "MR/all.tsv", ["label", "sentence"], movies())
    write(tmp_path / "MR/all.senteval.tsv", ["label", "sentence"], [[label, f"{text} !"] for label, text in movies()])
    task = read(tmp_path, "mr@senteval")
    assert all(text.endswith(" !") for text in task.parts["all"].sides[0])
    assert task.score_names() == ["mr@senteval/fast/accuracy", "mr-dev@senteval/fast/accuracy"]


def test_objective_sentences_are_subjs_positive_ones(tmp_path):
    write(
        tmp_path / "SUBJ/all.tsv", ["label", "sentence"], [[label, f"{label} {n}"] for n in range(30) for label in "10"]
    )
    part = read(tmp_path, "subj").parts["all"]
    assert [text[0] for text in part.sides[0]] == ["0" if label else "1" for label in part.labels_N]


@pytest.mark.parametrize("name", ["cr", "mpqa"])
def test_the_official_empty_sentences_stay(tmp_path, name):
    rows = [*movies(), ["1", ""], ["0", "  "]]
    write(tmp_path / name.upper() / "all.tsv", ["label", "sentence"], rows)
    task = read(tmp_path, name)
    assert len(task.parts["all"].labels_N) == 42
    assert next(iter(task.texts()))[:2] == [".", "."]


def test_pairs_go_by_the_words_of_the_first_sentence_then_the_second(tmp_path):
    header = ["label", "id1", "id2", "sentence1", "sentence2"]
    rows = [[str(n % 2), "1", "2", "a " * (n % 3) + "b", "c " * (n % 4) + f"d{n}"] for n in range(40)]
    for split in ("train", "test"):
        write(tmp_path / f"MRPC/{split}.tsv", header, rows)
    task = read(tmp_path, "mrpc")
    key = [
        (len(a.split()), len(b.split()), label)
        for a, b, label in zip(*task.parts["train"].sides, task.parts["train"].labels_N, strict=True)
    ]
    assert key == sorted(key)
    assert task.score_names() == ["mrpc/fast/accuracy", "mrpc-dev/fast/accuracy", "mrpc/fast/f1"]
    assert len(list(task.texts())) == 4


def test_snli_goes_by_the_hypothesis_first_and_by_the_labels_word(tmp_path):
    words = ["neutral", "entailment", "contradiction"]
    rows = [[words[n % 3], "p " * (n % 4) + "q", "h " * (n % 2) + f"i{n}"] for n in range(36)]
    for split in ("train", "dev", "test"):
        write(tmp_path / f"SNLI/{split}.tsv", ["label", "premise", "hypothesis"], rows)
    task = read(tmp_path, "snli")
    names = ["entailment", "neutral", "contradiction"]
    key = [
        (len(h.split()), len(p.split()), names[label])
        for p, h, label in zip(*task.parts["dev"].sides, task.parts["dev"].labels_N, strict=True)
    ]
    assert key == sorted(key)
    settings = task.trainer.settings
    assert (settings.max_epoch, settings.passes, settings.batch) == (15, 1, 128)


def probing_rows(labels, count=12):
    return [
        [split, labels[n % len(labels)], f"{split} words {n}"] for split in ("tr", "va", "te") for n in range(count)
    ]


def test_probing_labels_are_those_of_the_training_rows_in_alphabetical_order(tmp_path):
    write(tmp_path / "PROBING/tense.tsv", ["split", "label", "sentence"], probing_rows(["PRES", "PAST"]))
    task = read(tmp_path, "tense")
    assert list(task.parts) == ["train", "dev", "test"]
    assert task.classes == ["PAST", "PRES"]
    assert task.parts["test"].labels_N.tolist() == [0] * 6 + [1] * 6
    assert task.score_names() == ["tense/fast/accuracy", "tense-dev/fast/accuracy"]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("MR/all", [*movies(), ["2", "word"]], r"all\.tsv:42, label: .* 0, 1, .*'2'"),
        ("MR/all", [*movies(), ["1", ""]], r"all\.tsv:42, sentence: "),
        ("MR/all", [["1", f"word {n}"] for n in range(40)], r"all\.tsv: .*\b0 .*label 0\b"),
        ("PROBING/tense", [["xx", "A", "b"]], r"tense\.tsv:2, split: .* tr, va, te, .*'xx'"),
        (
            "PROBING/tense",
            [*probing_rows(["A", "B"]), ["te", "C", "word"]],
            r"tense\.tsv:38, label: .* A, B, .*'C'",
        ),
    ],
)
def test_damage_is_one_clear_message(tmp_path, name, rows, message):
    header = ["label", "sentence"] if name == "MR/all" else ["split", "label", "sentence"]
    write(tmp_path / f"{name}.tsv", header, rows)
    with pytest.raises(InputError) as caught:
        read(tmp_path, "mr" if name == "MR/all" else "tense")
    assert re.search(message, str(caught.value))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in labeled.SENTEVAL_ENTRIES if name != "snli"])
def test_the_published_tables(real_data, name):
    """SentEval's form of the text, if available, has the same labels in each row of the file."""
    entry = labeled.SENTEVAL_ENTRIES[name]
    task = read(real_data, name)
    assert [len(part.labels_N) for part in task.parts.values()] == list(entry.rows.values())
    for part in task.parts.values():
        assert set(part.labels_N.tolist()) == set(range(len(task.classes)))
    if entry.senteval and name != "sicke":
        other = read(real_data, f"{name}@senteval")
        for mine, theirs in zip(task.parts.values(), other.parts.values(), strict=True):
            assert np.array_equal(np.bincount(mine.labels_N), np.bincount(theirs.labels_N))
