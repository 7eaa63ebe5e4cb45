"""Reports from run folders: the ranking, what is left out, and what the report says about it."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from omegaconf import OmegaConf

from contrastive_encoders.cli.compare import write_comparison as compare_command
from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.compare_config import CompareConfig
from contrastive_encoders.comparison.contrasts import choose_ranking_metric, interval_of
from contrastive_encoders.comparison.contrasts import values_of as arm_values
from contrastive_encoders.comparison.latex_table import format_csv, format_latex
from contrastive_encoders.comparison.report import build_comparison, sections, write_report
from contrastive_encoders.comparison.tables import conclusions, has_best, item_note, leaderboard
from contrastive_encoders.comparison.upload import upload
from contrastive_encoders.core import InputError
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.datamodules.data_configs import SentenceDataConfig
from contrastive_encoders.encoders.objectives.simcse_config import SimCSEConfig
from contrastive_encoders.io.results import read_results, write_results
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.run_config import Checkpoint, RunConfig
from tests.forks import run_command
from tests.wandb_records import read_records, values_of


@pytest.fixture(scope="module")
def written(race_folder, tmp_path_factory):
    runs, skipped = collect([str(race_folder)])
    arms = arms_of(runs)
    found = build_comparison(arms, choose_ranking_metric(arms, None), skipped)
    output = tmp_path_factory.mktemp("report")
    return found, output, write_report(found, output)


@pytest.mark.rotates
def test_runs_of_one_recipe_are_an_arm(written):
    found, _, _ = written
    assert {arm.label: len(arm.runs) for arm in found.arms} == {"good": 2, "even": 2, "leaky": 2}
    assert len(found.headline.scores) == 2


def test_what_cannot_be_read_is_named_with_its_reason(written):
    found, output, _ = written
    reasons = {one.path.name: one.reason for one in found.skipped}
    assert set(reasons) == {"damaged", "other-release", "unfinished"}
    assert "later" in reasons["other-release"]
    assert "other-release" in (output / "report.md").read_text(encoding="utf-8")


def test_the_ranking_tells_ties(written):
    found, output, _ = written
    best = found.standings[0]
    assert (found.arms[best.arm].label, best.best_rank, best.worst_rank) == ("good", 1, 1)
    assert {(one.best_rank, one.worst_rank) for one in found.standings[1:]} == {(2, 3)}
    text = (output / "report.md").read_text(encoding="utf-8")
    assert "distinguishable" in text
    assert "3 of 50" in text  # test sentences of the leaky arm's data
    assert "Click" not in text
    assert "Click" in (output / "report.html").read_text(encoding="utf-8")
    numbers = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    assert numbers["ranking"][0]["arm"] == "good"


def test_the_numbers_of_the_tables_are_values_and_not_positions_in_an_order(written):
    """Ranks and intervals have two numbers each; what was not measured is null."""
    found, output, _ = written
    numbers = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    ranks = {one["arm"]: [one["best"], one["worst"]] for one in numbers["ranking"]}
    for name in ("leaderboard", "answer"):
        table = numbers["tables"][name]
        assert {row[0]: row[table["columns"].index("rank")] for row in table["rows"]} == ranks
    board = numbers["tables"]["leaderboard"]
    for row in board["rows"]:
        arm = next(one for one in found.arms if one.label == row[0])
        column = dict(zip(board["columns"], row, strict=True))
        assert column["95 % over test items"] == pytest.approx(interval_of(found.arms, arm, found.headline))
    contrasts = numbers["tables"]["contrasts"]
    by_seeds = contrasts["columns"].index("p over seeds")
    assert {row[by_seeds] for row in contrasts["rows"]} == {None}  # two seeds are too few


def test_a_conclusion_has_the_sign_of_the_difference_from_the_other_arm(written):
    found, _, _ = written
    means = [np.mean(arm_values(found.arms[one.arm], found.headline)) for one in found.standings]
    sentences = conclusions(found.arms, found.headline, found.standings, found.contrasts)
    for place, sentence in enumerate(sentences):
        difference, low, high = map(float, re.findall(r"[+-]\d+\.\d+", sentence)[:3])
        assert difference == pytest.approx(means[place] - means[0 if place else 1], abs=0.0051)
        assert low < difference < high


def test_scores_that_are_better_if_lower_do_not_rank_and_have_no_best(run_folder, tmp_path):
    score = "generator-dev/perplexity"
    for name, value in (("one", 10.0), ("two", 20.0)):
        folder = run_folder(tmp_path / name, name, 1, 0.2)
        results = read_results(folder / "results.json")
        write_results(folder / "results.json", results | {"scores": {score: value}, "averages": {}})
        (folder / "item_scores.npz").unlink(missing_ok=True)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    assert not has_best(arms, RankingMetric.mean_of([score]))
    with pytest.raises(InputError) as refused:
        choose_ranking_metric(arms, score)
    assert refused.value.key == "ranking_metric"


def test_a_table_with_one_seed_has_no_deviation(run_folder, tmp_path):
    for name, noise in (("one", 0.2), ("two", 0.4)):
        run_folder(tmp_path / name, name, 1, noise)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    found = build_comparison(arms, choose_ranking_metric(arms, None), [])
    table = leaderboard(arms, found.headline, found.standings, tmp_path)
    place = [column.heading for column in table.columns].index("sd over seeds")
    assert [row[place] for row in table.numbers()] == [None, None]


def test_runs_of_stages_that_differ_in_the_seed_are_one_arm(run_folder, tmp_path):
    for seed in (1, 2, 3):
        folder = tmp_path / f"staged-{seed}"
        last = {"output_dir": str(folder / "stage-nli"), "backbone": str(folder / "stage-open")}
        run_folder(folder, "simcse", seed, 0.2, **last, model={"backbone": last["backbone"]})
    run_folder(tmp_path / "from-elsewhere", "simcse", 4, 0.2, backbone=str(tmp_path / "stage-open"))
    staged, other = arms_of(collect([str(tmp_path / "*")])[0])[::-1]
    assert [run.seed for run in staged.runs] == [1, 2, 3]
    assert staged.settings["backbone"] == staged.settings["model.backbone"] == "stage-open"
    assert other.settings["backbone"] == str(tmp_path / "stage-open")


def test_runs_that_differ_in_keys_without_effect_are_one_arm(run_folder, tmp_path, monkeypatch):
    config = RunConfig(model=SimCSEConfig(), data=SentenceDataConfig(path="texts.txt"))
    other = {
        "verify": True,
        "allow_targets": ("mine",),
        "data_license": "cc0-1.0",
        "checkpoint": Checkpoint(keep_all=True),
    }
    recipes = {
        "one": resolve(config).recorded_keys(),
        "checked": resolve(replace(config, seed=2, **other)).recorded_keys(),
    }
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    recipes["two-processes"] = resolve(replace(config, seed=3)).recorded_keys()
    assert recipes["two-processes"]["trainer"]["strategy"] == "ddp"
    recipes["another-model"] = resolve(replace(config, model=SimCSEConfig(temperature=0.1))).recorded_keys()
    for name, recipe in recipes.items():
        run_folder(tmp_path / name, "simcse", recipe.pop("seed"), 0.2, **recipe)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    assert {arm.label: [run.path.name for run in arm.runs] for arm in arms} == {
        "simcse tau=0.1": ["another-model"],
        "simcse tau=0.05": ["one", "checked", "two-processes"],
    }


def test_runs_of_stages_that_differ_in_an_earlier_stage_are_arms_of_their_own(run_folder, tmp_path):
    for name, rate in (("one", 0.1), ("same", 0.1), ("other", 0.2)):
        folder = tmp_path / name
        last = {"output_dir": str(folder / "stage-nli"), "backbone": str(folder / "stage-open")}
        run_folder(folder, "simcse", 1 + (name == "same"), 0.2, **last)
        run_folder(folder / "stage-open", "simcse", 1, 0.2, output_dir=str(folder / "stage-open"), model={"lr": rate})
        results = read_results(folder / "results.json")
        spent = results["cost"]
        stages = {one: {"place": place, "cost": spent} for place, one in enumerate(("open", "nli"))}
        write_results(folder / "results.json", results | {"stages": stages})
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    assert [[run.path.name for run in arm.runs] for arm in arms] == [["one", "same"], ["other"]]
    assert len({arm.label for arm in arms}) == 2


def test_a_folder_that_is_called_like_a_stage_is_none(run_folder, tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / name / "stage-nli"
        run_folder(folder, "simcse", 1, 0.2, output_dir=str(folder), backbone=str(tmp_path / name / "base"))
    assert len(arms_of(collect([str(tmp_path / "*" / "*")])[0])) == 2


def test_test_pairs_that_differ_are_not_paired(run_folder, tmp_path):
    run_folder(tmp_path / "a", "one", 1, 0.2)
    other = run_folder(tmp_path / "b", "two", 1, 0.4)
    from contrastive_encoders.io.item_scores import read_items, write_items

    items = read_items(other / "item_scores.npz")
    write_items(other / "item_scores.npz", items._replace(digests=dict.fromkeys(items.digests, "another")))
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    found = build_comparison(arms, choose_ranking_metric(arms, None), [])
    assert all(one.p is None and one.over_items is None for one in found.contrasts)
    [note] = item_note(arms, found.headline)
    assert {ScoreName.parse(score).full_task for score in found.headline.scores} <= set(re.findall(r"[\w-]+", note))
    assert not item_note(arms[:1], found.headline)
    latex = format_latex(arms, found.families, found.standings)
    assert "textbf" not in latex
    assert f"% {note}" in latex.splitlines()
    assert {
        row["same_items"] for row in csv.DictReader(format_csv(arms, found.families, found.standings).splitlines())
    } == {"false"}


def test_a_run_with_two_names_is_refused(run_folder, tmp_path):
    run_folder(tmp_path / "a", "one", 1, 0.2)
    with pytest.raises(InputError) as refused:
        collect({"mine": str(tmp_path / "a"), "base": str(tmp_path / "*")})
    assert refused.value.key == "runs.base"


def test_an_arm_without_test_items_is_told_and_leaves_the_others_their_test(run_folder, tmp_path, caplog):
    for name, noise in (("one", 0.2), ("three", 0.6), ("two", 0.3)):
        run_folder(tmp_path / name, name, 1, noise)
    whole = arms_of(collect([str(tmp_path / "*")])[0])
    before = {
        (one.first, one.second, one.score): one
        for one in build_comparison(whole, choose_ranking_metric(whole, None), []).contrasts
    }
    missing = tmp_path / "three" / "item_scores.npz"
    missing.unlink()
    results = missing.with_name("results.json")
    write_results(results, read_results(results) | {"intervals": {"stsb/cosine/spearman": [1.0, 2.0]}})
    assert not caplog.text
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    assert [arm.label for arm in arms] == ["one", "three", "two"]
    assert str(missing) in caplog.text
    for one in build_comparison(arms, choose_ranking_metric(arms, None), []).contrasts:
        same = before[one.first, one.second, one.score]
        assert one.p == (same.p if (one.first, one.second) == (0, 2) else None)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs=[nowhere/*]", "output=o"], "runs=nowhere/*: expected"),
        (["output=o"], "runs=null: expected"),
        (["runs=[x]"], "output=null: expected"),
        (["runs=[x]", "output=o", "ranking_metri=a"], "ranking_metric"),
    ],
)
def test_wrong_words_get_one_message(arguments, said, tmp_path):
    done = _command(arguments, tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_compares(race_folder, tmp_path):
    done = _command([f"runs=[{race_folder}/*]", "output=out", "sentences=0"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "good" in done.stdout
    [warning] = [line for line in done.stdout.splitlines() if "training data" in line]
    assert "sts12" in warning
    assert "leaky (3 of 50)" in warning
    assert warning in (tmp_path / "out" / "report.md").read_text()
    assert (tmp_path / "out" / "report.html").exists()


def test_strict_refuses_what_would_be_skipped(race_folder, tmp_path):
    with pytest.raises(InputError, match="strict=true: "):
        compare_command(OmegaConf.create({"strict": True, "ranking_metric": None}), [str(race_folder / "*")], tmp_path)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"ranking_metric": "stsb/cosine/spearmann"}, "ranking_metric"),
        ({}, "runs"),  # without a common score
        ({"ranking_metric": "stsb/cosine/spearman", "sentences_from": "missing.txt"}, "sentences_from"),
    ],
)
def test_a_refused_comparison_leaves_no_folder(run_folder, tmp_path, keys, key):
    for name, score in (("one", "a/cosine/map"), ("two", "b/cosine/map")):
        folder = run_folder(tmp_path / "runs" / name, name, 1, 0.2)
        if key == "runs":
            write_results(folder / "results.json", read_results(folder / "results.json") | {"scores": {score: 1.0}})
    with pytest.raises(InputError) as refused:
        compare_command(CompareConfig(**keys), [str(tmp_path / "runs" / "*")], tmp_path / "out")
    assert refused.value.key == key
    assert not (tmp_path / "out").exists()


@pytest.mark.rotates
def test_weights_and_biases_gets_the_same(written, tmp_path, monkeypatch):
    """Read the records back from the file that W&B writes without a network."""
    import wandb

    found, output, paths = written
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    upload(found, sections(found, output), paths, "a-project", "head to head", offline=True)
    wandb.teardown()  # the end of a run is only announced to the W&B service, which writes the last records afterwards
    (file,) = output.rglob("run-*.wandb")
    logged, summary = {}, {}
    for record in read_records(file):
        logged |= values_of(record.history.item)
        summary |= values_of(record.summary.update)
    for name in ("leaderboard", "contrasts", "leaderboard-picture"):
        assert any(key.startswith(f"comparison/{name}/") for key in logged)
    assert summary["comparison/good/rank"] == 1
    assert summary["comparison/good/mean"] > summary["comparison/even/mean"]


def _command(arguments, cwd):
    return run_command(["-m", "contrastive_encoders", "compare", *arguments], cwd)


def test_a_missing_score_is_refused(run_folder, tmp_path):
    run_folder(tmp_path / "a", "one", 1, 0.2)
    arms = arms_of(collect([str(tmp_path / "a")])[0])
    with pytest.raises(InputError) as refused:
        choose_ranking_metric(arms, "mr/default/accuracy")
    assert (refused.value.key, refused.value.value) == ("ranking_metric", "mr/default/accuracy")
    assert str(tmp_path / "a") in refused.value.hint
