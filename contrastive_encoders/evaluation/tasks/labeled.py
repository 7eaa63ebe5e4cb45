"""Tables and labels of SentEval's classification and probing sets."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import TableRow, read_table, table
from contrastive_encoders.evaluation.task import TaskEntry
from contrastive_encoders.evaluation.tasks.classification import Classification, ClassificationSpec, LabeledSplit


class LabeledLayout(NamedTuple):
    """Tables of a labeled data set, and how their rows are read."""

    rows: dict[str, int]  # table -> official number of rows, in the order (all) or (train, test) or (train, dev, test)
    labels: tuple[str, ...]  # in the order of SentEval's class numbers
    recipe: ClassificationSpec = ClassificationSpec()
    sentences: tuple[str, ...] = ("sentence",)  # columns
    label: str = "label"  # column
    sort_by: tuple[int, ...] = (0,)  # sentences sorted by their number of words, the primary key first
    may_be_empty: bool = False
    senteval: bool = False  # whether a second form of the text exists


PARTS = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}
_PAIR = ("sentence1", "sentence2")
# Settings of SentEval for SNLI alone (snli.py: max_epoch and epoch_size, which classifier.py reads)
SNLI_SETTINGS = {"max_epoch": 15, "passes": 1}
LAYOUTS = {
    "cr": LabeledLayout({"CR/all": 3775}, ("0", "1"), may_be_empty=True, senteval=True),
    "mr": LabeledLayout({"MR/all": 10662}, ("0", "1"), senteval=True),
    "mpqa": LabeledLayout({"MPQA/all": 10606}, ("0", "1"), may_be_empty=True, senteval=True),
    # SentEval uses objective sentences as the positive class, the table subjective ones
    "subj": LabeledLayout({"SUBJ/all": 10000}, ("1", "0"), senteval=True),
    "sst2": LabeledLayout({"SST2/train": 67349, "SST2/dev": 872, "SST2/test": 1821}, ("0", "1")),
    "sst5": LabeledLayout({"SST5/train": 8544, "SST5/dev": 1101, "SST5/test": 2210}, ("0", "1", "2", "3", "4")),
    "trec": LabeledLayout(
        {"TREC/train": 5452, "TREC/test": 500}, ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"), senteval=True
    ),
    "mrpc": LabeledLayout(
        {"MRPC/train": 4076, "MRPC/test": 1725}, ("0", "1"), ClassificationSpec("pair", f1=True), _PAIR, sort_by=(0, 1)
    ),
    "snli": LabeledLayout(
        {"SNLI/train": 549367, "SNLI/dev": 9842, "SNLI/test": 9824},
        ("entailment", "neutral", "contradiction"),
        ClassificationSpec("inference", changes=SNLI_SETTINGS, regularized=False),
        ("premise", "hypothesis"),
        sort_by=(1, 0),
    ),
    "sicke": LabeledLayout(
        {"SICK/train": 4500, "SICK/dev": 500, "SICK/test": 4927},
        ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
        ClassificationSpec("pair"),
        _PAIR,
        label="entailment",
        sort_by=(0, 1),
        senteval=True,
    ),
}


def senteval_order(
    where: str, sides: Sequence[list[str]], labels: list[int], ranks: list[int], sort_by: tuple[int, ...]
) -> LabeledSplit:
    """Return rows in SentEval's order: by number of words, then by ``ranks``. Tied rows keep the order of the file."""
    words = [[len(text.split()) for text in sides[number]] for number in sort_by]
    order = sorted(range(len(labels)), key=lambda row: (*(counts[row] for counts in words), ranks[row]))
    texts = tuple([side[row] for row in order] for side in sides)
    return LabeledSplit(where, texts, np.array([labels[row] for row in order], dtype=np.int64))


def _read_set(layout: LabeledLayout, root: Path, name: str, config: EvaluateConfig) -> Classification:
    names = PARTS[len(layout.rows)]
    paths = [table(root, one, name) for one in layout.rows]
    parts = {part: _part(layout, path) for part, path in zip(names, paths, strict=True)}
    return Classification(name, layout.recipe, layout.labels, parts, config)


def _part(layout: LabeledLayout, path: Path) -> LabeledSplit:
    known = {label: number for number, label in enumerate(layout.labels)}
    sides: tuple[list[str], ...] = tuple([] for _ in layout.sentences)
    labels: list[int] = []
    for row in read_table(path, [layout.label, *layout.sentences]):
        labels.append(row.label(layout.label, known))
        for side, column in zip(sides, layout.sentences, strict=True):
            side.append(row.values[column].strip() if layout.may_be_empty else row.text(column))
    # SNLI is sorted while its labels are still text
    alphabetic = {label: rank for rank, label in enumerate(sorted(layout.labels))}
    by_word = layout.recipe.combination == "inference"
    ranks = [alphabetic[layout.labels[label]] for label in labels] if by_word else labels
    return senteval_order(str(path), sides, labels, ranks, layout.sort_by)


SENTEVAL_ENTRIES = {
    name: TaskEntry(one.rows, partial(_read_set, one), senteval=one.senteval) for name, one in LAYOUTS.items()
}

# The ten probing tasks (Conneau et al. 2018), each a table with split, label, and sentence
PROBING = {  # score name -> the authors' file name
    "length": "sentence_length",
    "wordcontent": "word_content",
    "depth": "tree_depth",
    "topconstituents": "top_constituents",
    "bigramshift": "bigram_shift",
    "tense": "past_present",
    "subjnumber": "subj_number",
    "objnumber": "obj_number",
    "oddmanout": "odd_man_out",
    "coordinationinversion": "coordination_inversion",
}
PROBING_ROWS = 120_000  # 100,000 for training, 10,000 each for dev and test
PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}
# SentEval omits the hidden layer for 1,000 classes, independent of nhid (probing.py)
LINEAR_ONLY = ("wordcontent",)


def _read_probing(recipe: ClassificationSpec, root: Path, name: str, config: EvaluateConfig) -> Classification:
    path = table(root, f"PROBING/{name}")
    rows_of: dict[str, list[TableRow]] = {split: [] for split in PROBING_SPLITS.values()}
    for row in read_table(path, ["split", "label", "sentence"]):
        rows_of[row.label("split", PROBING_SPLITS)].append(row)
    # A label that is missing from the training rows could never be predicted
    known = {label: number for number, label in enumerate(sorted({row.word("label") for row in rows_of["train"]}))}
    parts = {}
    for split, rows in rows_of.items():
        labels = [row.label("label", known) for row in rows]
        sentences = [row.text("sentence") for row in rows]
        parts[split] = senteval_order(f"{path}, split {split}", (sentences,), labels, labels, (0,))
    return Classification(name, recipe, list(known), parts, config)


PROBING_ENTRIES = {
    name: TaskEntry(
        {f"PROBING/{name}": PROBING_ROWS}, partial(_read_probing, ClassificationSpec(linear_only=name in LINEAR_ONLY))
    )
    for name in PROBING
}
