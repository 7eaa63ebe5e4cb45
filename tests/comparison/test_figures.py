"""Contents of figures, compared with their runs; and many arms with long names that stay distinguishable."""

import math
import re

import numpy as np
import pytest

from contrastive_encoders.comparison import ranking_figures
from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.budget_figures import score_over_tokens
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric
from contrastive_encoders.comparison.probe_sentences import align_maps, explorer, neighbor_table, probe
from contrastive_encoders.comparison.report import build_comparison
from contrastive_encoders.comparison.setting_figures import settings_figures
from contrastive_encoders.comparison.training_curves import curves_of, training
from contrastive_encoders.io.manifest import read_record, write_record
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.statistics.headline import RankingMetric

SETTING = "a_setting_with_a_long_name"


@pytest.fixture(scope="module")
def many(run_folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    for place in range(10):
        data = {SETTING: place, "another_that_differs": (place * 7) % 5, "third": place % 3 + place // 7}
        run_folder(root / f"{place}", "declutr", 1, 0.2 + place / 50, data=data)
    arms = arms_of(collect([str(root / "*")])[0])
    return arms, choose_ranking_metric(arms, None)


@pytest.fixture(scope="module")
def three(race_folder):
    arms = arms_of(collect([str(race_folder)])[0])
    return build_comparison(arms, choose_ranking_metric(arms, None), [])


def rows_of(panel):
    return panel.data["values"]


def test_the_ranking_shows_means_intervals_and_seeds(three):
    panel = ranking_figures.dots(three.arms, three.headline, three.standings).panels[0]
    for row, standing in zip(rows_of(panel), three.standings, strict=True):
        runs = three.arms[standing.arm].runs
        scores = [[run.results["scores"][task] for task in three.headline.scores] for run in runs]
        assert row["mean"] == pytest.approx(np.mean(scores))
        assert row["above"] - row["below"] == pytest.approx(2 * np.std(np.mean(scores, axis=1), ddof=1))
        resampled = np.mean([[run.items.replicates[task] for task in three.headline.scores] for run in runs], (0, 1))
        assert (row["low"], row["high"]) == pytest.approx(np.percentile(resampled, [2.5, 97.5]))
    assert len(rows_of(panel.layer[2])) == 6  # one line per run


def test_the_matrix_has_each_two_arms_from_both_sides(three):
    figure = ranking_figures.differences(three.arms, three.headline, three.standings, three.contrasts)
    cells = {
        (one["arm"], one["minus"]): one for one in rows_of(figure.panels[0]) if one["score"] == three.headline.name
    }
    assert len(cells) == 6
    for (arm, minus), cell in cells.items():
        other = cells[minus, arm]
        assert cell["value"] == -other["value"]
        assert cell["distinguishable"] == other["distinguishable"] == ("good" in (arm, minus))
    assert {cell["row"] for (arm, _), cell in cells.items() if arm == "good"} == {1}


def test_curves_begin_with_the_score_and_are_means_over_seeds(three):
    shown = training(three.arms, three.headline)
    assert shown.controls[0].options[0] == "stsb-dev/cosine/spearman"
    assert "train/loss" in shown.controls[0].options
    logged = [row["stsb-dev/cosine/spearman"] for arm in three.arms for run in arm.runs for row in run.rows]
    assert [point["y"] for point in rows_of(shown.panels[0])] == pytest.approx(logged)
    assert [max(point["x"] for point in rows_of(panel)) for panel in shown.picture_panels] == [30, 3000, 3]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[], [{"step": 1.0, "train/loss": 3.0}]])
def test_the_legend_of_a_picture_has_only_arms_that_are_drawn(rows, three):
    run = three.arms[0].runs[0]._replace(rows=rows)
    shown = training([*three.arms, three.arms[0]._replace(label="untrained", runs=[run])], three.headline)
    svg = draw([shown])[shown.name].svg.decode()
    texts = re.findall(r">([^<]+)</text>", svg[svg.index("role-legend") :])
    assert sorted({*texts} & {"untrained", *(arm.label for arm in three.arms)}) == sorted(
        arm.label for arm in three.arms
    )


def test_curves_begin_with_the_ranking_score_or_one_of_its_metric(three):
    names = ("faq/cosine/map@100", "faq/cosine/mrr", "faq/cosine/ndcg@10")
    run = three.arms[0].runs[0]._replace(rows=[{"step": 1.0} | dict.fromkeys(names, 40.0)])
    for ranking in ("faq/cosine/mrr", "other/cosine/mrr"):
        shown = training([three.arms[0]._replace(runs=[run])], RankingMetric.mean_of([ranking]))
        assert shown.signals["metric"] == "faq/cosine/mrr"


def test_a_curve_has_the_final_score_of_each_stage_at_the_step_of_its_weights(three):
    run = three.arms[0].runs[0]
    score, spent = "sts12/cosine/spearman", run.results["cost"]
    stages = {
        "b": {"place": 2, "cost": spent | {"steps": 30}, "best_step": 20, "scores": {score: 61.0, "sickr/x/y": 1.0}},
        "a": {"place": 1, "cost": spent | {"steps": 7}, "best_step": 7, "scores": {score: 55.0}},
    }
    rows = [{"step": 0.0, score: 50.0}, {"step": 37.0, "train/loss": 2.0}]
    staged = run._replace(results=run.results | stages["b"] | {"stages": stages}, rows=rows)
    (curve,) = curves_of([three.arms[0]._replace(runs=[staged])])
    assert curve.lines == {score: ([0.0, 7.0, 27.0], [50.0, 55.0, 61.0]), "train/loss": ([37.0], [2.0])}


def test_a_mean_over_seeds_is_never_of_some_of_them(three):
    run = three.arms[0].runs[0]
    ends = [
        run._replace(
            results=run.results | {"best_step": step, "scores": {"a/b/c": 80.0}}, rows=[{"step": 0.0, "a/b/c": 50.0}]
        )
        for step in (10, 20)
    ]
    for runs, steps in ((ends, [0.0]), (ends[:1] * 2, [0.0, 10.0])):
        assert [curve.lines["a/b/c"][0] for curve in curves_of([three.arms[0]._replace(runs=runs)])] == [steps] * 2


def test_maps_lie_on_each_other_and_neighbors_are_the_nearest(many):
    """A map that is a rotation and reflection of another one is aligned with it."""
    arms, _ = many
    vectors = np.random.default_rng(0).standard_normal((30, 2)) * [3, 1]
    turn = np.array([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]]) @ np.diag([1, -1])
    first, second = (
        probe(arm, [f"{n}" for n in range(30)], one)
        for arm, one in zip(arms[:2], (vectors, vectors @ turn), strict=True)
    )
    flipped = second._replace(places=second.places @ turn)
    on_it = align_maps([first, flipped])
    np.testing.assert_allclose(on_it[0].places, on_it[1].places, atol=1e-6)
    held = explorer([first], range(30))["arms"][0]
    cosines = [np.dot(vectors[0], one) / np.linalg.norm(vectors[0]) / np.linalg.norm(one) for one in vectors]
    wanted = sorted(range(1, 30), key=lambda row: -cosines[row])[:6]
    assert held["near"][0] == wanted
    assert held["cosines"][0] == [round(100 * cosines[row]) for row in wanted]
    table = neighbor_table([first])
    assert table.numbers()[0][2:] == [f"{row} ({cosines[row]:.2f})" for row in wanted[:3]]  # not the cosine alone


def test_a_name_says_all_in_which_the_arms_differ(run_folder, tmp_path):
    """Two settings would distinguish three arms; the learning rate, which depends on the data, is named anyway."""
    for name, rate, tau in (("a", 0.1, 0.05), ("b", 0.2, 0.05), ("b", 0.2, 0.5)):
        data = {"_target_": f"some.where.Of_{name}", "path": f"texts/{name}.jsonl"}
        run_folder(tmp_path / f"{name}-{tau}", "one", 1, 0.2, data=data, model={"temperature": tau, "lr": rate})
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    assert [arm.label for arm in arms] == [
        "one Of_a path=a.jsonl lr=0.1 tau=0.05",
        "one Of_b path=b.jsonl lr=0.2 tau=0.05",
        "one Of_b path=b.jsonl lr=0.2 tau=0.5",
    ]
    assert [figure.name for figure in settings_figures(arms, choose_ranking_metric(arms, None))] == [
        "parallel"
    ]  # they were not crossed


def race_of(run_folder, folder, tokens, noise):
    """Write runs as a race leaves them: two arms with two seeds each, and the untrained encoder."""
    labels = {}
    for label, arms_noise in {"pairs": noise, "declutr": 0.5, "untrained": 0.7}.items():
        for seed in (1, 2)[: 1 if label == "untrained" else 2]:
            name = f"{label}-seed{seed}"
            run = run_folder(folder / name, label, seed, arms_noise, max_steps=0 if label == "untrained" else tokens)
            results = read_record(run / "results.json")
            results["cost"]["real_tokens"] = tokens + seed
            write_record(run / "results.json", results)
            labels[name] = label
    write_record(folder / "labels.json", labels)


def mean_of(path, headline):
    return np.mean([read_record(path)["scores"][task] for task in headline.scores])


def test_arms_of_several_budgets_are_drawn_over_their_tokens(run_folder, tmp_path):
    for tokens, noise in ((30_000, 0.6), (100_000, 0.4), (300_000, 0.2)):
        race_of(run_folder, tmp_path / str(tokens) / "runs", tokens, noise)
    arms = arms_of(collect([str(tmp_path / "*" / "runs" / "*")])[0])
    headline = choose_ranking_metric(arms, None)
    labels = {arm.label for arm in arms}
    assert labels == {"untrained"} | {
        f"{a} max_steps={n}" for a in ("pairs", "declutr") for n in (30000, 100000, 300000)
    }
    figure = score_over_tokens(arms, headline)
    assert len(figure.table.rows) == 6
    for name, tokens, mean, low, high, seeds in figure.table.rows:
        scores = [
            mean_of(path, headline)
            for path in sorted((tmp_path / str(round(tokens - 1.5)) / "runs").glob(f"{name}-*/results.json"))
        ]
        assert (mean, low, high, seeds) == pytest.approx((np.mean(scores), min(scores), max(scores), 2))
    assert [row[1] for row in figure.table.rows if row[0] == "pairs"] == [30_001.5, 100_001.5, 300_001.5]
    start = mean_of(tmp_path / "30000/runs/untrained-seed1/results.json", headline)
    dashed = rows_of(figure.panels[0].layer[-1])
    assert dashed == [{"mean": pytest.approx(start)}]
    twice = [*arms, next(arm for arm in arms if arm.label == "pairs max_steps=30000")]  # with the same name and budget
    assert {row[0] for row in score_over_tokens(twice, headline).table.rows} == {"declutr"}
    once = [arm for arm in arms if arm.settings["max_steps"] in (0, 30_000)]
    assert score_over_tokens(once, headline) is None
