"""Write the report of a comparison as HTML, Markdown, LaTeX, CSV, and JSON."""

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
from contrastive_encoders.comparison.probe_sentences import (
    ProbeEmbeddings,
    align_maps,
    displayed_rows,
    explorer,
    neighbor_table,
)
from contrastive_encoders.comparison.setting_figures import settings_figures
from contrastive_encoders.comparison.training_curves import curves_of, training
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports import curves, page
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Table
from contrastive_encoders.statistics.headline import RankingMetric

TITLE = "Comparison of encoders"
ASSETS = Path(__file__).parent


class Comparison(NamedTuple):
    arms: list[Arm]
    headline: RankingMetric
    contrasts: list[PairwiseComparison]
    standings: list[Standing]
    families: list[Family]  # families of tasks, that of the headline first
    skipped: list[SkippedRun]
    probes: list[ProbeEmbeddings]  # of the best arms that have an encoder; empty if none were requested
    budget: str = ""  # statement of a race about its budget
    recommendation: str = ""  # recommendation of a race that selects, which may be that no arm is recommended
    recommendation_tables: Sequence[Table] = ()  # queries before and after training, and how a value was selected


def build_comparison(
    arms: Sequence[Arm],
    headline: RankingMetric,
    skipped: Sequence[SkippedRun],
    probes: Sequence[ProbeEmbeddings] = (),
    **more: Any,
) -> Comparison:
    comparisons = contrasts(arms, headline)
    standings, families = ranking(arms, headline, comparisons), families_of(arms, headline)
    return Comparison(list(arms), headline, comparisons, standings, families, list(skipped), list(probes), **more)


def sections(one: Comparison, output: Path) -> list[ReportSection]:
    arms, headline, standings, comparisons = one.arms, one.headline, one.standings, one.contrasts
    probes = align_maps(one.probes)
    answers = tables.answer(arms, headline, standings, comparisons)
    board = tables.leaderboard(arms, headline, standings, output)
    contrast_table = tables.all_contrasts(arms, comparisons)
    displayed = displayed_rows(probes)
    parts: list[tuple[str, str, list[Any]]] = [
        (
            "recommended",
            "Before and after",
            [tables.skipped_runs(one.skipped) if one.recommendation else None, *one.recommendation_tables],
        ),
        (
            "ranking",
            "Ranking",
            [
                score_over_tokens(arms, headline),
                tables.scores_by_family(arms, one.families, standings) if len(one.families) > 1 else None,
                ranking_figures.dots(arms, headline, standings),
                answers,
                *tables.notes(arms, headline),
                one.budget,
                board,
                None if one.recommendation else tables.skipped_runs(one.skipped),
            ],
        ),
        (
            "tests",
            "Differences",
            [
                ranking_figures.differences(arms, headline, standings, comparisons),
                contrast_table if comparisons else None,
                tables.before_and_after(arms),
            ],
        ),
        ("tasks", "Tasks", [tables.task_scores(arms, one.families, standings)]),
        ("sweep", "Settings", [*settings_figures(arms, headline)]),
        ("training", "Training", [training(arms, headline)]),
        (
            "space",
            "Space",
            [
                space.plane(arms, headline, probes),
                space.similarities(arms, headline),
                space.sentence_map(probes, displayed),
                Markup('<div id="explorer"></div>') if displayed else None,
                neighbor_table(probes),
            ],
        ),
        ("leaks", "Leaks", [tables.leaks(arms)]),
        ("configs", "Configs", [*tables.configs(arms)]),
    ]
    all_sections = [ReportSection(title, [part for part in contents if part], name) for name, title, contents in parts]
    return [section for section in all_sections if section.parts]


def write_report(one: Comparison, output: Path, command: str = "") -> dict[str, Path]:
    """Write report.html, report.md, table.tex, table.csv, comparison.json, and pictures/. Return the paths by name."""
    pictures = output / "pictures"
    all_sections = sections(one, output)
    figures = [figure for section in all_sections for figure in section.figures]
    images = draw(figures, pdf=True)
    written = dict[str, Path]()
    for name, image in images.items():
        written[name] = pictures / f"{name}.png"
        atomic_write(written[name], image.png, sync=False)
        atomic_write(written[name].with_suffix(".svg"), image.svg, sync=False)
        atomic_write(written[name].with_suffix(".pdf"), image.pdf, sync=False)
    date = f"Written {datetime.now():%Y-%m-%d %H:%M}."
    html = page.page(
        TITLE,
        all_sections,
        [*lead(one), date],
        drawn=images,
        style=(ASSETS / "explore.css").read_text(encoding="utf-8"),
        key=[arm.label for arm in one.arms],
        **_scripts(one, figures=images.keys()),
    )
    for name, text in (
        (PAGE, html),
        (MARKDOWN, page.to_markdown(TITLE, [_without_shared_configs(section) for section in all_sections], lead(one))),
        (LATEX, latex_table.format_latex(one.arms, one.families, one.standings, command)),
        (CSV, latex_table.format_csv(one.arms, one.families, one.standings)),
        (NUMBERS, json.dumps(_numbers(one, all_sections), indent=1, ensure_ascii=False, allow_nan=False) + "\n"),
    ):
        written[name] = output / name
        atomic_write(written[name], text)
    return written


def _scripts(one: Comparison, figures: Collection[str]) -> dict[str, Any]:
    """Return the JavaScript of the interactive figures on the page, with the data that they show."""
    scripts, data = list[str](), dict[str, Any]()
    if "training-score" in figures:
        scripts.append(curves.script())
        data["curves"] = curves.data_of(curves_of(one.arms))
    if "map" in figures:
        scripts.append((ASSETS / "explore.js").read_text(encoding="utf-8"))
        data["explorer"] = explorer(one.probes, displayed_rows(one.probes))
    return {"scripts": scripts, "data": data}


def _without_shared_configs(section: ReportSection) -> ReportSection:
    """Return a copy of a section without the table of the settings that all arms share."""
    parts = [part for part in section.parts if not (isinstance(part, Table) and part.name == "configs-shared")]
    return section._replace(parts=parts)


def lead(one: Comparison) -> list[str]:
    runs = sum(len(arm.runs) for arm in one.arms)
    recommendation = [one.recommendation] if one.recommendation else []
    return [
        *recommendation,
        f"{count_of(runs, 'run')} of {count_of(len(one.arms), 'arm')}, "
        f"ranked by {one.headline.name}"
        + (f", the average of {', '.join(one.headline.scores)}." if len(one.headline.scores) > 1 else "."),
    ]


def _numbers(one: Comparison, all_sections: Sequence[ReportSection]) -> dict[str, Any]:
    """Return the content of comparison.json: the ranking, differences, and tables with unrounded values."""

    return {
        "headline": {"name": one.headline.name, "tasks": one.headline.scores},
        **({"recommended": one.recommendation} if one.recommendation else {}),
        "arms": {arm.label: [str(run.path) for run in arm.runs] for arm in one.arms},
        "ranking": [
            {"arm": one.arms[place.arm].label, "best": place.best_rank, "worst": place.worst_rank}
            for place in one.standings
        ],
        "differences": [
            {
                **comparison._asdict(),
                "first": one.arms[comparison.first].label,
                "second": one.arms[comparison.second].label,
                "distinguishable": comparison.distinguishable,
            }
            for comparison in one.contrasts
        ],
        "left_out": {str(comparison.path): comparison.reason for comparison in one.skipped},
        "tables": {
            table.name: {"columns": [column.heading for column in table.columns], "rows": table.numbers()}
            for section in all_sections
            for table in section.tables
            if not table.name.startswith("configs")
        },
    }
