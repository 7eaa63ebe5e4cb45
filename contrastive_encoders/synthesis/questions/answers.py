"""What a person's answers on a sheet of questions say: how many of them their passage answers, kept ones and others."""

from collections import defaultdict
from pathlib import Path

from scipy.stats import binomtest

from contrastive_encoders.core import InputError
from contrastive_encoders.reports.tables import Column, Table, columns, markdown
from contrastive_encoders.synthesis.questions.output import ANSWERED, CANDIDATES, read_rows
from contrastive_encoders.synthesis.questions.rules import KEPT
from contrastive_encoders.synthesis.report.annotate import read_column


def answers_table(folder: Path, sheet: Path) -> str:
    """Return a table in Markdown: the share of questions whose passage answers them, as a person says on the sheet.

    It has a row for kept questions and for those left out, in each style, with Wilson's 95 % interval. Which questions
    are kept is read from ``folder``, which the last rules made.

    Raises:
        InputError: no sheet or key, an unknown id, or an answer that is neither yes nor no.
    """
    labels, key, given = read_column(folder, sheet, ANSWERED)
    candidates = {row["id"]: row for row in read_rows(folder / CANDIDATES)}
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for where, place, answer in given:
        if not answer:
            continue
        if answer.lower() not in labels:
            raise InputError(f"{where}: the answer is {answer!r}; wanted {' or '.join(labels)}, or nothing.")
        question = candidates.get(key[place])
        if question is None:
            raise InputError(
                f"{where}: {folder} no longer has this question. Move the sheet away; the command that made the data "
                "set writes another."
            )
        fate = KEPT if question["fate"] == KEPT else "left out"
        for style in ("all styles", question["style"]):
            counts[fate, style].append(answer.lower() == labels[0])
    rows = list[list[object]]()
    for (fate, style), answers in sorted(counts.items()):
        low, high = binomtest(sum(answers), len(answers)).proportion_ci(method="wilson")
        share = sum(answers) / len(answers)
        rows.append([f"{fate}, {style}", len(answers), sum(answers), share, f"{low:.1%} to {high:.1%}"])
    read = sum(len(answers) for (_, style), answers in counts.items() if style == "all styles")
    about = f"{read} questions were answered, {len(given) - read} were left blank."
    heads = [
        Column("questions"),
        *columns("read", "answered", number=","),
        Column("share", ".1%"),
        Column("95 % interval"),
    ]
    return f"# Questions that their passage answers\n\n{about}\n\n{markdown(Table(heads, rows))}\n"
