"""Upload the tables, figures, and a summary of a comparison to W&B."""

import math
from pathlib import Path

from contrastive_encoders.comparison.contrasts import values_of
from contrastive_encoders.comparison.report import Comparison
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Cell
from contrastive_encoders.statistics.paired_tests import spread


def _value(cell: Cell, numeric: bool) -> float | str | None:
    """Convert a table cell for W&B: to a number, so that W&B can sort and plot it, or to a string."""
    if not numeric or " to " in cell.text:
        return cell.text
    return cell.sort if isinstance(cell.sort, int | float) and math.isfinite(cell.sort) and cell.text else None


def upload(
    comparison: Comparison,
    all_sections: list[ReportSection],
    written: dict[str, Path],
    project: str,
    name: str,
    offline: bool,
) -> str:
    """Upload a comparison to W&B. Its summary contains ``comparison/ARM/mean``, ``/sd``, and ``/rank`` of each arm.

    Returns:
        The id of the W&B run.
    """
    import wandb

    headline, folder = comparison.headline, written["report.html"].parent
    run = wandb.init(
        project=project,
        name=name,
        job_type="comparison",
        dir=str(folder),
        mode="offline" if offline else None,
        config={"headline": headline.name, "tasks": headline.scores, "arms": [arm.label for arm in comparison.arms]},
    )
    content = dict[str, object]()
    for section in all_sections:
        for table in section.tables:
            heads = table.columns
            rows = [
                [_value(cell, head.align_right) for cell, head in zip(row, heads, strict=True)] for row in table.cells()
            ]
            content[f"comparison/{table.name}"] = wandb.Table(columns=[head.heading for head in heads], data=rows)
        for figure in section.figures:
            content[f"comparison/{figure.name}-picture"] = wandb.Image(
                str(written[figure.name]), caption=figure.caption
            )
    content["comparison/report"] = wandb.Html(written["report.html"].read_text(encoding="utf-8"), inject=False)
    run.log(content)
    for standing in comparison.standings:
        arm = comparison.arms[standing.arm]
        score = spread(values_of(arm, headline))
        run.summary[f"comparison/{arm.label}/mean"] = score.mean
        run.summary[f"comparison/{arm.label}/sd"] = score.deviation
        run.summary[f"comparison/{arm.label}/rank"] = standing.best_rank
    run.finish()
    return str(run.id)
