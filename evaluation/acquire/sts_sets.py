"""STS12-16, STS benchmark, SICK and BIOSSES: SemEval's archives, raw, and tokenised as SentEval's script does it.

SentEval's form is Moses-tokenised; lower-cased for STS12-16 and the benchmark, cased for SICK.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice

from evaluation.acquire.archives import BadArchive, Members
from evaluation.acquire.download import File
from evaluation.acquire.moses import moses_tokeniser
from evaluation.acquire.origin import SENTEVAL_TAR, SIMCSE, Alternative, Origin, github
from evaluation.acquire.tables import Rows, Table, senteval

WIKI = "http://ixa2.si.ehu.es/stswiki/images"
SUBSETS = {
    "STS12": "MSRpar MSRvid SMTeuroparl surprise.OnWN surprise.SMTnews".split(),
    "STS13": "FNWN headlines OnWN".split(),  # SMT is not distributed
    "STS14": "deft-forum deft-news headlines images OnWN tweet-news".split(),
    "STS15": "answers-forums answers-students belief headlines images".split(),
    "STS16": "answer-answer headlines plagiarism postediting question-question".split(),
}
_ROWS = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
_ARCHIVES = {
    "STS12": (f"{WIKI}/4/40/STS2012-en-test.zip", "test-gold"),
    "STS13": (f"{WIKI}/2/2f/STS2013-en-test.zip", "test-gs"),
    "STS14": (f"{WIKI}/8/8c/STS2014-en-test.zip", "sts-en-test-gs-2014"),
    "STS15": (f"{WIKI}/d/da/STS2015-en-test.zip", "test_evaluation_task2a"),
    "STS16": (f"{WIKI}/9/98/STS2016-en-test.zip", "sts2016-english-with-gs-v1.0"),
}
_QCRI = "http://alt.qcri.org"
_COPY = File(  # raw and tokenised STS sets in a folder each
    "SynWMD.tar.gz",
    "https://codeload.github.com/amao0o0/SynWMD/tar.gz/59042a92e862db58bd01e47914345d2f52d2a4a3",
)
_LICENCES = {
    "STS12": "scores CC BY-SA 4.0; MSRpar and MSRvid: Microsoft research licence",
    "STS13": "scores CC BY-SA 4.0; headlines: EMM terms",
    "STS14": "scores CC BY-SA 4.0; headlines: EMM terms; deft: LDC",
    "STS15": "scores CC BY-SA 4.0; answers-forums CC BY-SA 3.0",
    "STS16": "CC BY-SA 3.0, CC BY 4.0, CC BY-NC-SA 2.0 UK by subset; headlines: EMM terms",
}
_SPLITS = {"train": 5749, "dev": 1500, "test": 1379}
_SICK = {"train": ("train", 4500), "dev": ("trial", 500), "test": ("test_annotated", 4927)}


def number(cell: str) -> str:
    """4.400 -> 4.4, 5.000 -> 5"""
    try:
        return f"{float(cell):.6g}"
    except ValueError:
        raise BadArchive(f"a score is {cell!r}") from None


def cells(lines: Sequence[str], least: int, name: str) -> Iterator[list[str]]:
    """The lines' cells; BadArchive where there are fewer than ``least``."""
    for at, line in enumerate(lines, start=1):
        row = line.split("\t")
        if len(row) < least:
            raise BadArchive(f"{name}, line {at}: {len(row)} tab-separated cells, wanted {least}")
        yield row


@cache
def _moses() -> Callable[[str], str]:
    return moses_tokeniser()


def cased(text: str) -> str:
    return _moses()(text)


def lower(text: str) -> str:
    return _moses()(text).lower()


# ------------------------------------------------------------------------------------------ STS12-16


def _year(year: str, folder: str, prefix: str, members: Members) -> Rows:
    """Pairs without a gold score were not rated, and are left out as SentEval does."""
    for subset in SUBSETS[year]:
        name = f"{folder}/{prefix}.input.{subset}.txt"
        pairs = list(cells(members.lines(name), 2, name))
        gold = members.lines(f"{folder}/{prefix}.gs.{subset}.txt")
        if len(pairs) != len(gold):
            raise BadArchive(f"{name}: {len(pairs)} pairs, but {len(gold)} scores")
        for (left, right, *_), score in zip(pairs, gold, strict=True):
            if score.strip():
                yield subset, left, right, number(score)


def _year_origin(year: str) -> Origin:
    raw = Table(f"{year}/test", ("subset", "sentence1", "sentence2", "score"), _ROWS[year], scores=(0, 5))
    done = senteval(raw, lower)
    prefix = "STS2016" if year == "STS16" else "STS"
    url, folder = _ARCHIVES[year]
    urls = [url]
    if year == "STS16":
        urls.append(f"{_QCRI}/semeval2016/task1/data/uploads/sts2016-english-with-gs-v1.0.zip")
    official = [
        Alternative(f"SemEval ({one.split('/')[2]})", (_file(one),), {raw.name: partial(_year, year, folder, prefix)})
        for one in urls
    ]
    copy = {raw.name: partial(_year, year, f"{year}-en-test/{folder}", prefix)}
    tokenised = {done.name: partial(_year, year, f"{year}-en-test", "STS")}
    others = (Alternative("GitHub amao0o0/SynWMD", (_COPY,), copy), Alternative(SIMCSE, (SENTEVAL_TAR,), tokenised))
    return Origin(year, _LICENCES[year], (raw, done), (*official, *others))


def _file(url: str) -> File:
    return File(url.rsplit("/", 1)[-1], url)


# ----------------------------------------------------------------------------- STS benchmark and SICK


def _benchmark(split: str, members: Members) -> Rows:
    name = f"sts-{split}.csv"
    for genre, file, year, key, score, left, right, *_ in cells(members.lines(name), 7, name):
        yield genre, file, year, key, left, right, number(score)


def _sbert(split: str, members: Members) -> Rows:
    """sentence-transformers' copy: the same rows in one table, its header names the columns."""
    header, *rows = cells(members.lines("stsbenchmark.tsv"), 8, "stsbenchmark.tsv")
    wanted = ("genre", "dataset", "year", "sid", "sentence1", "sentence2", "score")
    missing = [name for name in ("split", *wanted) if name not in header]
    if missing:
        raise BadArchive(f"stsbenchmark.tsv: no column {', '.join(missing)}")
    for row in rows:
        if row[header.index("split")] == split:
            *source, score = (row[header.index(name)] for name in wanted)
            yield *source, number(score)


def _benchmark_origin() -> Origin:
    columns = ("genre", "file", "year", "id", "sentence1", "sentence2", "score")
    tables = {split: Table(f"STSBenchmark/{split}", columns, rows, scores=(0, 5)) for split, rows in _SPLITS.items()}
    done = {split: senteval(table, lower) for split, table in tables.items()}
    official, sbert = _file(f"{WIKI}/4/48/Stsbenchmark.tar.gz"), _file("https://sbert.net/datasets/stsbenchmark.tsv.gz")
    return Origin(
        "STSBenchmark",
        "scores CC BY-SA 4.0; texts as STS12-17",
        (*tables.values(), *done.values()),
        (
            Alternative(
                "SemEval (ixa2.si.ehu.es)", (official,), {t.name: partial(_benchmark, s) for s, t in tables.items()}
            ),
            Alternative("sbert.net", (sbert,), {t.name: partial(_sbert, s) for s, t in tables.items()}),
            Alternative(SIMCSE, (SENTEVAL_TAR,), {t.name: partial(_benchmark, s) for s, t in done.items()}),
        ),
        note="shares pairs with STS12-16",
    )


def _sick(part: str, members: Members) -> Rows:
    name = f"SICK_{part}.txt"
    for key, left, right, score, label, *_ in islice(cells(members.lines(name), 5, name), 1, None):
        yield key, left, right, number(score), label


def _sick_origin() -> Origin:
    columns = ("pair_id", "sentence1", "sentence2", "score", "entailment")
    tables = {part: Table(f"SICK/{split}", columns, rows, scores=(1, 5)) for split, (part, rows) in _SICK.items()}
    done = {part: senteval(table, cased) for part, table in tables.items()}
    archives = tuple(_file(f"{_QCRI}/semeval2014/task1/data/uploads/sick_{part}.zip") for part in tables)
    return Origin(
        "SICK",
        "CC BY-NC-SA 3.0",
        (*tables.values(), *done.values()),
        (
            Alternative("SemEval (alt.qcri.org)", archives, {t.name: partial(_sick, p) for p, t in tables.items()}),
            Alternative(SIMCSE, (SENTEVAL_TAR,), {t.name: partial(_sick, p) for p, t in done.items()}),
        ),
        note="9,927 pairs; copies with 9,840 are another set",
    )


# ------------------------------------------------------------------------------------------- BIOSSES


def _biosses(members: Members) -> Rows:
    """Its cells are quoted as a spreadsheet does it."""
    lines = csv.DictReader(members.lines("all.tsv"), delimiter="\t")
    for at, row in enumerate(lines, start=1):
        if not all(row.get(name) for name in ("sentence1", "sentence2", "score")):
            raise BadArchive(f"all.tsv, row {at}: wanted sentence1, sentence2 and score")
        yield str(at), row["sentence1"], row["sentence2"], number(row["score"])


_BIOSSES = Origin(
    "BIOSSES",
    "GPL-3.0 (the repository); data: not stated",
    (Table("BIOSSES/test", ("id", "sentence1", "sentence2", "score"), 100, scores=(0, 4)),),
    (
        Alternative(
            "GitHub Markus-Zlabinger/ssts",
            (
                github(
                    "Markus-Zlabinger/ssts",
                    "fce78a649ab90269950aaf44ce20a36e94409392",
                    "data/biosses/all.tsv",
                    "BIOSSES/all.tsv",
                ),
            ),
            {"BIOSSES/test": _biosses},
        ),
    ),
    note="the mteb/biosses-sts copy has other texts in at least one pair",
)

ORIGINS = (*map(_year_origin, SUBSETS), _benchmark_origin(), _sick_origin(), _BIOSSES)
