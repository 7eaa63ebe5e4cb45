"""STS12-16, the STS benchmark, SICK, and BIOSSES, with raw texts and as tokenized by SentEval's script.

SentEval's form is Moses-tokenized, lower-cased for STS12-16 and the benchmark, cased for SICK.
"""

import csv
from functools import partial

from contrastive_encoders.evaluation.download.dataset_specs import (
    DatasetSpec,
    DownloadLocation,
    Rows,
    TableSpec,
    cells,
    file_from_url,
    github,
    normalize_number,
    select_columns,
    senteval,
    simcse,
)
from contrastive_encoders.evaluation.download.senteval_preprocessing import moses, moses_lower
from contrastive_encoders.evaluation.tasks.sts import SICK, STSB, YEARS
from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.download import File

_WIKI, _QCRI = "http://ixa2.si.ehu.es/stswiki/images", "http://alt.qcri.org"
SUBSETS = {
    "STS12": "MSRpar MSRvid SMTeuroparl surprise.OnWN surprise.SMTnews".split(),
    "STS13": "FNWN headlines OnWN".split(),  # SMT is not distributed
    "STS14": "deft-forum deft-news headlines images OnWN tweet-news".split(),
    "STS15": "answers-forums answers-students belief headlines images".split(),
    "STS16": "answer-answer headlines plagiarism postediting question-question".split(),
}
_BASE = "scores CC BY-SA 4.0"
_YEARS = {  # archive, its folder, license
    "STS12": ("4/40/STS2012", "test-gold", f"{_BASE}; MSRpar and MSRvid: Microsoft research license"),
    "STS13": ("2/2f/STS2013", "test-gs", f"{_BASE}; headlines: EMM terms"),
    "STS14": ("8/8c/STS2014", "sts-en-test-gs-2014", f"{_BASE}; headlines: EMM terms; deft: LDC"),
    "STS15": ("d/da/STS2015", "test_evaluation_task2a", f"{_BASE}; answers-forums CC BY-SA 3.0"),
    "STS16": (
        "9/98/STS2016",
        "sts2016-english-with-gs-v1.0",
        "CC BY-SA 3.0, CC BY 4.0, CC BY-NC-SA 2.0 UK by subset; headlines: EMM terms",
    ),
}
_COPY = File(  # raw and tokenized STS sets, each in a folder
    "SynWMD.tar.gz",
    "https://codeload.github.com/amao0o0/SynWMD/tar.gz/59042a92e862db58bd01e47914345d2f52d2a4a3",
)


def _year(year: str, folder: str, prefix: str, members: Members) -> Rows:
    """Yield the rated pairs of one year of the STS tasks (STS12 to STS16). Pairs without a gold score are left out, as
    in SentEval.
    """
    for subset in SUBSETS[year]:
        name = f"{folder}/{prefix}.input.{subset}.txt"
        pairs = list(cells(members.lines(name), 2, name))
        gold = members.lines(f"{folder}/{prefix}.gs.{subset}.txt")
        if len(pairs) != len(gold):
            raise InvalidArchiveError(f"{name}: {len(pairs)} pairs, but {len(gold)} scores")
        for (left, right, *_), score in zip(pairs, gold, strict=True):
            if score.strip():
                yield subset, left, right, normalize_number(score)


def _year_origin(year: str) -> DatasetSpec:
    archive, folder, license = _YEARS[year]
    raw = TableSpec(f"{year}/test", ("subset", "sentence1", "sentence2", "score"), YEARS[year.lower()], scores=(0, 5))
    done = senteval(raw, moses_lower)
    prefix = "STS2016" if year == "STS16" else "STS"
    urls = [f"{_WIKI}/{archive}-en-test.zip"]
    if year == "STS16":
        urls.append(f"{_QCRI}/semeval2016/task1/data/uploads/sts2016-english-with-gs-v1.0.zip")
    official = {raw.name: partial(_year, year, folder, prefix)}
    copy = {raw.name: partial(_year, year, f"{year}-en-test/{folder}", prefix)}
    tokenized = {done.name: partial(_year, year, f"{year}-en-test", "STS")}
    places = [DownloadLocation(f"SemEval ({url.split('/')[2]})", (file_from_url(url),), official) for url in urls]
    others = DownloadLocation("GitHub amao0o0/SynWMD", (_COPY,), copy), simcse(tokenized)
    return DatasetSpec(year, license, (raw, done), (*places, *others))


def _sbert(split: str, members: Members) -> Rows:
    """Yield the rows of a split from sentence-transformers' copy of STS-B, which is a single table for all splits."""
    header, *rows = cells(members.lines("stsbenchmark.tsv"), 8, "stsbenchmark.tsv")
    columns = ("genre", "dataset", "year", "sid", "sentence1", "sentence2", "score")
    missing = [name for name in ("split", *columns) if name not in header]
    if missing:
        raise InvalidArchiveError(f"stsbenchmark.tsv: no column {', '.join(missing)}")
    for row in rows:
        if row[header.index("split")] == split:
            *source, score = (row[header.index(name)] for name in columns)
            yield *source, normalize_number(score)


def _benchmark_origin() -> DatasetSpec:
    columns, splits = ("genre", "file", "year", "id", "sentence1", "sentence2", "score"), ("train", "dev", "test")
    raw = [TableSpec(name, columns, rows, scores=(0, 5)) for name, rows in STSB.items()]
    done = [senteval(table, moses_lower) for table in raw]
    own = [partial(select_columns, f"sts-{split}.csv", (0, 1, 2, 3, 5, 6, 4), score=4) for split in splits]
    official = {table.name: make for table, make in zip(raw, own, strict=True)}
    copy = {table.name: partial(_sbert, split) for table, split in zip(raw, splits, strict=True)}
    return DatasetSpec(
        "STSBenchmark",
        "scores CC BY-SA 4.0; texts as STS12-17",
        (*raw, *done),
        (
            DownloadLocation(
                "SemEval (ixa2.si.ehu.es)", (file_from_url(f"{_WIKI}/4/48/Stsbenchmark.tar.gz"),), official
            ),
            DownloadLocation("sbert.net", (file_from_url("https://sbert.net/datasets/stsbenchmark.tsv.gz"),), copy),
            simcse({table.name: make for table, make in zip(done, own, strict=True)}),
        ),
        note="shares pairs with STS12-16",
    )


def _sick_origin() -> DatasetSpec:
    columns = ("pair_id", "sentence1", "sentence2", "score", "entailment")
    parts = ("train", "trial", "test_annotated")  # as in the names of their archives
    raw = [TableSpec(name, columns, rows, scores=(1, 5)) for name, rows in SICK.items()]
    done = [senteval(table, moses) for table in raw]
    made = [partial(select_columns, f"SICK_{part}.txt", range(5), header=True, score=3) for part in parts]
    archives = tuple(file_from_url(f"{_QCRI}/semeval2014/task1/data/uploads/sick_{part}.zip") for part in parts)
    return DatasetSpec(
        "SICK",
        "CC BY-NC-SA 3.0",
        (*raw, *done),
        (
            DownloadLocation(
                "SemEval (alt.qcri.org)", archives, {t.name: make for t, make in zip(raw, made, strict=True)}
            ),
            simcse({t.name: make for t, make in zip(done, made, strict=True)}),
        ),
        note="9,927 pairs; copies with 9,840 are another set",
    )


def _biosses(members: Members) -> Rows:
    """Yield the rated pairs of BIOSSES, whose cells are quoted as in a spreadsheet."""
    lines = csv.DictReader(members.lines("all.tsv"), delimiter="\t")
    for number, row in enumerate(lines, start=1):
        if not all(row.get(name) for name in ("sentence1", "sentence2", "score")):
            raise InvalidArchiveError(f"all.tsv, row {number}: expected sentence1, sentence2, and score")
        yield str(number), row["sentence1"], row["sentence2"], normalize_number(row["score"])


_SSTS = ("Markus-Zlabinger/ssts", "fce78a649ab90269950aaf44ce20a36e94409392", "data/biosses/all.tsv")
_BIOSSES = DatasetSpec(
    "BIOSSES",
    "GPL-3.0 (the repository); data: not stated",
    (TableSpec("BIOSSES/test", ("id", "sentence1", "sentence2", "score"), 100, scores=(0, 4)),),
    (
        DownloadLocation(
            "GitHub Markus-Zlabinger/ssts", (github(*_SSTS, "BIOSSES/all.tsv"),), {"BIOSSES/test": _biosses}
        ),
    ),
    note="the mteb/biosses-sts copy has other texts in at least one pair",
)

ORIGINS = (*map(_year_origin, SUBSETS), _benchmark_origin(), _sick_origin(), _BIOSSES)
