"""Public training corpora: the location of their files, their names, and their numbers of rows.

Addresses and numbers are taken from the hubs' pages and the papers. Row counts that were not published are not checked.
"""

from typing import NamedTuple

from contrastive_encoders.io.download import File

HUB = "https://huggingface.co"
SIMCSE = f"{HUB}/datasets/princeton-nlp/datasets-for-simcse/resolve/main"
USEB = "https://public.ukp.informatik.tu-darmstadt.de/kwang/unsupse-benchmark/tsdae-evaluation"


class CorpusFile(NamedTuple):
    """File of a public training corpus. With ``listed``, all files that a list of addresses names."""

    name: str  # name in the folder of the corpus; of listed files, the beginning of their names
    file: File
    rows: int | None  # published number; of listed files, the total
    member: str = ""  # file within an archive
    listed: bool = False  # ``file`` is a JSON list of addresses


class Corpus(NamedTuple):
    about: str
    license: str
    pieces: tuple[CorpusFile, ...]  # empty: the corpus is made of what is installed on this machine
    then: str  # overrides of train, for the folder FOLDER in ROOT


def _listed(name: str, rows: int, repository: str, config: str) -> CorpusFile:
    """Return the training split of a hub dataset as a `CorpusFile`, whose address returns a list of the split's Parquet
    files.
    """
    address = f"{HUB}/api/datasets/sentence-transformers/{repository}/parquet/{config}/train"
    return CorpusFile(name, File(f"{name}.json", address), rows, listed=True)


def _domain(name: str) -> CorpusFile:
    return CorpusFile(
        f"{name}.txt", File("data-train.zip", f"{USEB}/data-train.zip"), None, f"{name}/unsupervised/train.txt"
    )


NLI, WIKI = "nli_for_simcse.csv", "wiki1m_for_simcse.txt"
CORPORA = {
    "simcse_nli": Corpus(
        "premise, entailment and contradiction of SNLI and MNLI, as SimCSE and GenSE train on them",
        "none stated (SNLI CC BY-SA 4.0; MNLI: several)",
        (CorpusFile(NLI, File(NLI, f"{SIMCSE}/{NLI}"), 275_601),),
        f"experiment=simcse_sup data.path=FOLDER/{NLI}",
    ),
    "nli_pairs": Corpus(
        "premise, hypothesis and label of SNLI and MultiNLI, as SBERT trains on them",
        "SNLI CC BY-SA 4.0; MNLI: several",
        (_listed("nli", 942_069, "all-nli", "pair-class"),),
        "experiment=sbert_nli data.path=FOLDER",
    ),
    "wiki1m": Corpus(
        "sentences of Wikipedia, as unsupervised SimCSE trains on them",
        "none stated (Wikipedia CC BY-SA)",
        (CorpusFile(WIKI, File(WIKI, f"{SIMCSE}/{WIKI}"), 1_000_000),),
        f"experiment=simcse_unsup data.path=FOLDER/{WIKI}",
    ),
    "tsdae": Corpus(
        "sentences of four domains, as TSDAE and table 3 of GenSE train on them",
        "Stack Exchange CC BY-SA 3.0; tweets: Twitter's terms; SciDocs: none stated",
        tuple(_domain(name) for name in ("askubuntu", "cqadupstack", "scidocs", "twitter")),
        "model=tsdae data=sentences data.path=FOLDER/askubuntu.txt max_steps=100000",
    ),
    "qa": Corpus(
        "questions with answers of GooAQ, ELI5 and Yahoo Answers: about the four million of GenSE",
        "none stated; ELI5 is text of Reddit under its terms",
        (
            _listed("gooaq", 3_012_496, "gooaq", "pair"),
            _listed("eli5", 325_475, "eli5", "pair"),
            _listed("yahoo", 681_164, "yahoo-answers", "question-answer-pair"),
        ),
        "experiment=gense_qa stages.qa.data.path=FOLDER stages.nli.data.path=FILE",
    ),
    "pydocs": Corpus(
        "summary lines of the installed packages' docstrings, what follows them, and the task of finding it",
        "that of each package",
        (),
        "model=pairs data=qa data.path=FOLDER/pairs.jsonl evaluation.suite=pydocs evaluation.data_root=ROOT",
    ),
}
