"""Write the report and the dataset card of a dataset of questions."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports.page import ReportSection, page
from contrastive_encoders.reports.tables import Column, Table, columns, shorten
from contrastive_encoders.synthesis.questions.output import PAIRS, TRAIN
from contrastive_encoders.synthesis.questions.passages import Collection
from contrastive_encoders.synthesis.questions.rules import KEPT, REASONS, Question
from contrastive_encoders.synthesis.report.cards import write_card
from contrastive_encoders.synthesis.report.sections import rules_section

EXAMPLES = 5  # kept questions, and rejected questions per rule
SEED = 42
QUARTERS = (10, 50, 90)  # percentiles
TITLE = "Questions"


def write_question_report(
    folder: Path, manifest: Mapping[str, Any], questions: Sequence[Question], collection: Collection
) -> None:
    """Write report.html of a dataset of questions."""
    counts = manifest["counts"]
    lead = [
        f"{counts['accepted']:,} of {counts['samples']:,} questions kept ({counts['yield']:.1%}), written by "
        f"{manifest['generator']['name']} for {counts['inputs']:,} passages."
    ]
    sections = [
        _examples(questions, collection),
        _rules(counts),
        _parts(manifest),
        _scores(questions),
        *_agreement(questions, manifest["identity"]["rules"]),
    ]
    atomic_write(folder / "report.html", page(TITLE, sections, lead))


def _examples(questions: Sequence[Question], collection: Collection) -> ReportSection:
    draw = random.Random(f"{SEED}/questions")
    tables = list[Table]()
    heads = columns("question", "style", "passage", "heading")
    for outcome in (KEPT, *REASONS):
        found = [one for one in questions if one.outcome == outcome]
        if found:
            some = draw.sample(found, min(EXAMPLES, len(found)))
            passages = [collection.passages[one.passage] for one in some]
            rows = [
                (one.text, one.style, shorten(passage.text), passage.heading)
                for one, passage in zip(some, passages, strict=True)
            ]
            tables.append(
                Table(heads, rows, outcome if outcome == KEPT else f"left out: {outcome}", f"{len(found):,} in all.")
            )
    return ReportSection("Examples", ["Drawn at random.", *tables])


def _rules(counts: Mapping[str, Any]) -> ReportSection:
    numbers = {rule: (one["left_out"], one["break_it"]) for rule, one in counts["rules"].items()}
    note = "The same command with other rules selects other questions without a model."
    return rules_section(counts, numbers, row="question", passed="kept", note=note)


def _parts(manifest: Mapping[str, Any]) -> ReportSection:
    found, kept = manifest["collection"], manifest["counts"]["parts"]
    rows = [(part, one["documents"], one["passages"], kept[part]) for part, one in found["parts"].items()]
    note = (
        f"{found['documents']:,} documents in {found['groups']:,} groups of near-duplicates, none of which is divided. "
        + "".join(f"Passages left out as {why}: {number:,}. " for why, number in found["left_out"].items())
        + f"Training pairs: {kept['train']:,}. "
        + f"Training rows, with their negatives: {manifest['counts']['training_rows']:,}."
    )
    return ReportSection(
        "Parts", [note, Table([Column("part"), *columns("documents", "passages", "questions kept", number=",")], rows)]
    )


def _scores(questions: Sequence[Question]) -> ReportSection:
    rows = list[list[Any]]()
    for style in dict.fromkeys(one.style for one in questions):
        for outcome in ("all", KEPT):
            some = [
                one
                for one in questions
                if one.style == style and one.text and (outcome == "all" or one.outcome == KEPT)
            ]
            row: list[Any] = [f"{style}, {outcome}", len(some)]
            for values in (
                [len(one.text.split()) for one in some],
                [one.copied for one in some],
                [one.candidate["p_yes"] for one in some if one.candidate["p_yes"] is not None],
                [one.rank for one in some if one.rank is not None],
            ):
                row.append(" / ".join(f"{value:.3g}" for value in np.percentile(values, QUARTERS)) if values else "")
            rows.append(row)
    note = (
        "The 10th, 50th and 90th percentile of each. Copied: the share of words in runs of three that the passage has."
    )
    heads = [Column("style"), Column("questions", ","), *columns("words", "copied", "P(yes)", "rank", right=True)]
    return ReportSection("Scores", [note, Table(heads, rows)])


def _agreement(questions: Sequence[Question], rules: Mapping[str, Any]) -> list[ReportSection]:
    """Return the report section on the agreement of the judge's scores with the encoder's ranking."""
    judged = [
        (one.candidate["p_yes"], one.rank) for one in questions if one.candidate["p_yes"] is not None and one.rank
    ]
    limit = rules["max_rank"] or 1
    near = [rank <= limit for _, rank in judged]
    if len(set(near)) < 2:
        return []
    from sklearn.metrics import roc_auc_score  # its import takes a second

    area = float(roc_auc_score(near, [p for p, _ in judged]))
    note = (
        f"Pairs of a question whose passage the encoder ranks among the first {limit} and a question whose passage it "
        f"ranks lower: the judge assigns the first a higher probability in {area:.1%} of them; 50% is chance."
    )
    return [ReportSection("Judge and encoder", [note])]


def write_question_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    front = {
        "pretty_name": "Questions, synthetic",
        "tags": ["synthetic", "information-retrieval", "sentence-similarity"],
        "configs": [
            {"config_name": name, "data_files": [{"split": "train", "path": path}]}
            for name, path in (("default", TRAIN), ("pairs", PAIRS))
        ],
    }
    write_card(folder, "question_card", front, manifest)
