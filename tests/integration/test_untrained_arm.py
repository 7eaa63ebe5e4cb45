"""The arm ``untrained`` of a race has the scores of the first arm's run before its first step."""

import pytest

from contrastive_encoders.comparison.baselines import untrained_job
from contrastive_encoders.comparison.race import TINY_FOLDER
from contrastive_encoders.io.results import read_results
from tests.integration.conftest import SIZES

STAGED = ["+stages.one.model.lr=1e-2", "stages.one.max_steps=2", "stages.one.monitor=stsb-dev/cosine/spearman"]
STAGED += ["+stages.two.batch_size=6", "stages.two.model.lr=1e-2", "stages.two.max_steps=1"]
ARMS = {
    "simcse": ["model=simcse", "data=triplets"],
    "gense": ["model=gense", "data=triplets"],
    "declutr": ["model=declutr", "data=text", "data.min_span=4", "data.max_span=16"],
    "tsdae": ["model=tsdae", "data=sentences"],
    "stages": ["model=simcse", "data=triplets", "model.mlp=false", *STAGED],
}
SLOW = ("gense", "declutr", "tsdae")
CHOSEN = ["monitor=stsb-dev/cosine/spearman", "early_stopping=2", "evaluation.every_n_steps=1"]


@pytest.mark.rotates
@pytest.mark.parametrize("arm", [pytest.param(arm, marks=[pytest.mark.slow] * (arm in SLOW)) for arm in ARMS])
def test_the_untrained_arm_has_the_scores_before_training(
    arm, command, rows, corpus_file, tested, small_eval, tmp_path
):
    (tmp_path / "sentences.txt").write_text("".join(f"{tested} {place}\n" for place in range(20)))
    paths = {"triplets": rows, "text": corpus_file, "sentences": tmp_path / "sentences.txt"}
    [data] = [override.partition("=")[2] for override in ARMS[arm] if override.startswith("data=")]
    common = [f"data.path={paths[data]}", "backbone=tiny", *SIZES, "batch_size=6", "max_steps=2", "model.lr=1e-2"]
    common += [f"evaluation.data_root={small_eval}", "evaluation.suite=[stsb]", "evaluation.at_start=true"]
    overrides = [*common, *ARMS[arm], *CHOSEN]
    trained = command(*overrides, "seed=3", f"output_dir={tmp_path / 'trained'}")
    assert trained.status == 0, trained.err
    job = untrained_job(overrides, 3, tmp_path)
    outcome = command(*job.arguments, f"output_dir={job.folder}")
    assert outcome.status == 0, outcome.err
    assert (job.folder / TINY_FOLDER).is_dir(), "a race recognizes random weights by it"
    trained, untrained = (read_results(folder / "results.json") for folder in (tmp_path / "trained", job.folder))
    # the other measures of twelve pairs from random weights depend on the last digit of a cosine
    name = "stsb/cosine/pearson"
    assert untrained["scores"][name] == pytest.approx(trained["scores_before"][name], abs=1e-3)
    assert abs(trained["scores"][name] - untrained["scores"][name]) > 0.01, "it was trained"
    assert trained["overlap"]["stsb"]["checked"] > 0
    assert untrained["overlap"] == {}, "it learned nothing from its data"
