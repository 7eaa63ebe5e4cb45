"""Report sections about DINO datasets, whose texts were written for labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report.texts import GeneratedTexts, Subject


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
