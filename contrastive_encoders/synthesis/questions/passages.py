"""Split documents into passages, and divide the documents into the splits train, dev, and held_out.

Near-duplicate documents form a group. Each group is assigned to one part, by a hash of its first text and a seed. A
question of one part is therefore not answered by a text that also occurs in another part. Adding documents moves an
existing document to another part only if its group gets another first text, becomes or is no longer too large, or if a
run of words becomes boilerplate.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.near_duplicates import NearDuplicateIndex, boilerplate_of, words_of
from contrastive_encoders.datamodules.passages import passages_of
from contrastive_encoders.datamodules.sources.row_reading import OnError
from contrastive_encoders.datamodules.sources.text_source import TextSource
from contrastive_encoders.synthesis.recipe_configs import Windows

Part = Literal["train", "dev", "held_out"]
PARTS: tuple[Part, ...] = get_args(Part)
MIN_OWN = 0.2  # share of words outside of boilerplate below which a text counts as a copy of the boilerplate
MAX_SIZE_OVER_MEAN = 2  # a group with more passages than this multiple of the mean may be too large to be held out
MAX_COPIES = 16  # texts that represent all texts with a common run of words


class CorpusPassage(NamedTuple):
    """A passage, with the index of its document."""

    document: int
    number: int  # number within its document
    heading: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.document}-{self.number}"

    @property
    def digest(self) -> str:
        """Return a hash of the passage, which seeds the sampling of its questions.

        The hash does not depend on the position of the passage.
        """
        text = f"{self.heading}\0{self.text}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=12).hexdigest()

    @property
    def whole(self) -> str:
        """Return the heading and the text, joined as BEIR joins title and text for an encoder."""
        return f"{self.heading} {self.text}".strip()


@dataclass
class Collection:
    """All passages of the documents in order, and the split (train, dev, or held_out) of each document."""

    passages: list[CorpusPassage]
    documents: list[str]  # location of each document
    groups: list[int]  # group of each document; documents of a group are near-duplicates
    left_out: Counter[str]  # reason -> number of passages, or of unreadable documents
    texts: list[str] = field(default_factory=list)  # by document: its passages, even if dropped as repeated
    unread: list[str] = field(default_factory=list)  # unreadable documents, with the reason
    passed_over: dict[str, int] = field(default_factory=dict)  # files of a folder that are not documents, by kind
    part_of: dict[int, Part] = field(default_factory=dict)  # document -> part
    boilerplate: Set[int] = frozenset()  # runs of words that many documents share, such as a header

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for one in self.passages:
            digest.update(json.dumps(one).encode())
        return digest.hexdigest()

    def part(self, passage: int) -> Part:
        return self.part_of[self.passages[passage].document]

    def counts(self) -> dict[str, Any]:
        parts = Counter(self.part(place) for place in range(len(self.passages)))
        documents = Counter(self.part_of.values())
        return {
            "documents": len(self.documents),
            "documents_with_passages": len(self.part_of),
            "groups": len(set(self.groups)),
            "passages": len(self.passages),
            "left_out": dict(self.left_out),
            "parts": {part: {"documents": documents[part], "passages": parts[part]} for part in PARTS},
        }


def read_collection(
    path: str | Sequence[str | Path],
    column: str,
    windows: Windows,
    on_error: OnError = "fail",
    max_skipped: float = 1.0,
    encoding: str | None = None,
) -> Collection:
    """Read documents with `TextSource`, split them into passages, and group near-duplicate documents.

    Raises:
        InputError: A file cannot be read, or no passage is long enough.
    """
    source = TextSource(
        path,
        document=None,
        on_error=on_error,
        split="train",
        column=column,
        max_skipped=max_skipped,
        encoding=encoding,
        prefix="",
    )
    found = Collection([], [], [], Counter(), passed_over=source.passed_over)
    texts, seen = list[str](), set[str]()
    for number, document in enumerate(source.documents()):
        found.documents.append(document.where)
        texts.append(document.text)
        found.texts.append("")
        cut = passages_of(document, shortest=windows.min_words, longest=windows.max_words, overlap=windows.overlap)
        for place, (heading, text) in enumerate(cut):
            passage = CorpusPassage(number, place, heading, text)
            if len(text.split()) < windows.min_words:
                found.left_out["too short"] += 1
                continue
            found.texts[number] += f"{passage.whole}\n"
            if text in seen:
                found.left_out["repeated"] += 1
            else:
                seen.add(text)
                found.passages.append(passage)
    found.unread = source.row_filter.skipped_where
    if source.row_filter.skipped:
        found.left_out["unreadable"] = source.row_filter.skipped
    if not found.passages:
        raise InputError(
            key="input",
            value=path,
            expected=f"documents with a passage of at least {windows.min_words} words separated by blanks; none of the "
            f"{len(texts):,} documents contains such a passage",
            hint="Use longer documents, or lower passages.min_words.",
        )
    found.boilerplate = boilerplate_of(texts)
    found.groups = groups_of(texts, found.boilerplate)
    return found


def groups_of(texts: Sequence[str], boilerplate: Set[int] = frozenset()) -> list[int]:
    """Group near-duplicate texts. Return the index of the first text in its group for each text.

    Two texts are in the same group if a chain of near-duplicates, or of texts with equal words, connects them. Words in
    ``boilerplate`` do not make two texts near-duplicates, unless the texts consist of little else.
    """
    copies, equal = _index_of(texts, boilerplate), dict[tuple[str, ...], int]()
    pairs = list[tuple[int, int]]()
    for place, own in enumerate(map(words_of, texts)):
        pairs += [(place, other) for other in (equal.setdefault(tuple(own), place), *copies.like(own))]
    rows, columns = zip(*pairs, strict=True)
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(texts), len(texts)))
    _, groups = connected_components(graph, directed=False)
    _, first = np.unique(groups, return_index=True)
    return [int(place) for place in first[groups]]


def _index_of(texts: Sequence[str], boilerplate: Set[int]) -> NearDuplicateIndex:
    return NearDuplicateIndex(texts, boilerplate, min_own=MIN_OWN, max_texts=MAX_COPIES)


def divide(collection: Collection, shares: dict[Part, float], seed: int) -> None:
    """Assign each document that has passages to train, dev, or held_out.

    Training passages that are near-duplicates of dev or held-out passages are dropped, and dev passages that are
    near-duplicates of held-out passages.

    A group with more passages than a part should have is not assigned to this part, so that no part is about one
    document. This does not apply to groups that are at most `MAX_SIZE_OVER_MEAN` times as large as the mean.

    Args:
        shares: Fractions of the documents for ``dev`` and ``held_out``.

    Raises:
        InputError: There are too few groups of documents for the requested parts.
    """
    members, sizes = defaultdict[int, set[int]](set), Counter[int]()
    for passage in collection.passages:
        root = collection.groups[passage.document]
        members[root].add(passage.document)
        sizes[root] += 1
    wanted = [part for part, share in shares.items() if share]
    if len(members) < len(wanted) + 1:
        raise InputError(
            key="input",
            expected=f"at least {len(wanted) + 1} groups of documents, but near-duplicates form one group, and the "
            f"{len(collection.documents):,} documents form {len(members)} group(s)",
            hint="Use more documents, or documents that differ more. `generate recipe=queries` accepts one group if "
            "you set held_out_fraction=0 dev_fraction=0.",
        )
    # By the first document of a group, so that adding copies of it changes nothing
    drawn = sorted(
        (_hash_fraction(collection.texts[min(documents)], seed), root) for root, documents in members.items()
    )
    part_of_group = dict[int, Part]()
    begin = 0.0
    for part in wanted:
        most = max(shares[part], MAX_SIZE_OVER_MEAN / len(members)) * len(collection.passages)
        free = [(at, root) for at, root in drawn if root not in part_of_group]
        fitting = [(at, root) for at, root in free if sizes[root] <= most]
        inside = [root for at, root in fitting if begin <= at < begin + shares[part]]
        # With few groups, a part may get none by chance: then it gets the nearest one
        part_of_group |= dict.fromkeys(inside or [root for _, root in (fitting or free)[:1]], part)
        begin += shares[part]
    if len(part_of_group) == len(members):
        del part_of_group[drawn[-1][1]]  # at least one group is for training
    collection.part_of = {
        one: part_of_group.get(root, "train") for root, documents in members.items() for one in documents
    }
    for part, others in (("dev", ["held_out"]), ("train", ["held_out", "dev"])):
        _drop_near_duplicates(collection, part, others)


def _drop_near_duplicates(collection: Collection, part: str, others: Sequence[str]) -> None:
    """Drop the passages of the split ``part`` that are near-duplicates of passages in the splits ``others``."""
    parts = [collection.part(place) for place in range(len(collection.passages))]
    texts = [one.text for one, own in zip(collection.passages, parts, strict=True) if own in others]
    near = _index_of(texts, collection.boilerplate)
    kept = [
        one
        for one, own in zip(collection.passages, parts, strict=True)
        if own != part or not near.has(words_of(one.text))
    ]
    if number := len(collection.passages) - len(kept):
        collection.left_out["near-copies of what is held out"] += number
    collection.passages = kept


def _hash_fraction(text: str, seed: int) -> float:
    """Return a pseudorandom number in [0, 1) that depends only on the words of a text and the seed."""
    words = " ".join(words_of(text)) or text
    digest = hashlib.blake2b(f"{seed}\0{words}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
