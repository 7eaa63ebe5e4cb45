"""The report of a comparison as HTML, Markdown and JSON."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from contrastive_encoders.comparison import latex_table, ranking_figures, tables
from contrastive_encoders.comparison import vector_figures as space
from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.budget_figures import score_over_tokens
from contrastive_encoders.comparison.collect import SkippedRun
from contrastive_encoders.comparison.contrasts import PairwiseComparison, Standing, contrasts, ranking
from contrastive_encoders.comparison.families import Family, families_of
from contrastive_encoders.comparison.outputs import CSV, LATEX, MARKDOWN, NUMBERS, PAGE
from contrastive_encoders.comparison.probe_sentences import ProbeEmbeddings, explorer, neighbors, shown_of, turned
from contrastive_encoders.comparison.setting_figures import settings_figures
from contrastive_encoders.comparison.training_curves import curves_of, training
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports import curves, page
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Table
from contrastive_encoders.statistics.headline import RankingMetric

TITLE = "Objectives head to head"
HERE = Path(__file__).parent


class Comparison(NamedTuple):
    arms: list[Arm]
    headline: RankingMetric
    contrasts: list[PairwiseComparison]
    standings: list[Standing]
    families: list[Family]  # families of tasks, that of the headline first
    left_out: list[SkippedRun]
    probes: list[ProbeEmbeddings]  # of the best arms that have an encoder; empty if none were requested
    spent_alike: str = ""  # statement of a race about its budget
    recommended: str = ""  # recommendation of a race that selects, which may be that no arm is recommended
    shown: Sequence[Table] = ()  # tables after it: queries before and after training, and how a value was selected


def compare(
    arms: Sequence[Arm],
    headline: RankingMetric,
    left_out: Sequence[SkippedRun],
    probes: Sequence[ProbeEmbeddings] = (),
    **more: Any,
) -> Comparison:
    found = contrasts(arms, headline)
    standings, families = ranking(arms, headline, found), families_of(arms, headline)
    return Comparison(list(arms), headline, found, standings, families, list(left_out), list(probes), **more)


def sections(one: Comparison, output: Path) -> list[ReportSection]:
    arms, headline, standings, found = one.arms, one.headline, one.standings, one.contrasts
    probes = turned(one.probes)
    answers = tables.answer(arms, headline, standings, found)
    board = tables.leaderboard(arms, headline, standings, output)
    every = tables.all_contrasts(arms, found)
    shown = shown_of(probes)
    parts: list[tuple[str, str, list[Any]]] = [
        ("recommended", "Before and after", [*one.shown]),
        (
            "ranking",
            "Ranking",
            [
                score_over_tokens(arms, headline),
                tables.scores_by_family(arms, one.families, standings) if len(one.families) > 1 else None,
                ranking_figures.dots(arms, headline, standings),
                answers,
                *tables.seeds_said(arms),
                one.spent_alike,
                board,
                tables.left_out(one.left_out),
            ],
        ),
        (
            "tests",
            "Differences",
            [
                ranking_figures.differences(arms, headline, standings, found),
                every if found else None,
                tables.before_and_after(arms),
            ],
        ),
        ("tasks", "Tasks", [tables.task_scores(arms, one.families, standings)]),
        ("sweep", "Settings", [*settings_figures(arms, headline)]),
        ("training", "Training", [training(arms)]),
        (
            "space",
            "Space",
            [
                space.plane(arms, headline, probes),
                space.similarities(arms, headline),
                space.sentence_map(probes, shown),
                Markup('<div id="explorer"></div>') if shown else None,
                neighbors(probes),
            ],
        ),
        ("leaks", "Leaks", [tables.leaks(arms)]),
        ("configs", "Configs", [*tables.configs(arms)]),
    ]
    whole = [ReportSection(title, [part for part in held if part], name) for name, title, held in parts]
    return [section for section in whole if section.parts]


def write_report(one: Comparison, output: Path, command: str = "") -> dict[str, Path]:
    """Write report.html, report.md, table.tex, table.csv, comparison.json and pictures/; return the files by name."""
    pictures = output / "pictures"
    whole = sections(one, output)
    figures = [figure for section in whole for figure in section.figures]
    drawn = draw(figures, pdf=True)
    written = dict[str, Path]()
    for name, found in drawn.items():
        written[name] = pictures / f"{name}.png"
        atomic_write(written[name], found.png, sync=False)
        atomic_write(written[name].with_suffix(".svg"), found.svg, sync=False)
        atomic_write(written[name].with_suffix(".pdf"), found.pdf, sync=False)
    when = f"Written {datetime.now():%Y-%m-%d %H:%M}."
    html = page.page(
        TITLE,
        whole,
        [*lead(one), when],
        drawn=drawn,
        style=(HERE / "explore.css").read_text(encoding="utf-8"),
        key=[arm.label for arm in one.arms],
        **_scripts(one, figures=drawn.keys()),
    )
    for name, text in (
        (PAGE, html),
        (MARKDOWN, page.in_markdown(TITLE, [_of_markdown(section) for section in whole], lead(one))),
        (LATEX, latex_table.in_latex(one.arms, one.families, one.standings, command)),
        (CSV, latex_table.in_csv(one.arms, one.families, one.standings)),
        (NUMBERS, json.dumps(_numbers(one, whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"),
    ):
        written[name] = output / name
        atomic_write(written[name], text)
    return written


def _scripts(one: Comparison, figures: Collection[str]) -> dict[str, Any]:
    """Return the scripts of a page, and their data."""
    scripts, data = list[str](), dict[str, Any]()
    if "training-score" in figures:
        scripts.append(curves.script())
        data["curves"] = curves.data_of(curves_of(one.arms))
    if "map" in figures:
        scripts.append((HERE / "explore.js").read_text(encoding="utf-8"))
        data["explorer"] = explorer(one.probes, shown_of(one.probes))
    return {"scripts": scripts, "data": data}


def _of_markdown(section: ReportSection) -> ReportSection:
    """Return the section without the settings that are equal in all arms."""
    kept = [part for part in section.parts if not (isinstance(part, Table) and part.name == "configs-shared")]
    return section._replace(parts=kept)


def lead(one: Comparison) -> list[str]:
    runs = sum(len(arm.runs) for arm in one.arms)
    said = [one.recommended] if one.recommended else []
    return [
        *said,
        f"{runs} {'run' if runs == 1 else 'runs'} of {'one arm' if len(one.arms) == 1 else f'{len(one.arms)} arms'}, "
        f"ranked by {one.headline.name}"
        + (f", the average of {', '.join(one.headline.scores)}." if len(one.headline.scores) > 1 else "."),
    ]


def _numbers(one: Comparison, whole: Sequence[ReportSection]) -> dict[str, Any]:
    """Return the tables with unrounded values, for programs."""

    return {
        "headline": {"name": one.headline.name, "tasks": one.headline.scores},
        **({"recommended": one.recommended} if one.recommended else {}),
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
            if not table.name.startswith("configs")
        },
    }
