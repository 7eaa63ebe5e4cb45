"""``evaluate(encoder, ...)`` is ``contrastive-encoders evaluate`` in the caller's process."""

import csv
import inspect

import numpy as np
import pytest
import scipy.stats
from sentence_transformers import SentenceTransformer

from contrastive_encoders import evaluate, load_encoder
from contrastive_encoders.cli.evaluate import run
from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from contrastive_encoders.io.item_scores import items_path
from contrastive_encoders.io.results import read_results
from tests.conftest import SENTENCES
from tests.in_process import run_here

QUIET = {"device": "cpu", "quiet": True}
RNG = np.random.default_rng(0)
GOLD = RNG.uniform(0, 5, size=40)
WORDS = sorted({override for sentence in SENTENCES for override in sentence.split()})
PAIRS = [tuple(" ".join(RNG.choice(WORDS, size=5 + n % 4)) for _ in range(2)) for n in range(40)]  # no two are equal
NOT_COMPARED = ("cost", "recipe", "versions")


@pytest.fixture(scope="module")
def encoder_folder(tiny_bert, tmp_path_factory):
    parts = parts_of(load_encoder(tiny_bert, pooling="mean", device="cpu"))
    return export_encoder(tmp_path_factory.mktemp("exported") / "encoder", **parts)


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("custom_tasks") / "pairs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(*pair, f"{gold:.4f}") for pair, gold in zip(PAIRS, GOLD, strict=True)]
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    return path


def test_scores_are_those_of_the_command_and_so_are_its_files(encoder_folder, pairs_file, small_tables, tmp_path):
    overrides = (
        f"encoder={encoder_folder}",
        f"custom_tasks={pairs_file}",
        f"data_root={small_tables}",
        "suite=[stsb,sts12]",
    )
    run_here("evaluate", run, (*overrides, "device=cpu", "quiet=true", f"output={tmp_path / 'a.json'}"))
    results = evaluate(
        encoder_folder,
        suite=["stsb", "sts12"],
        custom_tasks=pairs_file,
        data_root=small_tables,
        output=tmp_path / "b.json",
        **QUIET,
    )
    of_command, of_function = (read_results(tmp_path / f"{name}.json") for name in "ab")
    for key in of_command.keys() - set(NOT_COMPARED):
        assert results[key] == of_function[key] == of_command[key]
    assert results["recipe"] | {"output": "a"} == of_command["recipe"] | {"output": "a"}
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()
    assert items_path(tmp_path / "b.json").is_file()
    assert {"pairs/cosine/spearman", "stsb/cosine/spearman"} <= results["scores"].keys()


def test_score_is_that_of_sentence_transformers_and_scipy(encoder_folder, pairs_file):
    model = SentenceTransformer(str(encoder_folder), device="cpu")
    left, right = (model.encode([pair[side] for pair in PAIRS], normalize_embeddings=True) for side in (0, 1))
    expected = 100 * scipy.stats.spearmanr((left * right).sum(axis=1), np.round(GOLD, 4)).statistic
    results = evaluate(encoder_folder, custom_tasks=pairs_file, **QUIET)
    assert results["scores"]["pairs/cosine/spearman"] == pytest.approx(expected, abs=1e-4)
    low, high = results["intervals"]["pairs/cosine/spearman"]
    assert low < expected < high


def test_a_loaded_encoder_is_scored_as_it_is(encoder_folder, pairs_file):
    by_path = evaluate(str(encoder_folder), custom_tasks=[pairs_file], **QUIET)
    loaded = load_encoder(encoder_folder, device="cpu")
    by_value = evaluate(loaded, custom_tasks={"pairs": {"path": str(pairs_file)}}, quiet=True)
    assert by_value["scores"] == by_path["scores"]
    cut = evaluate(load_encoder(encoder_folder, device="cpu", truncate=8), custom_tasks=pairs_file, quiet=True)
    assert cut["scores"] == evaluate(encoder_folder, custom_tasks=pairs_file, truncate=8, **QUIET)["scores"]
    assert cut["scores"] != by_path["scores"]


def test_defaults_of_the_signature_are_those_of_the_keys():
    parameters = inspect.signature(evaluate).parameters
    for name in ("suite", "custom_tasks", "data_root"):
        assert parameters[name].default == getattr(EvaluateConfig, name)


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        ({}, {"key": "data_root"}),
        ({"custom_tasks": "/nowhere.csv"}, {}),
        ({"data_root": "x", "custom_taks": "a"}, {"key": "custom_taks", "value": "a"}),
        ({"data_root": "x", "action": "list"}, {"key": "action"}),
        ({"data_root": "x", "rerank_top": 0}, {"key": "rerank_top", "value": 0}),
        ({"data_root": "x", "protocol": "slow"}, {"key": "protocol", "value": "slow"}),
        ({"data_root": "x", "alignment_threshold": float("nan")}, {"key": "alignment_threshold"}),
        ({"data_root": 5}, {"key": "data_root", "value": 5}),
        ({"data_root": "x", "output": "scores.txt"}, {"key": "output", "value": "scores.txt"}),
        ({"suite": ["mteb", "sts"]}, {"key": "suite"}),
        ({"suite": "mteb", "reranker": "x"}, {"key": "reranker", "value": "x"}),
        ({"data_root": "x", "encoder": ["a", "b"]}, {"key": "encoder"}),
        ({"data_root": "x", "encoder": None}, {"key": "encoder"}),
        ({"custom_tasks": [], "data_root": None}, {"key": "custom_tasks", "value": []}),
        ({"data_root": "x", "encoder": 1j}, {"key": "encoder", "value": "complex"}),
    ],
    ids=str,
)
def test_error_names_the_key(keys, fields, small_word_vectors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        evaluate(**{"encoder": small_word_vectors} | keys)
    assert {name: getattr(raised.value, name) for name in fields} == fields


@pytest.mark.advice("contrastive_encoders.encoders.loading.loaded_encoder:check_unset")
def test_a_key_that_loads_a_loaded_encoder_is_refused_and_the_advice_works(encoder_folder, pairs_file):
    loaded = load_encoder(encoder_folder, device="cpu")
    with pytest.raises(InputError) as raised:
        evaluate(loaded, custom_tasks=pairs_file, max_length=4)
    assert (raised.value.key, raised.value.value) == ("max_length", 4)
    assert "load_encoder(PATH, max_length=4)" in raised.value.hint
    advised = evaluate(load_encoder(encoder_folder, max_length=4, device="cpu"), custom_tasks=pairs_file, quiet=True)
    assert advised["scores"] == evaluate(encoder_folder, custom_tasks=pairs_file, max_length=4, **QUIET)["scores"]


def test_several_processes_are_refused(small_word_vectors, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as raised:
        evaluate(small_word_vectors, data_root="x")
    assert "process" in raised.value.expected
