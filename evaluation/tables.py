"""Scores in the columns of the papers' tables, on a terminal and in Markdown."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from contracts import Results
from evaluation.averages import PROBING, TRANSFER, YEARS, named
from evaluation.tsv import SENTEVAL


class Column(NamedTuple):
    header: str
    scores: tuple[str, ...]  # shown with a slash between; {protocol} stands for that of the classifiers


class Layout(NamedTuple):
    title: str
    columns: tuple[Column, ...]
    at_least: int = 1  # columns without which the table says nothing


class Filled(NamedTuple):
    title: str
    headers: list[str]
    rows: list[list[str]]  # the first cell says which text


def _one(header: str, *scores: str) -> Column:
    return Column(header, scores)


MOST_COLUMNS = 12  # of a terminal of usual width; a wider table is turned
PROTOCOLS = ("default", "fast", "sklearn")
_YEAR_NAMES = tuple(year.upper() for year in YEARS)
_SINGLE = ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec")
_PROBES = ("SentLen", "WC", "TreeDepth", "TopConst", "BShift", "Tense", "SubjNum", "ObjNum", "SOMO", "CoordInv")


def _years(protocol: str) -> tuple[Column, ...]:
    return tuple(_one(name, f"{year}/{protocol}/spearman") for name, year in zip(_YEAR_NAMES, YEARS, strict=True))


def _downstream(split: str) -> tuple[Column, ...]:
    dev = bool(split)
    relatedness = "pearson" if dev else "spearman"
    accuracy = "{protocol}/accuracy"
    return (
        *(_one(task.upper(), f"{task}{split}/{accuracy}") for task in _SINGLE),
        _one("MRPC", f"mrpc{split}/{accuracy}", *([] if dev else ["mrpc/{protocol}/f1"])),
        _one("SNLI", f"snli{split}/{accuracy}"),
        _one("SICK-E", f"sicke{split}/{accuracy}"),
        _one("SICK-R", f"sickr{split}/regressor/{relatedness}"),
        _one("STS-B", f"stsb{split}/regressor/{relatedness}"),
        _one("COCO", f"coco{split}/default/recall"),
        *_years("mean"),
        _one("Avg", f"declutr-avg17{split}/{{protocol}}/score"),
    )


LAYOUTS = (
    Layout(
        "STS, Spearman, subsets concatenated (DINO table 1, GenSE table 2)",
        (
            *_years("all"),
            _one("STS-B", "stsb/cosine/spearman"),
            _one("SICK-R", "sickr/cosine/spearman"),
            _one("Avg", "sts-avg7/all/spearman"),
        ),
    ),
    Layout("STS, Spearman, mean over subsets (DINO table 5)", (*_years("mean"), _one("Avg", "sts-avg5/mean/spearman"))),
    Layout("SentEval downstream, test (DeCLUTR table 2; Avg without SNLI)", _downstream(""), 9),
    Layout("SentEval downstream, dev (DeCLUTR table 4, figures 2 and 3)", _downstream("-dev"), 9),
    Layout(
        "Transfer tasks (SimCSE, GenSE)",
        (
            *(_one(task.upper(), f"{task}/{{protocol}}/accuracy") for task in TRANSFER),
            _one("Avg", "transfer-avg7/{protocol}/accuracy"),
        ),
    ),
    Layout(
        "Probing (DeCLUTR table 3)",
        (
            *(_one(h, f"{task}/{{protocol}}/accuracy") for h, task in zip(_PROBES, PROBING, strict=True)),
            _one("Avg", "probing-avg10/{protocol}/accuracy"),
        ),
    ),
    Layout(
        "Domain tasks (GenSE table 3)",
        (
            _one("AskU", "askubuntu/cosine/map"),
            _one("CQADup", "cqadupstack/cosine/map@100"),
            _one("TURL", "twitterurl/cosine/ap"),
            _one("PIT", "pit/cosine/ap"),
            _one("BIOSSES", "biosses/cosine/spearman"),
            _one("Avg", "domain-avg5/cosine/score"),
        ),
    ),
    Layout(
        "Geometry on STS-B test",
        tuple(
            _one(name, f"stsb/geometry/{name}")
            for name in ("alignment", "uniformity", "anisotropy", "effective-rank", "norm")
        ),
    ),
)


def filled(scores: Mapping[str, float], with_form: Collection[str]) -> Iterator[Filled]:
    """The tables that have anything in them, a row for each form of the text and each set of classifiers.

    ``with_form``: the tasks whose text has SentEval's form too.
    """
    protocols = [one for one in PROTOCOLS if any(f"/{one}/accuracy" in name for name in scores)]
    for layout in LAYOUTS:
        has_protocol = any("{protocol}" in name for column in layout.columns for name in column.scores)
        rows = []
        for protocol in (protocols or PROTOCOLS[:1]) if has_protocol else [""]:
            for ending in ("", SENTEVAL):
                names = [
                    [_named(one, protocol, ending, with_form) for one in column.scores] for column in layout.columns
                ]
                there = [[name for name in cell if name in scores] for cell in names]
                if sum(map(bool, there)) < layout.at_least:
                    continue
                if any(ending in name for cell in there for name in cell):
                    label = " ".join(part for part in (ending.strip("@") or "raw", protocol) if part)
                    rows.append([label, *(" / ".join(_shown(name, scores[name]) for name in cell) for cell in there)])
        if rows:
            yield Filled(layout.title, ["text", *(column.header for column in layout.columns)], rows)


def _named(score: str, protocol: str, ending: str, with_form: Collection[str]) -> str:
    if "-avg" in score:
        task, rest = score.format(protocol=protocol).split("/", 1)
        return f"{task}{ending}/{rest}"
    return named(score, protocol, ending, with_form)


def terminal(results: Results, with_form: Collection[str]) -> Iterator[Table | str]:
    """What the command prints: the papers' tables, all scores, what an average holds, what was left out."""
    scores = results["scores"]
    for one in filled(scores, with_form):
        lines = [one.headers, *one.rows]
        if len(one.headers) > MOST_COLUMNS:
            lines = [list(line) for line in zip(*lines, strict=True)]
        table = Table(title=one.title, title_justify="left")
        for place, header in enumerate(lines[0]):
            table.add_column(header, justify="right" if place else "left")
        for line in lines[1:]:
            table.add_row(*line)
        yield table
    rest = Table(title="All scores, with 95 % intervals", title_justify="left")
    for header, justify in (("task / protocol / metric", "left"), ("", "right"), ("95 %", "right")):
        rest.add_column(header, justify=justify)  # type: ignore[arg-type]
    for name, value in scores.items():
        rest.add_row(name, _shown(name, value), _interval(results, name))
    yield rest
    yield from _remarks(results)


def markdown(results: Results, with_form: Collection[str]) -> str:
    """The same as a page; the encoder and how it was scored on top."""
    recipe = results["recipe"]
    encoder = recipe.get("encoder_description", {})
    lines = [f"# {results['backbone']}", "", ", ".join(f"{name}: {value}" for name, value in encoder.items()), ""]
    for one in filled(results["scores"], with_form):
        lines += [f"## {one.title}", "", *_rows(one.headers, one.rows), ""]
    rows = [[f"`{name}`", _shown(name, value), _interval(results, name)] for name, value in results["scores"].items()]
    lines += ["## All scores", "", *_rows(["task / protocol / metric", "score", "95 %"], rows), ""]
    lines += [line for remark in _remarks(results) for line in (remark, "")]
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    """Two decimals of 0..100; four of what is in units of its own."""
    return f"{value:.4f}" if "/geometry/" in name or name.endswith("/mse") else f"{value:.2f}"


def _interval(results: Results, name: str) -> str:
    bounds = results["intervals"].get(name)
    return " .. ".join(_shown(name, bound) for bound in bounds) if bounds else ""


def _rows(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headers)} |"
    yield f"|---|{'---:|' * (len(headers) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _remarks(results: Results) -> Iterator[str]:
    for name, members in results.get("averages", {}).items():
        yield f"{name} = {results['scores'][name]:.2f} holds {', '.join(members)}"
    for task, reason in results.get("skipped", {}).items():
        yield f"not scored: {task} ({reason})"
    for name, how in results.get("not_as_published", {}).items():
        yield f"not as published: {name} ({how})"
