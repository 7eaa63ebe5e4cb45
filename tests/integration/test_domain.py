"""One command from the raw sentences of a domain to a trained encoder: synthesis, three stages, scores of each."""

import json
import random

import pytest

from runs.results import read_results

NOUNS = "ferry harbour violin bread comet orchard telescope spoon market clock river glass".split()
SIZES = ["vocab_size=400", "hidden_size=32", "layers=1", "heads=2", "intermediate_size=64", "dropout=0.1"]
# What random weights write passes no rule
NO_RULES = ["rules.agree=false", "rules.threshold=null", "rules.min_premise_words=0", "rules.min_hypothesis_words=0"]
NO_RULES += ["rules.drop_near_copies=false", "sentences.min_words=1", "max_new_tokens=6"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng, path = random.Random(4), tmp_path_factory.mktemp("rows") / "rows.jsonl"
    names = ("premise", "entailment", "contradiction")
    lines = []
    for i in range(40):
        noun, other = rng.sample(NOUNS, 2)
        lines.append(
            json.dumps(dict(zip(names, (f"A {noun} by the {other}, {i}.", f"A {noun}.", f"No {noun}."), strict=True)))
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def tested(small_eval):
    """A sentence that is scored, as the table spells it."""
    return (small_eval / "STSBenchmark" / "test.tsv").read_text().splitlines()[1].split("\t")[0]


@pytest.fixture(scope="module")
def sentences(tested, tmp_path_factory):
    path = tmp_path_factory.mktemp("domain") / "domain.txt"
    lines = [f"The {noun} was seen near the {other}." for noun in NOUNS[:5] for other in NOUNS[5:]]
    path.write_text("\n".join([*lines, tested.upper()]) + "\n")
    return path


@pytest.fixture(scope="module")
def words(rows, sentences, small_eval, tiny_t5, tmp_path_factory):
    return [
        "experiment=gense_domain",
        "backbone=tiny",
        *(f"tiny.{size}" for size in SIZES),
        f"domain.path={sentences}",
        f"domain.generator={tiny_t5}",
        f"domain.folder={tmp_path_factory.mktemp('made')}",
        *(f"+domain.synthesis.{word}" for word in NO_RULES),
        f"stages.open.data.path={rows}",
        f"stages.nli.data.path={rows}",
        *(f"stages.{name}.{word}" for name in ("open", "domain", "nli") for word in ("batch_size=8", "max_steps=2")),
        *(f"stages.{name}.max_epochs=null" for name in ("open", "domain", "nli")),
        f"evaluation.data_root={small_eval}",
        "evaluation.suite=[stsb]",
        "evaluation.every_n_steps=1",
    ]


@pytest.fixture(scope="module")
def finished(words, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    outcome = command(*words, f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    return folder, outcome


def test_raw_sentences_become_a_stage_between_open_text_and_nli(finished):
    folder, _ = finished
    results = read_results(folder / "results.json")
    assert sorted(results["stages"], key=lambda name: results["stages"][name]["place"]) == ["open", "domain", "nli"]
    assert (folder / "encoder" / "modules.json").is_file()
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["counts"]["accepted"] > 16


def test_the_task_is_scored_before_after_and_in_between(finished):
    results = read_results(finished[0] / "results.json")
    name = "stsb/cosine/spearman"
    assert name in results["scores_before"]
    assert all(name in stage["scores"] for stage in results["stages"].values())
    assert results["stages"]["nli"]["scores"][name] == results["scores"][name]


def test_sentences_that_are_scored_are_left_out_and_counted(finished, tested, sentences):
    folder, outcome = finished
    assert "1 of its 36 sentences are among those that are scored" in outcome.err
    results = read_results(folder / "results.json")
    synthesis = next(one["source"]["synthesis"][0] for one in results["data"] if "synthesis" in one["source"])
    assert synthesis["sentences"]["left_out"]["held out"] == 1


def test_a_second_command_passes_over_what_is_done(words, finished, command):
    outcome = command(*words, f"output_dir={finished[0]}")
    assert outcome.status == 0
    assert "is finished" in outcome.err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("domain.generator=null", "domain.generator"),
        ("domain.path=nowhere.txt", "domain.path"),
        ("+domain.synthesis.rules.treshold=0.8", "rules.threshold"),
        ("domain.generator=nowhere/generator", "nowhere/generator"),
    ],
)
def test_a_wrong_word_is_told_before_anything_is_trained(word, message, words, command, tmp_path):
    key = word.partition("=")[0]
    others = [one for one in words if one.partition("=")[0] not in (key, "domain.folder")]
    folder = tmp_path / "run"
    outcome = command(*others, word, f"domain.folder={tmp_path}/made", f"output_dir={folder}")
    assert outcome.status == 2, outcome.err
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(folder.glob("**/*.ckpt"))
