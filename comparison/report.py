"""A comparison as a page, as Markdown with pictures, and as numbers; all of them from the same tables and drawings."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from comparison import plots, space_plots, tables
from comparison.arms import Arm
from comparison.collect import LeftOut
from comparison.contrasts import Contrast, Headline, Standing, contrasts, ranking
from comparison.drawing import Picture, Rendered, render
from comparison.probes import Probe, neighbours
from comparison.sweep_plots import sweep_pictures
from files import page
from files.claims import MARK, leave_mark, refuse_others
from files.manifest import Damaged, read_record
from files.tables import Table
from files.whole import write_whole

PAGE, MARKDOWN, NUMBERS = "report.html", "report.md", "comparison.json"
TITLE = "Objectives head to head"
STYLE = "tbody th { min-width: 13rem; }"


class Comparison(NamedTuple):
    arms: list[Arm]
    headline: Headline
    contrasts: list[Contrast]
    standings: list[Standing]
    left_out: list[LeftOut]
    probes: list[Probe]  # of the best arms that have an encoder; empty where none was wanted
    projection: str = "pca"
    spent_alike: str = ""  # what a race says of its budget


class Section(NamedTuple):
    name: str
    title: str
    said: list[str]
    pictures: list[Picture]
    tables: list[Table]


def compare(
    arms: Sequence[Arm], headline: Headline, left_out: Sequence[LeftOut], probes: Sequence[Probe] = (), **more: str
) -> Comparison:
    found = contrasts(arms, headline)
    return Comparison(list(arms), headline, found, ranking(arms, headline, found), list(left_out), list(probes), **more)


def sections(one: Comparison, output: Path, neighbours_of: int = 5) -> list[Section]:
    arms, headline = one.arms, one.headline
    said = tables.said_aloud(arms, headline, one.standings, one.contrasts)
    found = [
        Section("ranking", "Ranking", [*([one.spent_alike] if one.spent_alike else []), *said],
                [plots.leaderboard(arms, headline, one.standings)],
                [tables.leaderboard(arms, headline, one.standings, output), *_some(tables.left_out(one.left_out))]),
        Section("tests", "Differences", [], [], [tables.all_contrasts(arms, one.contrasts)] if one.contrasts else []),
        Section("tasks", "Tasks", [], _some(plots.subsets(arms, headline)), [tables.task_scores(arms, headline)]),
        Section("sweep", "Settings", [], sweep_pictures(arms, headline), []),
        Section("training", "Training", [], plots.curves(arms), []),
        Section("space", "Space", [],
                _some(space_plots.plane(arms, headline, one.probes), space_plots.similarities(arms, headline),
                      space_plots.sentence_map(one.probes, one.projection)),
                _some(neighbours(one.probes, neighbours_of))),
        Section("leaks", "Leaks", [], [], _some(tables.leaks(arms))),
        Section("configs", "Configs", [], [], [tables.configs(arms)]),
    ]  # fmt: skip
    return [section for section in found if section.pictures or section.tables]


def write_report(one: Comparison, output: Path, neighbours_of: int = 5) -> dict[str, Path]:
    """report.html, report.md, comparison.json and pictures/; what was written, by its name.

    Raises:
        InputError: a file of another's has one of these names.
    """
    pictures = output / "pictures"
    whole = sections(one, output, neighbours_of)
    names = [f"pictures/{picture.name}.png" for section in whole for picture in section.pictures]
    check_replaceable(output, names)
    leave_mark(output, [PAGE, MARKDOWN, NUMBERS, *names])
    drawn = {picture.name: render(picture) for section in whole for picture in section.pictures}
    written = dict[str, Path]()
    for name, rendered in drawn.items():
        written[name] = pictures / f"{name}.png"
        write_whole(written[name], rendered.png, sync=False)
    when = f"Written {datetime.now():%Y-%m-%d %H:%M}."
    on_page = [_of_page(section, drawn) for section in whole]
    for name, text in (
        (PAGE, page.page(TITLE, on_page, [*lead(one), when], style=STYLE, interactive=True)),
        (MARKDOWN, page.in_markdown(TITLE, [_of_markdown(section) for section in whole], lead(one))),
        (NUMBERS, json.dumps(_numbers(one, whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"),
    ):
        written[name] = output / name
        write_whole(written[name], text)
    return written


def check_replaceable(output: Path, pictures: Sequence[str] = ()) -> None:
    """Check that what the report replaces is an earlier one's: by its mark, or by the numbers that all have left.

    Raises:
        InputError: it is not.
    """
    try:
        before = read_record(output / NUMBERS)
    except (OSError, Damaged):
        before = {}
    earlier = not (output / MARK).exists() and {"headline", "arms", "ranking"} <= before.keys()
    refuse_others("output", output, (PAGE, MARKDOWN, NUMBERS, *pictures), known=lambda name: earlier)


def _of_page(section: Section, drawn: dict[str, Rendered]) -> page.Section:
    pictures = [page.Picture(one.title, drawn[one.name].svg, one.caption) for one in section.pictures]
    behind = [one.table._replace(folded=True) for one in section.pictures if one.table]
    return page.Section(section.title, [*section.said, *pictures, *section.tables, *behind], section.name)


def _of_markdown(section: Section) -> page.Section:
    """Of the configs only what differs."""
    pictures = [page.Picture(one.title, b"", one.caption, one.name) for one in section.pictures]
    tables = [
        one._replace(rows=[row for row in one.rows if one.name != "configs" or row[1].mark]) for one in section.tables
    ]
    return page.Section(section.title, [*section.said, *pictures, *tables], section.name)


def lead(one: Comparison) -> list[str]:
    runs = sum(len(arm.runs) for arm in one.arms)
    return [
        f"{runs} runs of {len(one.arms)} arms, ranked by {one.headline.name}"
        + (f", the average of {', '.join(one.headline.tasks)}." if len(one.headline.tasks) > 1 else ".")
    ]


def _numbers(one: Comparison, whole: Sequence[Section]) -> dict[str, Any]:
    """For programs: the tables with unrounded values."""

    return {
        "headline": one.headline._asdict(),
        "arms": {arm.label: [str(run.path) for run in arm.runs] for arm in one.arms},
        "ranking": [
            {"arm": one.arms[place.arm].label, "best": place.best_rank, "worst": place.worst_rank}
            for place in one.standings
        ],
        "differences": [
            {
                **found._asdict(),
                "first": one.arms[found.first].label,
                "second": one.arms[found.second].label,
                "distinguishable": found.distinguishable,
            }
            for found in one.contrasts
        ],
        "left_out": {str(found.path): found.reason for found in one.left_out},
        "tables": {
            table.name: {"columns": [column.heading for column in table.columns], "rows": table.numbers()}
            for section in whole
            for table in section.tables
            if table.name != "configs"
        },
    }


def _some(*parts: Any) -> list[Any]:
    return [part for part in parts if part is not None]
