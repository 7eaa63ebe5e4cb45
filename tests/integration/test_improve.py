"""The recipe ``improve`` from the command line: held-out rows, pairs made of documents, and an index by dot product."""

import csv
import random
import re

import numpy as np
import pytest

from contrastive_encoders.datamodules.passages import NEIGHBORS, SPANS, TITLES
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.results import read_results
from tests.data import write_rows
from tests.integration.conftest import NOUNS, TINY

RUN = ["experiment=improve", *TINY, "batch_size=8", "max_steps=2", "precision=fp32", "evaluation.precision=fp32"]


def text(rng, words):
    return " ".join(rng.choices(NOUNS, k=words)) + f" {rng.randrange(10**6)}"


@pytest.fixture(scope="module")
def faq(tmp_path_factory):
    rng, path = random.Random(1), tmp_path_factory.mktemp("texts") / "faq.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "answer"), *((text(rng, 4), text(rng, 20)) for _ in range(120))])
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["monitor=held_out/cosine/ndcg@10", "evaluation.every_n_steps=1"],
        ["evaluation.every_n_steps=1"],
        ["evaluation={every_n_steps: 1}"],
    ],
)
def test_held_out_rows_are_scored_during_training_if_that_is_requested(words, command, faq, tmp_path):
    done = command(*RUN, *words, f"data.path={faq}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    score = "held_out/cosine/ndcg@10"
    assert [int(row["step"]) for row in read_rows(tmp_path / "run" / "metrics.csv") if row.get(score)] == [0, 1, 2]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    rng, folder = random.Random(2), tmp_path_factory.mktemp("texts") / "docs"
    folder.mkdir()
    for number in range(20):
        parts = (f"## Part {part} of {number}\n\n{'. '.join(text(rng, 12) for _ in range(12))}.\n" for part in range(3))
        (folder / f"{number}.md").write_text(f"# About {text(rng, 2)}\n\n" + "\n".join(parts))
    return folder


def test_pairs_are_scored_on_a_tenth_that_is_not_trained_on(command, faq, tmp_path):
    done = command(*RUN, f"data.path={faq}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    results = read_results(tmp_path / "run" / "results.json")
    data, score = results["data"][0], "held_out/cosine/ndcg@10"
    assert data["source"]["held_out"]["rows"] == 12
    assert data["kept"] + 12 + data["source"]["held_out"]["near_copies_left_out"] == 120
    assert score in results["scores"]
    assert score in results["scores_before"]
    assert "held_out/tfidf/ndcg@10" in results["baselines"]
    assert re.search(r"^held out +12 ", done.err, re.MULTILINE)
    assert results["corpora"] == {"held_out": {"documents": 120}}
    assert (results["verdict"]["items"], results["verdict"]["documents"]) == (12, 120)
    assert re.search(r"\b12 .*\b120 ", results["verdict"]["sentence"])
    checked = results["overlap"]["held_out"]
    assert (checked["checked"] <= 24, checked["found"]) == (True, 0), "documents of training rows are not a leak"
    other = command(*RUN, f"data.path={faq}", "seed=2", f"output_dir={tmp_path / 'other'}")
    assert other.status == 0, other.err
    items = [np.load(tmp_path / name / "item_scores.npz") for name in ("run", "other")]
    digests = [[one[key] for key in one.files if key.startswith("digests/")] for one in items]
    assert digests[0] == digests[1] != []


def test_of_documents_pairs_are_made_and_counted(command, documents, tmp_path):
    done = command(*RUN, "data=text", f"data.path={documents}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    results = read_results(tmp_path / "run" / "results.json")
    data = results["data"][0]
    made = data["source"]["pairs_by_kind"]
    assert set(made) == {TITLES, NEIGHBORS, SPANS}
    assert made[TITLES] == data["source"]["passages"]
    assert sum(made.values()) == (
        data["kept"] + data["source"]["held_out"]["rows"] + data["source"]["held_out"]["near_copies_left_out"]
    )
    assert re.search(rf"\b{made[TITLES]}\b.*{TITLES}", done.err)
    corpus = {"documents": data["source"]["passages"], "query_kind": "titles"}
    assert results["corpora"] == {"held_out": corpus}
    assert re.search(r"nDCG@10 .*held_out \(titles\) ", results["verdict"]["sentence"])


def test_queries_of_ones_own_are_scored_in_the_place_of_held_out_rows(command, faq, tmp_path):
    rows = [{"question": f"what is {number}", "answer": f"it is {number}"} for number in range(20)]
    write_rows(tmp_path / "own.jsonl", rows)
    overrides = [f"data.path={faq}", f"evaluation.custom_tasks=[{tmp_path / 'own.jsonl'}]"]
    done = command(*RUN, *overrides, f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    results = read_results(tmp_path / "run" / "results.json")
    assert results["data"][0]["kept"] == 120
    assert not any(score.startswith("held_out") for score in results["scores"])
    assert "own/cosine/ndcg@10" in results["scores_before"]


def test_rows_with_one_answer_are_refused_before_training(command, tmp_path):
    path, folder = tmp_path / "one.csv", tmp_path / "run"
    path.write_text("question,answer\n" + "".join(f"is there a {noun} {n},Yes.\n" for n in range(4) for noun in NOUNS))
    done = command(*RUN, f"data.path={path}", f"output_dir={folder}")
    assert (done.status, done.out) == (2, "")
    assert str(path) in done.err
    assert "Traceback" not in done.err
    assert not (folder / "results.json").exists()
    assert not list(folder.glob("checkpoints/*.ckpt"))
