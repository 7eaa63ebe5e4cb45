"""A real encoder with frozen weights in 4 bits learns from real texts; its folder reproduces its results."""

import csv
import gzip
import json
from itertools import islice

import numpy as np
import pytest
from scipy.stats import spearmanr

from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.metrics import read_rows

SCORE = "stsb/cosine/spearman"


@pytest.fixture(scope="module")
def texts(shared_data, tmp_path_factory):
    """Return the first rows of a training set and of STS-B's test set."""
    folder = tmp_path_factory.mktemp("texts")
    with gzip.open(shared_data / "train" / "triplets.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, 1280)]
    pairs = [json.dumps({"anchor": row["premise"], "positive": row["entailment"]}) for row in rows]
    (folder / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    (folder / "STSBenchmark").mkdir()
    for name in ("dev.tsv", "test.tsv"):
        lines = (shared_data / "eval" / "STSBenchmark" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "STSBenchmark" / name).write_text("".join(lines[:301]), encoding="utf-8")
    return folder


def score_of(embed, texts):
    with (texts / "STSBenchmark" / "test.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    left, right = (np.asarray(embed([row[f"sentence{side}"] for row in rows])) for side in (1, 2))
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    return 100 * spearmanr(cosines, [float(row["score"]) for row in rows]).statistic


@pytest.mark.slow
def test_the_folder_scores_as_the_results_say(command, minilm_path, texts, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "run"
    overrides = ["model=pairs", "data=triplets", f"data.path={texts / 'pairs.jsonl'}", f"backbone={minilm_path}"]
    model = ["model.pooling=cls", "model.lora.rank=16", "model.frozen_dtype=nf4", "model.lr=1e-3", "batch_size=32"]
    scoring = [f"evaluation.data_root={texts}", "evaluation.suite=[stsb]", "log_every_n_steps=1"]
    outcome = command(*overrides, *model, *scoring, "max_steps=40", "seed=1", f"output_dir={folder}")
    assert outcome.status == 0, outcome.err
    losses = [float(row["train/loss"]) for row in read_rows(folder / "metrics.csv") if "train/loss" in row]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])
    results = json.loads((folder / "results.json").read_text())
    stock = sentence_transformers.SentenceTransformer(str(folder / "encoder"), device="cpu")
    before = sentence_transformers.SentenceTransformer(str(minilm_path), device="cpu")
    for embed in (stock.encode, load_encoder(folder).embed, load_encoder(folder / "checkpoints" / "best.ckpt").embed):
        assert score_of(embed, texts) == pytest.approx(results["scores"][SCORE], abs=0.1)
    assert score_of(before.encode, texts) == pytest.approx(results["scores_before"][SCORE], abs=0.1)
