"""What lies beside triplets for a person: report.md, the same with plots as report.html, and a data card.

Texts are measured on a part of a large data set.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from files.page import Section
from files.tables import Column, Table, columns
from prompts import DIRECTIONS
from synthesis.report.cards import Method, method_of, write_triplet_card
from synthesis.report.measures import Measured, as_json, draw_examples, measure
from synthesis.report.plots import draw_triplet_plots
from synthesis.report.report import EXAMPLES, SEED, unfinished, write_both
from synthesis.rules.triplet_rules import REASONS
from synthesis.shards.store import Entry, read_shard, shard_name

MEASURED = 50_000  # triplets at most, from shards spread evenly over the data set


def write_triplet_report(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write all three files; what the manifest says about the texts."""
    counts, judge = manifest["counts"], manifest["generator"]["name"]
    method = method_of(manifest)
    entries = list(_as_pairs(_part(folder, manifest)))
    measured = measure(entries, method.directions)
    curve = manifest["accepted_at_threshold"] if judge else {}
    sections = [_sentences(manifest), _rules(manifest), *([_curve(curve, counts)] if judge else []), _texts(measured)]
    write_both(
        folder, method.rows.capitalize(), _lead(manifest, method), sections,
        draw_triplet_plots(measured, manifest["broken"], curve, counts["samples"]),
        draw_examples(entries, method.directions, EXAMPLES, SEED),
    )  # fmt: skip
    write_triplet_card(folder, manifest)
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


def _lead(manifest: dict[str, Any], method: Method) -> str:
    counts, judge = manifest["counts"], manifest["generator"]["name"]
    return (
        f"{counts['accepted']:,} {method.rows} from {counts['inputs']:,} sentences ({counts['yield']:.1%}), "
        f"{method.made}{f', judged by {judge}' if judge else ''}." + unfinished(manifest)
    )


def _sentences(manifest: Mapping[str, Any]) -> Section:
    found = manifest["sentences"]
    rows = [("texts of the input", found["texts"]), ("sentences in them", found["sentences"])]
    rows += [(f"left out: {reason}", number) for reason, number in found["left_out"].items()]
    table = Table([Column(""), Column("number", ",")], [*rows, ("left", found["kept"])])
    return Section("Sentences", ["What was given, and what was left out before anything else.", table])


def _rules(manifest: Mapping[str, Any]) -> Section:
    counts, broken = manifest["counts"], manifest["broken"]
    total = max(counts["samples"], 1)
    rows = [
        (reason, counts["rejected"].get(reason, 0), broken[reason], broken[reason] / total)
        for reason in REASONS
        if reason in broken
    ]
    note = (
        "By the first rule that a sentence's triplet breaks; and by every rule, as if it were the only one. What is "
        "switched off is not listed."
    )
    heads = [Column("rule"), *columns("left out", "break it", number=","), Column("share", ".1%")]
    return Section("Rules", [note, Table(heads, [*rows, ("accepted", counts["accepted"], None, counts["yield"])])])


def _curve(curve: Mapping[str, int], counts: Mapping[str, Any]) -> Section:
    rows = [(threshold, number, number / max(counts["samples"], 1)) for threshold, number in curve.items()]
    note = (
        "Triplets that would be accepted at other thresholds, the other rules as they are: recipe=gense_filter "
        "rules.threshold=... takes them without writing anything anew."
    )
    return Section(
        "Threshold", [note, Table([Column("threshold"), Column("triplets", ","), Column("yield", ".1%")], rows)]
    )


def _texts(measured: Mapping[str, Measured]) -> Section:
    rows = [
        (direction, one.texts, one.mean_words, one.distinct_1, one.distinct_2, one.overlap)
        for direction, one in measured.items()
    ]
    note = (
        f"Of accepted texts, {MEASURED:,} at most. distinct-n: different n-grams of words over all of them, of the "
        "first 20,000 texts. Overlap: mean Jaccard of the words of premise and text, case and punctuation left out."
    )
    heads = [
        Column(""), Column("texts", ","), Column("words", ".1f"),
        *columns("distinct-1", "distinct-2", "overlap", number=".3f"),
    ]  # fmt: skip
    return Section("Texts", [note, Table(heads, rows)])
