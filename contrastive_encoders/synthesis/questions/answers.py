"""Evaluate a completed question sheet: compute the fraction of questions that the passage answers, once for the kept
questions and once for the rejected ones.
"""

from collections import defaultdict
from pathlib import Path

from scipy.stats import binomtest

from contrastive_encoders.core import InputError
from contrastive_encoders.reports.tables import Column, Table, columns, markdown
from contrastive_encoders.synthesis.questions.output import ANSWERED, CANDIDATES, read_rows
from contrastive_encoders.synthesis.questions.rules import KEPT
from contrastive_encoders.synthesis.report.annotate import read_column


def answers_table(folder: Path, sheet: Path) -> str:
    """Return a Markdown table with the fraction of questions whose passage answers them, as judged on the sheet.

    The table has a row for the kept and for the rejected questions of each style, with Wilson's 95 % interval. Which
    questions the latest rules kept is read from ``folder``.

    Raises:
        InputError: There is no sheet or key, an id is unknown, or an answer is neither yes nor no.
    """
    labels, key, given = read_column(folder, sheet, ANSWERED)
    candidates = {row["id"]: row for row in read_rows(folder / CANDIDATES)}
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for where, place, answer in given:
        if not answer:
            continue
        if answer.lower() not in labels:
            expected = f"{' or '.join(labels)}, or an empty cell"
            raise InputError(key=ANSWERED, value=answer, expected=expected, location=where)
        question = candidates.get(key[place])
        if question is None:
            raise InputError(
                key="id",
                value=place,
                expected=f"the id of a question that {folder} contains",
                location=where,
                hint="Move the sheet away, then rerun the command that wrote the data set; the command writes a new "
                "sheet.",
            )
        outcome = KEPT if question["fate"] == KEPT else "left out"
        for style in ("all styles", question["style"]):
            counts[outcome, style].append(answer.lower() == labels[0])
    rows = list[list[object]]()
    for (outcome, style), answers in sorted(counts.items()):
        low, high = binomtest(sum(answers), len(answers)).proportion_ci(method="wilson")
        share = sum(answers) / len(answers)
        rows.append([f"{outcome}, {style}", len(answers), sum(answers), share, f"{low:.1%} to {high:.1%}"])
    read = sum(len(answers) for (_, style), answers in counts.items() if style == "all styles")
    about = f"{read} questions were answered, {len(given) - read} were left blank."
    heads = [
        Column("questions"),
        *columns("read", "answered", number=","),
        Column("share", ".1%"),
        Column("95 % interval"),
    ]
    return f"# Questions that their passage answers\n\n{about}\n\n{markdown(Table(heads, rows))}\n"
