"""Compare several encoders on the same tasks: one table of scores, with paired differences from the first encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError, ItemScores, Results
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.core.shared_texts import overlap_warnings
from contrastive_encoders.evaluation.paper_tables import shown_score
from contrastive_encoders.reports.page import ReportSection, to_markdown
from contrastive_encoders.reports.tables import CODE, Cell, Column, Table, columns
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.verdict import add_items_before, compute_verdict

VERDICTS = {"better": " better", "worse": " worse", "inconclusive": ""}
SUFFIXES = (".ckpt", ".gguf", ".txt", ".vec")  # endings of encoders that are files
NOT_NAMES = {"encoder", "model"}  # directories that are named after their parents
NOTE = (
    "Differences are relative to {first}, with 95 % intervals of a paired bootstrap over test items. For retrieval, a "
    "permutation test over queries has to agree before an encoder is called better or worse."
)


class EncoderScores(NamedTuple):
    """The results of an encoder, and its scores of single test items."""

    name: str
    results: Results
    items: ItemScores | None


def short_names(encoders: Sequence[str]) -> list[str]:
    """Return a short, unique name for each encoder: the end of its path, without generic directories.

    Raises:
        InputError: two names are equal.
    """
    if len(set(encoders)) < len(encoders):
        raise InputError(
            key="encoder",
            value=f"[{','.join(encoders)}]",
            expected="different encoders",
            hint="List each encoder once.",
        )
    paths = [Path(one).with_suffix("") if Path(one).suffix in SUFFIXES else Path(one) for one in encoders]
    parts = [[part for part in one.parts if part not in NOT_NAMES] or [str(one)] for one in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["-".join(part[-depth:]).strip("/.-") or one for part, one in zip(parts, encoders, strict=True)]
        if len(set(names)) == len(names):
            return names
    return list(encoders)


def differences(scored: Sequence[EncoderScores]) -> Table:
    """Return a table of the scores that all encoders have in common, with the differences from the first encoder."""
    first, *others = scored
    shared = [name for name in first.results["scores"] if all(name in one.results["scores"] for one in others)]
    rows = list[list[str | Cell]]()
    for name in shared:
        values = [one.results["scores"][name] for one in scored]
        cells: list[str | Cell] = [Cell(name, mark=CODE), *(shown_score(name, value) for value in values)]
        for one in others:
            cells.append(_difference(name, first, one))
        rows.append(cells)
    heads = [Column("task / protocol / metric"), *columns(*(one.name for one in scored), right=True)]
    heads += columns(*(f"{one.name} - {first.name}" for one in others), right=True)
    return Table(heads, rows, "Scores and differences from the first encoder", NOTE.format(first=first.name))


def _difference(name: str, first: EncoderScores, other: EncoderScores) -> str:
    """Format the difference of two encoders' scores, with its interval and, if distinguishable, the better encoder."""
    before, after = first.results["scores"], other.results["scores"]
    if first.items is None or other.items is None:
        return _with_sign(name, after[name] - before[name])
    score = ScoreName.parse(name)
    headline = RankingMetric.mean_of([name], less_is_better=not score.higher_is_better)
    verdict = compute_verdict(headline, before, after, add_items_before(other.items, first.items))
    bounds = verdict["interval"]
    interval = f" ({' to '.join(_with_sign(name, bound) for bound in bounds)})" if bounds else ""
    has_better = score.protocol != "geometry" and not score.metric.startswith("median-rank")
    suffix = VERDICTS[verdict["outcome"]] if has_better else ""
    return f"{_with_sign(name, after[name] - before[name])}{interval}{suffix}"


def _with_sign(name: str, value: float) -> str:
    return f"{'+' if value >= 0 else ''}{shown_score(name, value)}"


def markdown(scored: Sequence[EncoderScores], table: Table) -> str:
    """Return the table as a Markdown page, with the path of each encoder and warnings about its training data."""
    paths = ", ".join(f"{one.name}: {one.results['backbone']}" for one in scored)
    warnings = [f"{one.name}: {line}" for one in scored for line in overlap_warnings(one.results.get("overlap", {}))]
    section = ReportSection(table.title, [table._replace(title=""), *warnings])
    return to_markdown("Scores of several encoders", [section], [paths])
