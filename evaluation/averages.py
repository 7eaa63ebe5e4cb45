"""The last columns of the papers' tables: which scores they average, and how."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from evaluation.probing_data import TASKS
from evaluation.statistics import Estimate, average
from evaluation.tsv import SENTEVAL

Member = str | tuple[str, ...]  # scores of a tuple are averaged first

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
ACCURACIES = ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec", "sicke")
PROBING = tuple(TASKS)


class Average(NamedTuple):
    """``{protocol}`` in a name stands for that of the classifiers."""

    name: str  # with {n}, the number of its members, where it is also printed for a part of them
    metric: str  # protocol/metric
    members: tuple[Member, ...]
    rounded: bool = False  # its members are rounded to 2 decimals first, as the tables were made


AVERAGES = (
    *(  # DINO table 1, GenSE table 2: seven numbers already rounded (GenSE's evaluation.py)
        Average(
            "sts-avg7",
            f"all/{metric}",
            (*(f"{year}/all/{metric}" for year in YEARS), f"stsb/cosine/{metric}", f"sickr/cosine/{metric}"),
            rounded=True,
        )
        for metric in ("spearman", "pearson")
    ),
    Average("sts-avg5", "mean/spearman", tuple(f"{year}/mean/spearman" for year in YEARS)),  # DINO table 5
    *(  # SimCSE's and GenSE's transfer tasks
        Average(
            f"transfer-avg7{split}",
            "{protocol}/accuracy",
            tuple(f"{task}{split}/{{protocol}}/accuracy" for task in TRANSFER),
        )
        for split in ("", "-dev")
    ),
    Average(  # DeCLUTR table 2
        "declutr-avg{n}",
        "{protocol}/score",
        (
            *(f"{task}/{{protocol}}/accuracy" for task in ACCURACIES),
            ("mrpc/{protocol}/accuracy", "mrpc/{protocol}/f1"),
            "sickr/regressor/spearman",
            "stsb/regressor/spearman",
            "coco/default/recall",
            *(f"{year}/mean/spearman" for year in YEARS),
        ),
    ),
    Average(  # DeCLUTR table 4, figures 2 and 3
        "declutr-avg{n}-dev",
        "{protocol}/score",
        (
            *(f"{task}-dev/{{protocol}}/accuracy" for task in (*ACCURACIES, "mrpc")),
            "sickr-dev/regressor/pearson",
            "stsb-dev/regressor/pearson",
            "coco-dev/default/recall",
            *(f"{year}/mean/spearman" for year in YEARS),
        ),
    ),
    *(  # DeCLUTR table 3
        Average(
            f"probing-avg{{n}}{split}",
            "{protocol}/accuracy",
            tuple(f"{task}{split}/{{protocol}}/accuracy" for task in PROBING),
        )
        for split in ("", "-dev")
    ),
    Average(  # GenSE table 3
        "domain-avg{n}",
        "cosine/score",
        (
            "askubuntu/cosine/map",
            "cqadupstack/cosine/map@100",
            "twitterurl/cosine/ap",
            "pit/cosine/ap",
            "biosses/cosine/spearman",
        ),
    ),
)


class Averaged(NamedTuple):
    name: str
    estimate: Estimate
    members: list[str]  # the scores that it holds


def averages(found: Mapping[str, Estimate], with_form: Collection[str]) -> Iterator[Averaged]:
    """Every average whose scores are there; one with {n} in its name also where at least half of them are.

    Over SentEval's form of the text (``NAME@senteval``) tasks that have no such form, not in ``with_form``, enter as
    they are.
    """
    protocols = [one for one in ("default", "fast", "sklearn") if any(f"/{one}/accuracy" in name for name in found)]
    for kind in AVERAGES:
        for protocol in protocols if "{protocol}" in kind.metric else [""]:
            for ending in ("", SENTEVAL):
                yield from _average(kind, protocol, ending, found, with_form)


def _average(
    kind: Average, protocol: str, ending: str, found: Mapping[str, Estimate], with_form: Collection[str]
) -> Iterator[Averaged]:
    groups = [
        [named(one, protocol, ending, with_form) for one in ([member] if isinstance(member, str) else member)]
        for member in kind.members
    ]
    there = [names for names in groups if all(name in found for name in names)]
    fewest = (len(groups) + 1) // 2 if "{n}" in kind.name else len(groups)
    if len(there) < fewest or (ending and not any(ending in name for [name, *_] in there)):
        return
    parts = [average([found[name] for name in names]) for names in there]
    if kind.rounded:
        parts = [part._replace(value=round(part.value, 2)) for part in parts]
    name = f"{kind.name.format(n=len(there))}{ending}/{kind.metric.format(protocol=protocol)}"
    yield Averaged(name, average(parts), [name for names in there for name in names])


def named(score: str, protocol: str, ending: str, with_form: Collection[str]) -> str:
    """The score's full name: with its classifiers' protocol, and over this form of the text where the task has it."""
    task, rest = score.format(protocol=protocol).split("/", 1)
    return f"{task}{ending if task.removesuffix('-dev') in with_form else ''}/{rest}"
