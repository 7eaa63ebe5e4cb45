"""Report sections about DINO datasets, whose texts were written for labels, and about triplet datasets."""

from collections.abc import Mapping, Sequence
from typing import Any

from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Column, Table, columns, shorten
from contrastive_encoders.synthesis.report.cards import method_of
from contrastive_encoders.synthesis.report.texts import GeneratedTexts, ReportText, Subject
from contrastive_encoders.synthesis.rules.triplet_rules import DECISION_BOUNDARY, REASONS

MAX_DISAGREEMENTS = 40  # rows of a table


def about_labels(manifest: Mapping[str, Any], texts: GeneratedTexts) -> Subject:
    spec, counts = manifest["identity"]["spec"], manifest["counts"]
    labels = list(spec["labels"])
    lead = (
        f"{counts['accepted']:,} of {counts['samples']:,} sampled texts were accepted ({counts['yield']:.1%}), for "
        f"{counts['inputs']:,} inputs, by {manifest['generator']['name']}."
    )
    return Subject(f"Data set {spec['task_name']}", lead, labels, [_yields(counts, labels), _reasons(counts, labels)])


def _yields(counts: Mapping[str, Any], labels: Sequence[str]) -> ReportSection:
    none = {"samples": 0, "accepted": 0, "yield": 0.0}
    each = [(label, counts["labels"].get(label, none)) for label in labels] + [("all", counts)]
    heads = [Column("label"), *columns("sampled", "accepted", number=","), Column("yield", ".1%")]
    table = Table(heads, [(label, one["samples"], one["accepted"], one["yield"]) for label, one in each])
    return ReportSection("Yield", ["Sampled texts, and texts that passed the filters.", table])


def _reasons(counts: Mapping[str, Any], labels: Sequence[str]) -> ReportSection:
    rows = [
        (reason, number, *(counts["labels"].get(label, {}).get("rejected", {}).get(reason, 0) for label in labels))
        for reason, number in sorted(counts["rejected"].items(), key=lambda item: -item[1])
    ]
    table = Table([Column("reason"), *columns("all", *labels, number=",")], rows)
    return ReportSection("Rejected", ["The first reason that applied.", table])


def about_triplets(manifest: Mapping[str, Any], texts: GeneratedTexts) -> Subject:
    counts, judge, method = manifest["counts"], manifest["generator"]["name"], method_of(manifest)
    lead = (
        f"{counts['accepted']:,} {method.rows} from {counts['inputs']:,} sentences ({counts['yield']:.1%}), "
        f"{method.made}{f', judged by {judge}' if judge else ''}."
    )
    sections = [
        _sentences(manifest),
        _rules(manifest),
        *([_curve(manifest["accepted_at_threshold"], counts)] if judge else []),
        *_disagreement_sections(manifest.get("answers", {}), [*texts.accepted, *texts.left_out]),
    ]
    labels = [str(direction) for direction in method.directions]
    return Subject(method.rows.capitalize(), lead, labels, sections)


def _sentences(manifest: Mapping[str, Any]) -> ReportSection:
    found = manifest["sentences"]
    rows = [("texts of the input", found["texts"]), ("sentences in them", found["sentences"])]
    rows += [(f"left out: {reason}", number) for reason, number in found["left_out"].items()]
    table = Table([Column(""), Column("number", ",")], [*rows, ("left", found["kept"])])
    return ReportSection("Sentences", ["Sentences of the input, and those that were left out first.", table])


def _rules(manifest: Mapping[str, Any]) -> ReportSection:
    counts, broken = manifest["counts"], manifest["broken"]
    numbers = {reason: (counts["rejected"].get(reason, 0), broken[reason]) for reason in REASONS if reason in broken}
    return rules_section(counts, numbers, row="triplet", passed="accepted", note="Disabled rules are not listed.")


def rules_section(
    counts: Mapping[str, Any], numbers: Mapping[str, tuple[int, int]], row: str, passed: str, note: str
) -> ReportSection:
    """Return the section about the rules.

    Args:
        numbers: for each rule, the number of rows that it leaves out, and the number of rows that break it.
        row: the name of a row of the dataset.
        passed: the name of the rows that break no rule.
    """
    total = max(counts["samples"], 1)
    rows = [(rule, left_out, broken, broken / total) for rule, (left_out, broken) in numbers.items()]
    note = (
        f"Left out: counted for the first rule that a {row} breaks. Break it: counted for every rule that it breaks. "
        f"{note}"
    )
    heads = [Column("rule"), *columns("left out", "break it", number=","), Column("share", ".1%")]
    table = Table(heads, [*rows, (passed, counts["accepted"], None, counts["yield"])])
    return ReportSection("Rules", [note, table])


def _curve(curve: Mapping[str, int], counts: Mapping[str, Any]) -> ReportSection:
    rows = [(threshold, number, number / max(counts["samples"], 1)) for threshold, number in curve.items()]
    note = (
        "Triplets that would be accepted at other thresholds with the same other rules. The recipe gense_filter "
        "selects them by its rules.threshold without generating texts."
    )
    table = Table([Column("threshold"), Column("triplets", ","), Column("yield", ".1%")], rows)
    return ReportSection("Threshold", [note, table])


def _disagreement_sections(answers: Mapping[str, Sequence[int]], texts: Sequence[ReportText]) -> list[ReportSection]:
    """Return the section about texts for which the discriminator disagrees with the intended label, or an empty list if
    nothing was judged.
    """
    if not answers:
        return []
    from contrastive_encoders.synthesis.report.figures import answers as answers_figure  # imports Altair

    judged = [(one.p, one) for one in texts if one.p is not None and one.p < DECISION_BOUNDARY]
    surest = sorted(judged, key=lambda pair: pair[0])[:MAX_DISAGREEMENTS]
    rows = [(shorten(one.text), shorten(one.x1 or ""), one.label, p, one.outcome) for p, one in surest]
    heads = [Column("text"), Column("sentence"), Column("written as"), Column("probability", ".3f"), Column("outcome")]
    note = "The texts to which the discriminator assigns the lowest probability of the intended answer."
    table = Table(heads, rows, "Where the discriminator disagreed", note, "disagreed")
    return [ReportSection("Discriminator", [answers_figure(answers), table])]
