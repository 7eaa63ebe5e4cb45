"""What lies beside triplets for a person: report.html, report.md with pictures, and a data card.

Texts are measured on a part of a large data set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from files.figure import Figure
from files.page import Section
from files.tables import Column, Table, beginning, columns
from prompts import DIRECTIONS
from synthesis.report import figures, wall
from synthesis.report.cards import Method, method_of, write_triplet_card
from synthesis.report.doubles import doubles_section
from synthesis.report.figures import ACCEPTED
from synthesis.report.measures import Measured, as_json, draw_examples, measure
from synthesis.report.report import EXAMPLES, SEED, Encoder, Wall, distributions, mean, unfinished, write_both
from synthesis.report.wall import ReportText
from synthesis.rules.triplet_rules import DECISION_BOUNDARY, REASONS
from synthesis.rules.triplets import LABEL
from synthesis.shards.store import Entry, ShardStore, read_shard, shard_name

MOST_DISAGREED = 40  # of a table
MEASURED = 50_000  # triplets at most, from shards spread evenly over the data set


def write_triplet_report(folder: Path, manifest: dict[str, Any], encoder: Encoder | None = None) -> dict[str, Any]:
    """Write all of it; what the manifest says about the texts."""
    counts, judge = manifest["counts"], manifest["generator"]["name"]
    method = method_of(manifest)
    triplets = list(_part(folder, manifest))
    entries = list(_as_pairs(triplets))
    measured = measure(entries, method.directions)
    store, shards = ShardStore(folder), manifest["shards_planned"]
    records = store.records(shards)
    shown = wall.draw_wall(_as_shown(triplets), store.left_out(shards), method.directions, SEED)
    if encoder is not None:
        shown = wall.with_cosines(shown, encoder.embed)
    sections = [
        _sentences(manifest),
        _rules(manifest, [figures.over_time(records, [LABEL])]),
        *([_curve(manifest["accepted_at_threshold"], counts)] if judge else []),
        *_disagreed(manifest.get("answers", {}), shown),
        _texts(measured, shown, distributions(measured, shown, encoder, pairs=True)),
        doubles_section(_as_shown(triplets)),
    ]
    texts = len(method.directions)  # of a row
    write_both(
        folder,
        method.rows.capitalize(),
        _lead(manifest, method),
        sections,
        Wall(shown, method.directions, counts["accepted"] * texts, wall.counted(counts) * texts),
        draw_examples(entries, method.directions, EXAMPLES, SEED),
    )
    if encoder is None:  # a report that is written again leaves the card, in which somebody may have written
        write_triplet_card(folder, manifest)
    return {"measures": as_json(measured)}


def _as_shown(triplets: Iterable[Mapping[str, Any]]) -> Iterator[ReportText]:
    for triplet in triplets:
        for direction in DIRECTIONS:
            if direction in triplet:
                yield ReportText(triplet["premise"], triplet[direction], direction, ACCEPTED, triplet[f"p_{direction}"])


def _part(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Whole shards, as many as hold about MEASURED triplets."""
    shards = int(manifest["shards_planned"])
    every = max(1, manifest["counts"]["accepted"] // MEASURED)
    rows = (row for number in range(0, shards, every) for row in read_shard(folder / shard_name(number)))
    yield from islice(rows, MEASURED)


def _as_pairs(triplets: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    for triplet in triplets:
        for direction in DIRECTIONS:
            if direction in triplet:
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


def _rules(manifest: Mapping[str, Any], more: Sequence[Figure | None]) -> Section:
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
    table = Table(heads, [*rows, ("accepted", counts["accepted"], None, counts["yield"])])
    drawn = [figures.rules(broken, counts["samples"])] if broken else []
    return Section("Rules", [note, table, *drawn, *(figure for figure in more if figure)])


def _curve(curve: Mapping[str, int], counts: Mapping[str, Any]) -> Section:
    rows = [(threshold, number, number / max(counts["samples"], 1)) for threshold, number in curve.items()]
    note = (
        "Triplets that would be accepted at other thresholds, the other rules as they are: recipe=gense_filter "
        "rules.threshold=... takes them without writing anything anew."
    )
    table = Table([Column("threshold"), Column("triplets", ","), Column("yield", ".1%")], rows)
    return Section("Threshold", [note, table, figures.thresholds(curve, counts["samples"])])


def _disagreed(answers: Mapping[str, Sequence[int]], shown: Sequence[ReportText]) -> list[Section]:
    """Empty where nothing was judged."""
    if not answers:
        return []
    found = sorted(
        (one for one in shown if one.p is not None and one.p < DECISION_BOUNDARY), key=lambda one: one.p or 0.0
    )
    rows = [
        (beginning(one.text), beginning(one.x1 or ""), one.label, one.p, one.fate) for one in found[:MOST_DISAGREED]
    ]
    heads = [Column("text"), Column("sentence"), Column("written as"), Column("probability", ".3f"), Column("fate")]
    note = (
        "Of the examples of the page those of which the discriminator is surest that they are not what they should be."
    )
    table = Table(heads, rows, "Where the discriminator disagreed", note, "disagreed")
    return [Section("Discriminator", [figures.answers(answers), table])]


def _texts(measured: Mapping[str, Measured], shown: Sequence[ReportText], drawn: Sequence[Figure]) -> Section:
    cosines = wall.cosines_of(shown)
    rows = [
        (
            direction,
            one.texts,
            one.mean_words,
            one.distinct_1,
            one.distinct_2,
            one.overlap,
            *([mean(cosines.get(direction, ()))] if cosines else []),
        )
        for direction, one in measured.items()
    ]
    note = (
        f"Of accepted texts, {MEASURED:,} at most. distinct-n: different n-grams of words over all of them, of the "
        "first 20,000 texts. Overlap: mean Jaccard of the words of premise and text, case and punctuation left out."
    )
    heads = [
        Column(""),
        Column("texts", ","),
        Column("words", ".1f"),
        *columns("distinct-1", "distinct-2", "overlap", *(["similarity"] if cosines else []), number=".3f"),
    ]
    return Section("Texts", [note, Table(heads, rows), *drawn])
