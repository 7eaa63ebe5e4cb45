"""Tables of scores with the columns and averages of the published papers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from contrastive_encoders.core import Results
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.core.shared_texts import overlap_warnings
from contrastive_encoders.evaluation.catalog import has_form
from contrastive_encoders.evaluation.tasks.labeled import PROBING
from contrastive_encoders.reports.page import ReportSection, to_markdown
from contrastive_encoders.reports.tables import CODE, Cell, Column, Table, columns
from contrastive_encoders.statistics.bootstrap import Estimate, average

MAX_COLUMNS = 12  # in a terminal of usual width; a wider table is transposed
PROTOCOLS = ("default", "fast", "sklearn")  # protocols of the classifiers, one of which replaces {protocol} in a name
YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
_SINGLE = ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec")
_PROBES = ("SentLen", "WC", "TreeDepth", "TopConst", "BShift", "Tense", "SubjNum", "ObjNum", "SOMO", "CoordInv")
_TWITTER: dict[str, tuple[str, ...]] = {"TURL": ("twitterurl/cosine/ap",), "PIT": ("pit/cosine/ap",)}
_GEOMETRY = ("alignment", "uniformity", "anisotropy", "effective-rank", "norm")


class Paper(NamedTuple):
    """Specification of a table that reproduces a table of a paper: its columns, average, and title. The table has a row
    for each text form and classifier protocol.
    """

    columns: dict[str, tuple[str, ...]]  # header -> scores, averaged before the average of the table
    average: str = ""  # name of the score; {n} is the number of members if it may be computed from a part of them
    title: str = ""  # a table without a title is not shown, only its average is computed
    members: tuple[str, ...] = ()  # headers of the averaged columns, if not all are averaged or in another order
    rounded: bool = False  # members are first rounded to 2 decimals, as in the published tables
    min_columns: int = 1  # minimum number of columns for the table to be shown

    def member_scores(self) -> list[tuple[str, ...]]:
        return [self.columns[header] for header in self.members or self.columns]


def _columns(headers: Sequence[str], tasks: Sequence[str], score: str) -> dict[str, tuple[str, ...]]:
    return {header: (f"{task}{score}",) for header, task in zip(headers, tasks, strict=True)}


def _upper(tasks: Sequence[str], score: str) -> dict[str, tuple[str, ...]]:
    return _columns([task.upper() for task in tasks], tasks, score)


def _seven(metric: str, title: str = "") -> Paper:
    """Return the specification of a table of the seven STS tasks; as in GenSE's evaluation.py, the scores are rounded
    before they are averaged.
    """
    pairs = {header: (f"{task}/cosine/{metric}",) for header, task in (("STS-B", "stsb"), ("SICK-R", "sickr"))}
    return Paper(_upper(YEARS, f"/all/{metric}") | pairs, f"sts-avg7/all/{metric}", title, rounded=True)


def _downstream(split: str, title: str) -> Paper:
    accuracy, relatedness = f"{split}/{{protocol}}/accuracy", "pearson" if split else "spearman"
    columns = {
        **_upper(_SINGLE, accuracy),
        "MRPC": (f"mrpc{accuracy}", *([] if split else ["mrpc/{protocol}/f1"])),
        **_columns(("SNLI", "SICK-E"), ("snli", "sicke"), accuracy),
        **_columns(("SICK-R", "STS-B"), ("sickr", "stsb"), f"{split}/regressor/{relatedness}"),
        "COCO": (f"coco{split}/default/recall",),
        **_upper(YEARS, "/mean/spearman"),
    }
    rest = [header for header in columns if header not in ("MRPC", "SNLI", "SICK-E")]
    members = (*rest[: len(_SINGLE)], "SICK-E", "MRPC", *rest[len(_SINGLE) :])
    return Paper(columns, f"declutr-avg{{n}}{split}/{{protocol}}/score", title, members, min_columns=9)


def _accuracies(name: str, headers: Sequence[str], tasks: Sequence[str], title: str) -> tuple[Paper, Paper]:
    """Return two specifications: a table of test accuracies, and a table of development accuracies, which is never
    shown but defines an average.
    """
    score = "{protocol}/accuracy"
    return (
        Paper(_columns(headers, tasks, f"/{score}"), f"{name}/{score}", title),
        Paper(_columns(headers, tasks, f"-dev/{score}"), f"{name}-dev/{score}"),
    )


_STS = (
    _seven("spearman", "STS, Spearman, subsets concatenated (DINO table 1, GenSE table 2)"),
    _seven("pearson"),
    Paper(_upper(YEARS, "/all/spearman"), "sts-avg5/all/spearman"),  # "STS12-16" in table 2 of DINO
    Paper(_upper(YEARS, "/mean/spearman"), "sts-avg5/mean/spearman", "STS, Spearman, mean over subsets (DINO table 5)"),
)
_TRANSFER = _accuracies(
    "transfer-avg7", [task.upper() for task in TRANSFER], TRANSFER, "Transfer tasks (SimCSE, GenSE)"
)
_DECLUTR = (
    _downstream("", "SentEval downstream, test (DeCLUTR table 2; Avg without SNLI)"),
    _downstream("-dev", "SentEval downstream, dev (DeCLUTR table 4, figures 2 and 3)"),
)
_OTHERS = (
    *_accuracies("probing-avg{n}", _PROBES, tuple(PROBING), "Probing (DeCLUTR table 3)"),
    Paper(
        {
            "AskU": ("askubuntu/cosine/map",),
            "CQADup": ("cqadupstack/cosine/map@100",),
            **_TWITTER,
            "Twitter": ("twitter-avg2/cosine/ap",),
            "BIOSSES": ("biosses/cosine/spearman",),
        },
        "domain-avg{n}/cosine/score",
        "Domain tasks (GenSE table 3; Avg of five, without the column Twitter)",
        ("AskU", "CQADup", *_TWITTER, "BIOSSES"),
    ),
    Paper(_TWITTER, "twitter-avg2/cosine/ap"),
    Paper({name: (f"stsb/geometry/{name}",) for name in _GEOMETRY}, title="Geometry on STS-B test"),
)
AVERAGES = tuple(paper for paper in (*_STS, *_TRANSFER, *_DECLUTR, *_OTHERS) if paper.average)
SHOWN_TABLES = tuple(paper for paper in (*_STS, *_DECLUTR, *_TRANSFER, *_OTHERS) if paper.title)


def _rows(paper: Paper, scores: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (classifier protocol, text form) for each possible row of a table; the text form is ``senteval``, or empty
    for raw texts.
    """
    has_protocol = any("{protocol}" in name for names in paper.columns.values() for name in names)
    measures = {ScoreName.parse(name).measure for name in scores}
    protocols = [one for one in PROTOCOLS if f"{one}/accuracy" in measures] or PROTOCOLS[:1]
    for protocol in protocols if has_protocol else [""]:
        yield from ((protocol, form) for form in ("", "senteval"))


def _score_name(score: str, protocol: str, form: str) -> str:
    """Return the complete name of a score.

    Args:
        score: Name with the placeholder ``{protocol}``.
        protocol: Protocol of the classifier.
        form: Form of the texts: ``senteval``, or empty for raw texts. Tasks with a single form ignore it.
    """
    name = ScoreName.parse(score.format(protocol=protocol))
    return str(replace(name, form=form)) if "-avg" in name.task or has_form(name.task) else str(name)


class AverageScore(NamedTuple):
    name: str
    estimate: Estimate
    members: list[str]  # names of the averaged scores


def averages(estimates: Mapping[str, Estimate]) -> Iterator[AverageScore]:
    """Yield every average for which all scores are available.

    An average with {n} in its name needs at least half of the scores.
    """
    for paper in AVERAGES:
        for protocol, form in _rows(paper, estimates):
            groups = [[_score_name(one, protocol, form) for one in member] for member in paper.member_scores()]
            known = [names for names in groups if all(name in estimates for name in names)]
            min_groups = (len(groups) + 1) // 2 if "{n}" in paper.average else len(groups)
            if len(known) < min_groups or (form and all(ScoreName.parse(first).form != form for first, *_ in known)):
                continue
            parts = [average([estimates[name] for name in names]) for names in known]
            if paper.rounded:
                parts = [part._replace(value=round(part.value, 2)) for part in parts]
            name = _score_name(paper.average.replace("{n}", str(len(known))), protocol, form)
            yield AverageScore(name, average(parts), [name for names in known for name in names])


def tables(scores: Mapping[str, float]) -> Iterator[Table]:
    """Yield the tables of the papers, filled with ``scores``; empty tables are omitted. The first cell of a row is the
    text form.
    """
    for paper in SHOWN_TABLES:
        columns_of_table = dict(paper.columns)
        if paper.average:
            columns_of_table["Avg"] = (paper.average.replace("{n}", str(len(paper.member_scores()))),)
        rows = []
        for protocol, form in _rows(paper, scores):
            cells = [[_score_name(one, protocol, form) for one in names] for names in columns_of_table.values()]
            known = [[name for name in cell if name in scores] for cell in cells]
            forms = {ScoreName.parse(name).form for cell in known for name in cell}
            if sum(map(bool, known)) < paper.min_columns or (form and form not in forms):
                continue
            label = f"{form or 'raw'} {protocol}".strip()
            rows.append([label, *(" / ".join(shown_score(name, scores[name]) for name in cell) for cell in known)])
        if rows:
            yield Table([Column("text"), *columns(*columns_of_table, right=True)], rows, paper.title)


def transpose_if_wide(table: Table) -> Table:
    """Return the table with columns as rows, for a terminal that is too narrow for the columns."""
    if len(table.columns) <= MAX_COLUMNS:
        return table
    headings, *rows = zip([column.heading for column in table.columns], *table.rows, strict=True)
    return Table([Column(headings[0]), *columns(*headings[1:], right=True)], rows, table.title)


def all_scores(results: Results, heading: str, title: str) -> Table:
    """Return a table of every score with its interval."""
    rows = []
    for name, value in results["scores"].items():
        bounds = results["intervals"].get(name) or []
        texts = shown_score(name, value), " .. ".join(shown_score(name, bound) for bound in bounds)
        rows.append([Cell(name, mark=CODE), *texts])
    return Table([Column("task / protocol / metric"), *columns(heading, "95 %", right=True)], rows, title)


def terminal_parts(results: Results) -> Iterator[Table | str]:
    """Yield the parts of the terminal output: the tables of the papers, all scores, the scores in each average, and
    the skipped tasks.
    """
    yield from map(transpose_if_wide, tables(results["scores"]))
    yield all_scores(results, "", "All scores, with 95 % intervals")
    yield from _remarks(results)


def markdown(results: Results) -> str:
    """Return the results as a Markdown page, which starts with a description of the encoder."""
    encoder = results["recipe"].get("encoder_description", {})
    description = ", ".join(f"{name}: {value}" for name, value in encoder.items())
    score_tables = [*tables(results["scores"]), all_scores(results, "score", "All scores")]
    sections = [ReportSection(table.title, [table._replace(title="", note="")]) for table in score_tables]
    remarks = [*_remarks(results), *overlap_warnings(results.get("overlap", {}))]
    sections[-1] = sections[-1]._replace(parts=[*sections[-1].parts, *remarks])
    return to_markdown(results["backbone"], sections, [description] if description else [])


def shown_score(name: str, value: float) -> str:
    """Format a score on the scale from 0 to 100 with two decimals, and a score in another unit with four."""
    score = ScoreName.parse(name)
    return f"{value:.4f}" if score.protocol == "geometry" or score.metric == "mse" else f"{value:.2f}"


def _remarks(results: Results) -> Iterator[str]:
    for name, members in results.get("averages", {}).items():
        yield f"{name} = {results['scores'][name]:.2f} is an average of {', '.join(members)}"
    for task, reason in results.get("skipped", {}).items():
        yield f"not scored: {task} ({reason})"
    for name, how in results.get("row_count_mismatches", {}).items():
        yield f"not as published: {name} ({how})"
