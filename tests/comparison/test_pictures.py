"""Pictures of many arms with long names: nothing overlaps, nothing is cut off, no two arms look alike."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from comparison import plots, space_plots
from comparison.arms import arms_of
from comparison.collect import collect
from comparison.contrasts import choose_headline
from comparison.drawing import colour, marker, render
from comparison.probes import probe
from comparison.report import compare, sections
from comparison.sweep_plots import sweep_pictures

SETTING = "a_setting_with_a_long_name"


@pytest.fixture(scope="module")
def many(run_folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    for place in range(10):
        data = {SETTING: place, "another_that_differs": (place * 7) % 5, "third": place % 3 + place // 7}
        run_folder(root / f"{place}", "declutr", 1, 0.2 + place / 50, data=data)
    arms = arms_of(collect([str(root / "*")])[0])
    long = [arm._replace(label=f"declutr {SETTING}={place} another_that_differs=3") for place, arm in enumerate(arms)]
    return long, choose_headline(arms, None)


def drawn(picture) -> Figure:
    figure = Figure(figsize=picture.size, layout="constrained")
    FigureCanvasAgg(figure)
    picture.draw(figure)
    figure.canvas.draw()
    return figure


def apart(texts) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_names_on_the_leaderboard_stand_apart(many):
    arms, headline = many
    found = compare(arms, headline, [])
    figure = drawn(plots.leaderboard(arms, headline, found.standings))
    labels = figure.axes[0].get_yticklabels()
    assert len(labels) == 10
    assert apart(labels)


def test_names_over_the_subsets_stand_apart(many):
    arms, headline = many
    figure = drawn(plots.subsets(arms, headline))
    assert apart(figure.axes[0].get_xticklabels())


def test_legends_are_whole(many):
    arms, headline = many
    rng = np.random.default_rng(0)
    probes = [probe(arm, ["a", "b", "c"], rng.standard_normal((3, 4)), "pca") for arm in arms]
    for picture in (*plots.curves(arms), space_plots.plane(arms, headline, probes)):
        figure = drawn(picture)
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert len(legend.get_texts()) == 10
        assert figure.axes[0].get_window_extent().height > 100  # the legend has left room for what it is of


def test_no_two_arms_look_alike():
    assert len({(colour(place), marker(place)) for place in range(64)}) == 64


def test_panels_are_the_best_arms_and_fit_a_page(many):
    arms, headline = many
    shown = space_plots.best(arms, headline)
    assert [arm.label for arm in shown] == [arm.label for arm in arms[:8]]  # noise grows with the place
    picture = space_plots.similarities(arms, headline)
    assert picture.size[0] < 12
    assert "best 8 of 10" in picture.caption


def test_settings_drawn_at_random_are_points_not_an_empty_map(run_folder, tmp_path):
    taus = [0.0123, 0.2, 0.034, 0.05, 0.0071, 0.1]
    for place, tau in enumerate(taus):
        model = {"temperature": tau, "hard_negative_weight": place % 2}
        run_folder(tmp_path / f"{place}", "gense", 1, 0.2, model=model)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    picture = sweep_pictures(arms, choose_headline(arms, None))[0]
    figure = drawn(picture)
    (axes,) = figure.axes
    assert not [one for one in axes.get_children() if isinstance(one, AxesImage)]
    points = [one for one in axes.get_children() if isinstance(one, PathCollection)]
    assert sorted(x for one in points for x in one.get_offsets()[:, 0]) == pytest.approx(sorted(taus))
    assert axes.get_xscale() == "log"
    assert render(picture) == render(picture)  # the same bytes


def test_every_run_is_linked(run_folder, tmp_path):
    for seed in (1, 2, 3):
        run_folder(tmp_path / f"seed-{seed}", "one", seed, 0.2)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    one = compare(arms, choose_headline(arms, None), [])
    (board,) = [
        table for section in sections(one, tmp_path / "out") for table in section.tables if table.name == "leaderboard"
    ]
    targets = [target for _, target in board.rows[0][-1].links]
    assert len(targets) == 3
    assert all(((tmp_path / "out") / target).resolve().is_dir() for target in targets)


def test_an_encoder_that_is_missing_leaves_the_others_on_the_map(many):
    arms, headline = many
    rng = np.random.default_rng(0)
    probes = [probe(arm, ["a", "b", "c"], rng.standard_normal((3, 4)), "pca") for arm in arms[2:4]]
    found = compare(arms, headline, [], probes)
    text = [row[1] for row in space_plots.plane(arms, headline, probes).table.rows]
    assert len(text) == 2
    assert len(drawn(space_plots.sentence_map(probes, "pca")).axes) == 2
    assert found.probes[0].arm.label == arms[2].label
