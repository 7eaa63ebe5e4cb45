"""Prepare the input sentences for triplets: split, clean, filter, and deduplicate them.

One process does this once, before any candidate is generated; other processes wait. The results are a file with one
sentence per line and the counts of dropped sentences. Both are renamed to their final names when complete. Memory
does not depend on the number of sentences.
"""

import logging
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.io.manifest import CorruptFileError, read_record, sha256_of, write_record
from contrastive_encoders.synthesis.sentences.duplicates import Duplicates
from contrastive_encoders.synthesis.sentences.inputs import Inputs, open_inputs
from contrastive_encoders.synthesis.sentences.split import clean, has_letters, split
from contrastive_encoders.synthesis.shards.store import SENTENCES_FOLDER

log = logging.getLogger(__name__)

TEXTS, COUNTS = "sentences.txt", "counts.json"
NON_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, kw_only=True)
class SentenceRules:
    """Configuration keys of the rules that select input sentences."""

    min_words: int = config_field(
        8,
        "minimum number of words of a sentence; for the premises of triplets, rules.min_premise_words also applies",
        ge=1,
    )
    max_words: int | None = config_field(None, "maximum number of words of a sentence; null: no limit")
    drop_duplicates: bool = config_field(
        True,
        "whether to drop duplicate sentences across the entire input; the hashes of the sentences are stored on disk, "
        "so that the input may have any size",
    )
    exclude: str | None = config_field(
        None,
        "text file of sentences to exclude, one per line, such as those of a test set; case, spaces, and punctuation "
        "are ignored",
    )


@dataclass(frozen=True, kw_only=True)
class Preparation(SentenceRules):
    """Settings of the preparation: the rules for sentences, and whether the texts are documents, which are first split
    into sentences.

    If so, the texts of ``exclude`` are also split.
    """

    kind: Literal["sentences", "documents"] = "sentences"

    def check(self) -> None:
        """Raise `InputError` if ``max_words`` is too small or the file ``exclude`` does not exist."""
        if self.max_words is not None and self.max_words < self.min_words:
            raise InputError(
                key="sentences.max_words",
                value=self.max_words,
                expected=f"at least sentences.min_words={self.min_words}, or null",
            )
        if self.exclude is not None and not Path(self.exclude).is_file():
            raise InputError(
                key="sentences.exclude",
                value=self.exclude,
                expected="an existing file of sentences, one per line, or null",
            )

    def unwanted(self) -> frozenset[str]:
        """Return the sentences of ``exclude``, normalized by `normalize_sentence`.

        Raises:
            InputError: The file is not UTF-8.
        """
        found = set[str]()
        if self.exclude is None or not Path(self.exclude).stat().st_size:
            return frozenset(found)
        try:
            for text in open_inputs(self.exclude, "text"):
                found.add(normalize_sentence(text))
                if self.kind == "documents":
                    found.update(map(normalize_sentence, split(text)))
        except InputError as error:
            raise error.copy(f"sentences.exclude={error}", key="sentences.exclude") from None
        return frozenset(found - {""})

    def rejected(self, sentence: str) -> str:
        """Return the reason to drop a cleaned sentence, or an empty string if the sentence is kept."""
        if not sentence:
            return "blank"
        words = sentence.count(" ") + 1
        if words < self.min_words:
            return "too few words"
        if self.max_words is not None and words > self.max_words:
            return "too many words"
        return "" if has_letters(sentence) else "no letters"


@dataclass(frozen=True)
class Prepared:
    """Iterable over the prepared sentences in a file, with the counts of the preparation."""

    path: Path
    counts: dict[str, Any]

    @property
    def number(self) -> int:
        return int(self.counts["kept"])

    def __iter__(self) -> Iterator[str]:
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line[:-1]


def identify(inputs: Inputs, how: Preparation) -> dict[str, Any]:
    """Return the settings that identify the prepared sentences: a checksum of the input, and the rules."""
    found = {"sha256": inputs.sha256(), "type": inputs.kind, "column": inputs.column, "kind": how.kind, **asdict(how)}
    if how.exclude is None:
        del found["exclude"]
    else:
        found["exclude"] = sha256_of(Path(how.exclude))
    return found


def normalize_sentence(sentence: str) -> str:
    """Normalize a sentence to its letters and digits in lowercase. Equivalent Unicode forms give equal results."""
    if not sentence.isascii():
        sentence = unicodedata.normalize("NFKC", sentence)
    return NON_WORD.sub("", sentence.casefold())


def prepare(inputs: Inputs, how: Preparation, folder: Path, identity: Mapping[str, Any] | None = None) -> Prepared:
    """Return the prepared sentences in ``folder``. Prepare them if they do not exist or have another identity.

    Args:
        identity: Result of `identify`, if it is already known. Computing it reads all of the input.

    Raises:
        InputError: The input cannot be read, or no sentence is kept.
    """
    place, wanted = folder / SENTENCES_FOLDER, dict(identity or identify(inputs, how))
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        counts = _read_counts(place, wanted)
        if counts is None:
            (place / COUNTS).unlink(missing_ok=True)
            counts = _write(inputs, how, place)
            write_record(place / COUNTS, {"of": wanted, **counts})
    if not counts["kept"]:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in counts["left_out"].items())
        raise InputError(
            key="input",
            value=f"{counts['sentences']:,} sentences ({reasons})" if reasons else "no sentences",
            expected="at least one sentence that satisfies the rules",
            location=inputs.name,
            hint="Lower sentences.min_words, or use other texts.",
        )
    return Prepared(place / TEXTS, counts)


def _read_counts(place: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the counts of sentences that were prepared earlier.

    Return None if there are no prepared sentences, if they have another identity, or if the record is damaged.
    """
    try:
        found = read_record(place / COUNTS)
        return found if found.pop("of", None) == wanted and (place / TEXTS).is_file() else None
    except FileNotFoundError:
        return None
    except CorruptFileError as error:
        log.warning("%s: %s. Preparing the sentences again.", place, error)
        return None


def _write(inputs: Inputs, how: Preparation, place: Path) -> dict[str, Any]:
    work = place / "work"
    shutil.rmtree(work, ignore_errors=True)  # of a killed run
    work.mkdir()
    counts = Counter[str]()
    left_out = Counter[str]()
    unwanted = how.unwanted()
    with closing(Duplicates(work)) as seen, (work / TEXTS).open("w", encoding="utf-8", newline="\n") as file:
        for sentence in _sentences(inputs.all_texts(), how.kind, counts):
            # Held-out sentences are checked first, so that their count includes short ones
            why = "held out" if unwanted and normalize_sentence(sentence) in unwanted else how.rejected(sentence)
            if not why and how.drop_duplicates and not seen.is_new(sentence):
                why = "duplicate"
            if why:
                left_out[why] += 1
            else:
                file.write(sentence + "\n")
    (work / TEXTS).replace(place / TEXTS)
    shutil.rmtree(work)
    kept = counts["sentences"] - left_out.total()
    return {"texts": counts["texts"], "sentences": counts["sentences"], "kept": kept, "left_out": dict(left_out)}


def _sentences(texts: Iterable[str], kind: str, counts: Counter[str]) -> Iterator[str]:
    """Yield the cleaned sentences of the texts, and count texts and sentences in ``counts``."""
    for text in texts:
        counts["texts"] += 1
        for sentence in split(text) if kind == "documents" else (text,):
            counts["sentences"] += 1
            yield clean(sentence)
