"""A corpus of the docstrings of the installed Python packages, available on every machine."""

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.datamodules.near_duplicates import NearDuplicateIndex, words_of
from contrastive_encoders.datamodules.sources.docstrings import Module, documented_modules, installed
from contrastive_encoders.datamodules.sources.raw_documents import DocumentSource, RawDocument
from contrastive_encoders.io.atomic import build_once

VERSION = 5  # part of the key: increase it when the same packages would yield different documents
MAX_PAIRS = 500
# The task consists of these packages only, so that installing another package does not change it
HELD_OUT_PACKAGES = frozenset(
    "datasets filelock huggingface_hub hydra numpy omegaconf pyarrow pytorch_lightning "
    "pytorch_metric_learning rich safetensors scipy sklearn tokenizers torch torchmetrics tqdm transformers "
    "wandb".split()
)
SUMMARY_WORDS = (4, 30)
REST_WORDS = 20
RULER = re.compile(r"([*=~^#-])\1{3}")  # of a heading
SENTENCE_END = re.compile(r"(?<=[.!?])\s")


class PydocsSource(DocumentSource):
    """Source of documents, one for each module with at least ``min_words`` words in its docstrings. See
    `DocumentSource`.

    The modules are read once per set of installed packages into ``cache_dir``.

    Args:
        held_out_every: One in this many modules is held out together with its neighbors in the same subpackage (0:
            none). Their docstrings form the task of finding the text that belongs to a summary line.
        held_out_part: Index of the part that is held out. Choices made on one part can be reported on another.
    """

    def __init__(self, cache_dir: str | Path, held_out_every: int, held_out_part: int, min_words: int) -> None:
        if held_out_every < 0 or held_out_every == 1:
            raise InputError(key="data.held_out_every", value=held_out_every, expected="0 (none) or at least 2")
        if not 0 <= held_out_part < max(1, held_out_every):
            raise InputError(
                key="data.held_out_part",
                value=held_out_part,
                expected=f"0 to {max(0, held_out_every - 1)} with data.held_out_every={held_out_every}",
            )
        self.held_out_every = held_out_every
        self.held_out_part = held_out_part
        self.min_words = min_words
        digest = hashlib.sha256(json.dumps(self.fingerprint(), sort_keys=True).encode()).hexdigest()[:16]
        self.directory = Path(cache_dir).expanduser() / f"pydocs-{digest}"

    def documents(self) -> Iterator[RawDocument]:
        self._prepare()
        with (self.directory / "documents.jsonl").open(encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                yield RawDocument(record["text"], f"docstrings of {record['module']}:1")

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (summary, rest) of each docstring to train on."""
        self._prepare()
        with (self.directory / "pairs.jsonl").open(encoding="utf-8") as file:
            for line in file:
                yield tuple(json.loads(line))

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "pydocs",
            "version": VERSION,
            "packages": installed(),
            "python": platform.python_version(),
            "held_out": [self.held_out_every, self.held_out_part],
            "min_words": self.min_words,
        }

    def manifest(self) -> dict[str, Any]:
        self._prepare()
        manifest: dict[str, Any] = json.loads((self.directory / "manifest.json").read_text())
        return manifest

    def held_out(self) -> list[RetrievalData]:
        self._prepare()
        pairs = json.loads((self.directory / "held_out.json").read_text(encoding="utf-8"))
        if not pairs:
            return []
        documents = [" ".join(document.split()) for _, document in pairs]  # one line per document, as in a table
        return [RetrievalData("pydocs", [query for query, _ in pairs], documents)]

    def _prepare(self) -> None:
        build_once(self.directory, lambda folder: (folder / "manifest.json").is_file(), self._build)

    def _build(self, folder: Path) -> None:
        modules = list(documented_modules(self.min_words))
        part = self.held_out_every, self.held_out_part
        held = [module for module in modules if is_held_out(module.name, *part)]
        others = [module for module in modules if not is_held_out(module.name, *part)]
        task = summary_pairs(held, [module for module in others if is_task_package(module.name)])
        trained = without_task(others, task)
        fresh = without_repeats(trained, self.min_words)
        if not fresh:
            raise InputError(
                key="data.min_words",
                value=self.min_words,
                expected="a smaller number, because no usable installed module has that many words in its docstrings",
                hint="Install documented packages (numpy, scipy), or train on other data.",
            )
        lines = [json.dumps({"module": module.name, "text": "\n\n".join(module.docstrings)}) for module in fresh]
        (folder / "documents.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        pairs = [json.dumps(pair) for pair in pairs_of(fresh)]
        (folder / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
        (folder / "held_out.json").write_text(json.dumps(task), encoding="utf-8")
        manifest = {
            "kind": "pydocs",
            "number_of_packages": len(installed()),
            "packages_sha256": hashlib.sha256("\n".join(installed()).encode()).hexdigest(),
            "python": platform.python_version(),
            "min_words": self.min_words,
            "documents": len(fresh),
            "pairs": len(pairs),
            "held_out_modules": len(held),
            "held_out_pairs": len(task),
            "left_out_for_the_task": number_of_docstrings(others) - number_of_docstrings(trained),
            "sha256": hashlib.sha256((folder / "documents.jsonl").read_bytes()).hexdigest(),
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def is_task_package(module: str) -> bool:
    return module.partition(".")[0] in HELD_OUT_PACKAGES


def is_held_out(module: str, every: int, part: int = 0) -> bool:
    """Return whether a module is held out from training.

    It must be in one of the task's packages, and be selected by the hash of package and subpackage. Modules of a
    subpackage often quote each other, so they are on the same side.
    """
    if every == 0 or not is_task_package(module):
        return False
    group = ".".join(module.split(".")[:2])
    return int(hashlib.sha256(group.encode()).hexdigest()[:8], 16) % every == part


def number_of_docstrings(modules: Sequence[Module]) -> int:
    return sum(len(module.docstrings) for module in modules)


def without_task(modules: list[Module], task: list[tuple[str, str]]) -> list[Module]:
    """Return the modules without the docstrings that are equal or nearly equal to a text of the retrieval task.

    Case, punctuation, and whitespace are ignored; see `NearDuplicateIndex`.
    """
    task_texts = {tuple(words_of(side)) for pair in task for side in pair}
    near = NearDuplicateIndex([document for _, document in task])

    def reveals(text: str) -> bool:
        sides = [words_of(side) for side in (text, *split_summary(text))]
        return any(tuple(side) in task_texts for side in sides) or near.has(sides[0])

    return [Module(module.name, [text for text in module.docstrings if not reveals(text)]) for module in modules]


def without_repeats(modules: list[Module], min_words: int) -> list[Module]:
    """Drop docstrings that an earlier module also contains (subclasses copy them), then drop modules that are too
    short.
    """
    seen: set[str] = set()
    kept = []
    for module in modules:
        fresh = [text for text in dict.fromkeys(module.docstrings) if text not in seen]
        seen.update(fresh)
        if sum(len(text.split()) for text in fresh) >= min_words:
            kept.append(Module(module.name, fresh))
    return kept


def summary_pairs(held: list[Module], trained: list[Module]) -> list[tuple[str, str]]:
    """Return at most MAX_PAIRS pairs of a docstring's summary and the rest of the docstring.

    No side is repeated, and no text occurs in the training modules.
    """
    known = {side for module in trained for text in module.docstrings for side in (text, split_summary(text)[1])}
    pairs = [pair for pair in pairs_of(held) if pair[1] not in known]
    chosen = sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())[:MAX_PAIRS]
    return sorted(chosen)


def pairs_of(modules: list[Module]) -> Iterator[tuple[str, str]]:
    """Yield (summary, rest) of each docstring that has both parts, skipping a summary or a rest that occurred
    before.
    """
    queries: set[str] = set()
    documents: set[str] = set()
    for module in modules:
        for text in module.docstrings:
            query, document = split_summary(text)
            if query not in queries and document not in documents and fits(query, document):
                queries.add(query)
                documents.add(document)
                yield query, document


def split_summary(text: str) -> tuple[str, str]:
    """Return the first sentence of the first paragraph, with whitespace collapsed, and the text after this sentence."""
    paragraph, _, below = text.strip().partition("\n\n")
    first, *others = SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)
    return first, "\n\n".join(part for part in (*others, below.strip()) if part)


def fits(query: str, document: str) -> bool:
    """Return whether both texts are long enough, the query is prose, and the document does not contain the query."""
    words = query.split()
    if not SUMMARY_WORDS[0] <= len(words) <= SUMMARY_WORDS[1] or len(document.split()) < REST_WORDS:
        return False
    prose = sum(word.strip(".,;:()`'\"").isalpha() for word in words) >= SUMMARY_WORDS[0]
    return prose and not RULER.search(query) and query.rstrip(".!?").lower() not in " ".join(document.split()).lower()
