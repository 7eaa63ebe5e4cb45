"""What lies beside triplets for a person: report.md, the same with plots as report.html, and a data card.

Texts are measured on a part of a large data set.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from files.whole import write_whole
from prompts import DIRECTIONS
from synthesis.report.gense_card import data_card, method_of
from synthesis.report.measures import Example, Measured, as_json, draw_examples, measure
from synthesis.report.plots import draw_triplet_plots
from synthesis.report.report import Report, Table, as_markdown, as_page
from synthesis.rules.triplet_rules import REASONS
from synthesis.shards.store import Entry, read_shard, shard_name

EXAMPLES = 8
SEED = 42
MEASURED = 50_000  # triplets at most, from shards spread evenly over the data set


def write_triplet_report(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """All three files; what the manifest says about the texts."""
    entries = list(_as_pairs(_part(folder, manifest)))
    directions = method_of(manifest["identity"]["scored"]).directions
    measured = measure(entries, directions)
    examples = draw_examples(entries, directions, EXAMPLES, SEED)
    report = _report(manifest, measured, examples)
    write_whole(folder / "report.md", as_markdown(report).encode())
    write_whole(folder / "report.html", as_page(report, _plots(report)).encode())
    write_whole(folder / "README.md", data_card(manifest).encode())
    return {"measures": as_json(measured)}


def _part(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Whole shards, as many as hold about MEASURED triplets."""
    shards = int(manifest["shards_planned"])
    every = max(1, manifest["counts"]["accepted"] // MEASURED)
    chosen: Iterable[int] = range(0, shards, every)
    rows = (row for number in chosen for row in read_shard(folder / shard_name(number)))
    yield from islice(rows, MEASURED)


def _as_pairs(triplets: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    for triplet in triplets:
        for direction in DIRECTIONS:
            if direction not in triplet:
                continue
            yield Entry(text_a=triplet["premise"], text_b=triplet[direction], label=direction)


def _report(manifest: Mapping[str, Any], measured: dict[str, Measured], examples: list[Example]) -> Report:
    counts = manifest["counts"]
    method = method_of(manifest["identity"]["scored"])
    judge = manifest["generator"]["name"]
    judged = f", judged by {judge}" if judge else ""
    lead = (
        f"{counts['accepted']:,} {method.rows} from {counts['inputs']:,} sentences ({counts['yield']:.1%}), "
        f"{method.made}{judged}." + ("" if manifest["complete"] else " It is not finished.")
    )
    curve = [_curve(manifest)] if judge else []
    tables = [_sentences(manifest), _rules(manifest), *curve, _texts(measured)]
    return Report(method.rows.capitalize(), lead, tables, examples, measured, dict(manifest))


def _sentences(manifest: Mapping[str, Any]) -> Table:
    found = manifest["sentences"]
    rows = [("texts of the input", f"{found['texts']:,}"), ("sentences in them", f"{found['sentences']:,}")]
    rows += [(f"left out: {reason}", f"{number:,}") for reason, number in found["left_out"].items()]
    rows += [("left", f"{found['kept']:,}")]
    return Table("Sentences", "What was given, and what was left out before anything else.", ("", "number"), rows)


def _rules(manifest: Mapping[str, Any]) -> Table:
    counts, broken = manifest["counts"], manifest["broken"]
    total = max(counts["samples"], 1)
    rows = [
        (reason, f"{counts['rejected'].get(reason, 0):,}", f"{broken[reason]:,}", f"{broken[reason] / total:.1%}")
        for reason in REASONS
        if reason in broken
    ]
    rows.append(("accepted", f"{counts['accepted']:,}", "", f"{counts['yield']:.1%}"))
    note = (
        "By the first rule that a sentence's triplet breaks; and by every rule, as if it were the only one. What is "
        "switched off is not listed."
    )
    return Table("Rules", note, ("rule", "left out", "break it", "share"), rows)


def _curve(manifest: Mapping[str, Any]) -> Table:
    total = max(manifest["counts"]["samples"], 1)
    rows = [
        (threshold, f"{number:,}", f"{number / total:.1%}")
        for threshold, number in manifest["accepted_at_threshold"].items()
    ]
    note = (
        "Triplets that would be accepted at other thresholds, the other rules as they are: recipe=gense_filter "
        "rules.threshold=... takes them without writing anything anew."
    )
    return Table("Threshold", note, ("threshold", "triplets", "yield"), rows)


def _texts(measured: Mapping[str, Measured]) -> Table:
    rows = [
        (
            label,
            f"{one.texts:,}",
            f"{one.mean_words:.1f}",
            f"{one.distinct_1:.3f}",
            f"{one.distinct_2:.3f}",
            f"{one.overlap:.3f}",
        )
        for label, one in measured.items()
    ]
    note = (
        f"Of accepted texts, {MEASURED:,} at most. distinct-n: different n-grams of words over all of them, of the "
        "first 20,000 texts. Overlap: mean Jaccard of the words of premise and text, case and punctuation left out."
    )
    return Table("Texts", note, ("", "texts", "words", "distinct-1", "distinct-2", "overlap"), rows)


def _plots(report: Report) -> str:
    manifest = report.manifest
    curve = manifest["accepted_at_threshold"] if manifest["generator"]["name"] else {}
    return "".join(draw_triplet_plots(report.measured, manifest["broken"], curve, manifest["counts"]["samples"]))
