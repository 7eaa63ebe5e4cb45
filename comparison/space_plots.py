"""What is drawn of the vectors: similarities against ratings, alignment and uniformity, the map of sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from comparison.arms import Arm
from comparison.contrasts import Headline, values_of
from comparison.drawing import ACROSS, INK, Picture, colour, legend, legend_height, marker, panels, wrapped
from comparison.probes import Probe
from comparison.statistics import spread
from comparison.tables import NUMBER
from files.tables import Column, Table, columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANDS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5.01))  # of ratings from 0 to 5
SHOWN = 8  # arms with panels of their own: the best
PLANE = 6.4  # inches


def best(arms: Sequence[Arm], headline: Headline) -> list[Arm]:
    """``SHOWN`` of them, by their mean, in the order in which they were given."""
    means = [spread(values_of(arm, headline, headline.name)).mean for arm in arms]
    chosen = sorted(sorted(range(len(arms)), key=lambda place: -means[place])[:SHOWN])
    return [arms[place] for place in chosen]


def similarities(arms: Sequence[Arm], headline: Headline) -> Picture | None:
    """How cosines of pairs of one rating lie, for the first run of each of the best arms."""
    shown = best(arms, headline)
    tasks = sorted((score.split("/")[0] for score in headline.tasks), key=lambda task: task != "stsb")
    first = [arm.runs[0].items for arm in shown]
    task = next((one for one in tasks if all(items is not None and one in items.cosines for items in first)), None)
    if task is None:
        return None

    def draw(figure: "Figure") -> None:
        for axes, arm in zip(panels(figure, len(shown), sharey=True), shown, strict=True):
            items = arm.runs[0].items
            assert items is not None
            cosines, gold = items.cosines[task], items.gold[task]
            # untrained encoders have all cosines near 1: each panel has its own range
            edges = np.linspace(float(np.quantile(cosines, 0.005)), float(cosines.max()) + 1e-9, 26)
            for place, (low, high) in enumerate(BANDS):
                inside = cosines[(gold >= low) & (gold < high)]
                counts, _ = np.histogram(inside, edges)
                axes.stairs(
                    counts / (counts.max() or 1) * 0.9 + place, edges,
                    baseline=place, fill=True, color=colour(0), alpha=0.35 + 0.13 * place,
                )  # fmt: skip
            axes.set_yticks(np.arange(5) + 0.4, ["0 to 1", "1 to 2", "2 to 3", "3 to 4", "4 to 5"])
            axes.set_title(wrapped(arm.label), fontsize=9, color=INK)
            axes.locator_params(axis="x", nbins=4)
            axes.set_xlabel("cosine")
        figure.supylabel(f"rating in {task}", fontsize=9)

    caption = (
        f"Cosines of the pairs of {task} by their rating, first run of each arm{_of(arms, shown)}. Each panel has its "
        "own range of cosines; better encoders move the rows apart."
    )
    across, down = min(ACROSS, len(shown)), -(-len(shown) // ACROSS)
    size = (max(4.0, 2.4 * across + 0.6), 3.2 * down)
    return Picture("similarities", "Similarities against ratings", caption, size, draw)


def _of(arms: Sequence[Arm], shown: Sequence[Arm]) -> str:
    return f" (the best {len(shown)} of {len(arms)})" if len(shown) < len(arms) else ""


def plane(arms: Sequence[Arm], headline: Headline, probes: Sequence[Probe]) -> Picture | None:
    """Alignment and uniformity of each probed run, its score in the legend; towards the lower left is better."""
    known = [probe for probe in probes if probe.alignment is not None]
    if not known:
        return None
    means = [spread(values_of(probe.arm, headline, headline.name)).mean for probe in known]
    places = _places(arms)
    labels = [f"{probe.arm.label}: {mean:.2f}" for probe, mean in zip(known, means, strict=True)]

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for probe, label in zip(known, labels, strict=True):
            place = places[probe.arm.label]
            axes.scatter(
                [probe.uniformity], [float(probe.alignment or 0)], s=70, color=colour(place), marker=marker(place),
                label=label,
            )  # fmt: skip
        axes.set(xlabel="uniformity (lower: spread out)", ylabel="alignment (lower: pairs close)")
        axes.margins(0.15)
        axes.grid(alpha=0.25)
        legend(figure, PLANE)

    rows = [[one.arm.label, one.alignment, one.uniformity, mean] for one, mean in zip(known, means, strict=True)]
    heads = [Column("arm"), *columns("alignment", "uniformity", number="z,.3f"), Column(headline.name, NUMBER)]
    table = Table(heads, rows, "Alignment and uniformity", name="plane")
    caption = (
        f"Wang and Isola's plane, of each arm's first run, with its {headline.name}: towards the lower left is better."
    )
    size = (PLANE, 3.9 + legend_height(labels, PLANE))
    return Picture("plane", "Alignment and uniformity", caption, size, draw, table)


def _places(arms: Sequence[Arm]) -> dict[str, int]:
    return {arm.label: place for place, arm in enumerate(arms)}


def sentence_map(probes: Sequence[Probe], how: str) -> Picture | None:
    """The sentences in two dimensions under each arm's first encoder, in the first map's colours."""
    if not probes or not len(probes[0].sentences):
        return None
    shade = stats.rankdata(probes[0].places[:, 0])

    def draw(figure: "Figure") -> None:
        for axes, probe in zip(panels(figure, len(probes)), probes, strict=True):
            axes.scatter(probe.places[:, 0], probe.places[:, 1], c=shade, cmap="viridis", s=11, alpha=0.8, linewidths=0)
            axes.set_title(wrapped(probe.arm.label, 34), fontsize=9, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])

    caption = f"{len(probes[0].sentences)} sentences by {how}, first run of each arm; coloured as in the first map."
    across, down = min(ACROSS, len(probes)), -(-len(probes) // ACROSS)
    return Picture("map", "Map of sentences", caption, (max(4.5, 3.3 * across), 3.4 * down), draw)
