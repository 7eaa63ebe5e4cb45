"""The passages of a collection of documents, and the parts that its documents are divided into.

Documents that nearly repeat each other are a group, and groups go to a part as a whole, by a hash of their texts and a
seed. So no question of a part is answered by a text that another part has as well, and documents that come later move
no others.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.near_duplicates import NearDuplicateIndex, words_of
from contrastive_encoders.datamodules.passages import passages_of
from contrastive_encoders.datamodules.sources.raw_documents import TextSource
from contrastive_encoders.synthesis.recipe_configs import Windows

Part = Literal["train", "choice", "held_out"]
PARTS: tuple[Part, ...] = get_args(Part)


class CorpusPassage(NamedTuple):
    """A passage and the document that it is of."""

    document: int
    number: int  # in its document
    heading: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.document}-{self.number}"

    @property
    def digest(self) -> str:
        """What its questions are drawn by: they stay the same wherever the passage stands."""
        text = f"{self.heading}\0{self.text}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=12).hexdigest()

    @property
    def whole(self) -> str:
        """As it is encoded: the heading stands before the text, as BEIR's titles do."""
        return f"{self.heading} {self.text}".strip()


@dataclass
class Collection:
    """All passages in order, and the part of each document."""

    passages: list[CorpusPassage]
    documents: list[str]  # where each stands
    groups: list[int]  # of each document; documents of one group nearly repeat each other
    left_out: Counter[str]  # reason -> passages, or documents that cannot be read
    texts: list[str] = field(default_factory=list)  # of each document, its passages, also those left out as repeated
    unread: list[str] = field(default_factory=list)  # what cannot be read, and why
    passed_over: dict[str, int] = field(default_factory=dict)  # files of a folder that are no documents, by kind
    part_of: dict[int, Part] = field(default_factory=dict)  # document -> part

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
    on_error: Literal["fail", "skip"] = "fail",
    max_skipped: float = 1.0,
    encoding: str | None = None,
) -> Collection:
    """Read the documents of a path by `TextSource`, cut them into passages, and group those that nearly repeat each
    other.

    Raises:
        InputError: a file cannot be read, or no passage is long enough.
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
        cut = passages_of(document, shortest=windows.shortest, longest=windows.words, overlap=windows.overlap)
        for place, (heading, text) in enumerate(cut):
            passage = CorpusPassage(number, place, heading, text)
            if len(text.split()) < windows.shortest:
                found.left_out["too short"] += 1
                continue
            found.texts[number] += f"{passage.whole}\n"
            if text in seen:
                found.left_out["repeated"] += 1
            else:
                seen.add(text)
                found.passages.append(passage)
    found.unread = source.tally.skipped_where
    if source.tally.skipped:
        found.left_out["unreadable"] = source.tally.skipped
    if not found.passages:
        raise InputError(
            f"input={path}: no passage has {windows.shortest} words with blanks between them, of {len(texts):,} "
            "documents. Give longer documents, or lower passages.shortest."
        )
    found.groups = groups_of(texts)
    return found


def groups_of(texts: Sequence[str]) -> list[int]:
    """For each text the first of its group: texts are of one where a chain of near-copies, or of equal words, leads
    from one to the other.
    """
    first = list(range(len(texts)))

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    words = [words_of(text) for text in texts]
    copies, equal = NearDuplicateIndex(texts), dict[tuple[str, ...], int]()
    for place, own in enumerate(words):
        for other in [equal.setdefault(tuple(own), place), *copies.like(own)]:
            one, two = sorted((root(place), root(other)))
            first[two] = one
    return [root(place) for place in range(len(texts))]


def divide(collection: Collection, shares: dict[Part, float], seed: int) -> None:
    """Give each document that has passages a part; ``shares`` are those of ``choice`` and ``held_out``. Passages that
    nearly repeat one of a part that is held out from theirs are left out.

    Raises:
        InputError: there are too few groups to hold any out.
    """
    members = defaultdict[int, set[int]](set)
    for passage in collection.passages:
        members[collection.groups[passage.document]].add(passage.document)
    wanted = [part for part, share in shares.items() if share]
    if len(members) < len(wanted) + 1:
        raise InputError(
            f"input: {len(collection.documents):,} documents make {len(members)} group(s) of near-duplicates, and "
            f"questions are held out by whole groups: wanted {len(wanted) + 1} groups or more. Give more documents, or "
            "hold nothing out: held_out_share=0 choice_share=0."
        )
    # By the first document of a group: copies of it that come later change nothing
    drawn = sorted((_drawn(collection.texts[min(documents)], seed), root) for root, documents in members.items())
    part_of_group = dict[int, Part]()
    begin = 0.0
    for part in wanted:
        inside = [root for at, root in drawn if begin <= at < begin + shares[part]]
        # Of few groups a part may get none by chance: then that which is nearest
        free = [root for _, root in drawn if root not in part_of_group]
        part_of_group |= dict.fromkeys([root for root in inside if root in free] or free[:1], part)
        begin += shares[part]
    if len(part_of_group) == len(members):
        del part_of_group[drawn[-1][1]]  # one at least is trained on
    collection.part_of = {
        one: part_of_group.get(root, "train") for root, documents in members.items() for one in documents
    }
    for part, others in (("choice", ["held_out"]), ("train", ["held_out", "choice"])):
        _leave_out_copies(collection, part, others)


def _leave_out_copies(collection: Collection, part: str, others: Sequence[str]) -> None:
    """Leave out passages of a part that nearly repeat one of others: documents that differ may share a section."""
    parts = [collection.part(place) for place in range(len(collection.passages))]
    near = NearDuplicateIndex([one.text for one, own in zip(collection.passages, parts, strict=True) if own in others])
    kept = [
        one
        for one, own in zip(collection.passages, parts, strict=True)
        if own != part or not near.has(words_of(one.text))
    ]
    if number := len(collection.passages) - len(kept):
        collection.left_out["near-copies of what is held out"] += number
    collection.passages = kept


def _drawn(text: str, seed: int) -> float:
    """A number from 0 to 1 that depends on the words of a text and the seed alone."""
    words = " ".join(words_of(text)) or text
    digest = hashlib.blake2b(f"{seed}\0{words}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
