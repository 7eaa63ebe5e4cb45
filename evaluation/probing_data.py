"""The ten probing tasks (Conneau et al. 2018) under ``data_root``: one table each, of split, label and sentence."""

from functools import partial
from pathlib import Path

from contracts import InputError
from evaluation.classification import Classification, Recipe
from evaluation.senteval_data import arranged, read_label
from evaluation.task import Entry, Options
from evaluation.tsv import read_rows, read_text, table

TASKS = {  # score name -> file name of the authors
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
ROWS = 120_000  # 100,000 to train on, 10,000 each for dev and test
SPLITS = {"tr": "train", "va": "dev", "te": "test"}
# a hidden layer for 1,000 classes: SentEval leaves it away whatever nhid says (probing.py)
LINEAR_ONLY = ("wordcontent",)


def _read(recipe: Recipe, root: Path, name: str, options: Options) -> Classification:
    path = table(root, f"PROBING/{name}")
    found: dict[str, list[tuple[str, str, str]]] = {split: [] for split in SPLITS}
    for where, (split, label, sentence) in read_rows(path, ["split", "label", "sentence"]):
        if split not in found:
            raise InputError(f"{where}: split is {split!r}; wanted tr, va or te. Correct it or delete the row.")
        found[split].append((where, read_text(where, "label", label), read_text(where, "sentence", sentence)))
    # a label that is not in the training rows could never be predicted
    known = {label: number for number, label in enumerate(sorted({label for _, label, _ in found["tr"]}))}
    if len(known) < 2:
        raise InputError(f"{path}: its rows of split tr have {len(known)} labels; wanted at least 2. Fetch it again.")
    parts = {}
    for split, rows in found.items():
        labels = [read_label(where, "label", label, known) for where, label, _ in rows]
        sentences = [sentence for _, _, sentence in rows]
        parts[SPLITS[split]] = arranged(f"{path}, split {split}", (sentences,), labels, labels, (0,))
    return Classification(name, recipe, list(known), parts, options)


ENTRIES = {
    name: Entry({f"PROBING/{name}": ROWS}, partial(_read, Recipe(linear_only=name in LINEAR_ONLY))) for name in TASKS
}
