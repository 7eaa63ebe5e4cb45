"""Hold out rows from training as a retrieval task.

Rows that share a text stay together, and near-duplicates of held-out rows are dropped from training. The held-out
queries are ranked against all distinct documents of the data, including those of training rows.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.core import InputError, Prompted, RetrievalData
from contrastive_encoders.datamodules.near_duplicates import NearDuplicateIndex, boilerplate_of, words_of
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.store.token_store import RowSource
from contrastive_encoders.io.atomic import build_once
from contrastive_encoders.io.manifest import ranges_of

VERSION = 10  # part of the key: increase it when the same data would yield different held-out rows
MAX_HELD_OUT_ROWS = 1_000  # maximum rows of the task: more would cost time and hardly narrow the confidence interval
MIN_QUERIES = 6  # with five queries, no permutation test reaches p < 0.05
MAX_GROUPED_ROWS = 200_000  # maximum rows from which the task is chosen
BOILERPLATE_ROWS = 2_000  # about as many of these rows show which runs of words are boilerplate
MAX_DOCUMENTS = 100_000  # maximum documents that a query is ranked against; the default of data.max_held_out_documents
MIN_PREFERRED = 50  # pairs of the preferred kind that are needed to use their anchors as queries
MAX_NEAR_COPIES = 0.2  # maximum share of near-duplicates of held-out rows; above it, `BY_ANCHOR` is tried
NAME = "held_out"
PLACE_KEYS = 1 << 64  # keys of places are above those of texts, which name a group
BY_ANCHOR = ((0,), False)  # columns whose texts define the groups, and whether places do


class HeldOutOptions(NamedTuple):
    """Options that determine how rows are held out, and which queries and documents form the task."""

    columns: Sequence[int] = (0, 1)  # rows with an equal text in one of these columns stay together
    preferred_kind: str = ""  # kind of pair whose anchors are the queries, if the data has `MIN_PREFERRED` such pairs
    corpus: Callable[[str], Iterable[str]] | None = None  # kind -> all documents; None: those of its pairs
    max_documents: int = MAX_DOCUMENTS


DEFAULT_OPTIONS = HeldOutOptions()


class HeldOutRows(NamedTuple):
    """Held-out rows, and the criteria by which they were selected."""

    rows: set[int]
    anchors: set[int]  # keys of their anchors
    grouped_rows: int  # number of rows from which they were chosen
    columns: Sequence[int]  # columns whose texts define the groups
    prefers: bool  # True if the data has enough pairs of the preferred kind


class DividedRows(NamedTuple):
    """Rows that are not used for training, the task, and the counts for the manifest."""

    all_rows: int
    not_trained: list[int]
    task: dict[str, Any]
    counts: dict[str, Any]


class HeldOutSplit:
    """Split of the rows of ``source`` into training rows and held-out rows.

    A ``share`` of the first `MAX_GROUPED_ROWS` rows, at most `MAX_HELD_OUT_ROWS`, is held out.

    Two rows belong to the same group if they come from the same place (a document), or have an equal text in one of the
    columns, ignoring case and punctuation. Groups are held out as a unit. Their order depends on their texts only, so
    runs with different seeds have the same task. It does not depend on the number of rows of a document; a document
    with more than half of the rows to hold out comes last.

    An anchor that training rows also have is not a query: training would separate it from all other training documents,
    and so raise the rank of each document that is not trained on. If the groups do not make up half of the share (for
    instance with a single long document), or if fewer than `MIN_QUERIES` anchors remain (as with a few titles for all
    documents), the place is ignored. Only equal anchors form a group if texts are shared by that many rows, as is
    common for answers to questions, if fewer than two or more than half of the distinct positives would be held out, or
    if more than `MAX_NEAR_COPIES` of the rows are near-duplicates of held-out rows, as with answers from templates. The
    last does not apply to pairs from documents.

    Of several kinds of pairs, one is scored. The documents of the task are all distinct positives and hard negatives of
    that kind that do not equal a query, including those of training rows. Above ``max_documents``, they are a sample by
    text hash that includes all relevant documents. The relevant documents of a query are the documents of all its rows.
    Near-duplicates of relevant documents are not ranked for that query; they count as neither relevant nor irrelevant.
    Runs of words that are common in the data, such as a signature, do not make two texts near-duplicates.
    """

    def __init__(self, source: RowSource, share: float, cache: Path, options: HeldOutOptions = DEFAULT_OPTIONS) -> None:
        self.source, self.share, self.options = source, share, options
        self.width = source.width
        self.lines_left_out = defaultdict[str, list[int]](list)  # of each file, in the last iteration
        digest = hashlib.sha256(json.dumps(self.fingerprint(), sort_keys=True).encode()).hexdigest()[:16]
        self.directory = cache / f"held-out-{digest}"

    def __iter__(self) -> Iterator[Record]:
        self._prepare()
        left_out = set(np.load(self.directory / "left_out.npy").tolist())
        self.lines_left_out.clear()
        for where, rows in groupby(enumerate(self.source), lambda row: row[1].where):
            numbers = set[int]()
            for number, record in rows:
                numbers.add(number)
                if number not in left_out:
                    yield record
            file, _, line = where.rpartition(":")
            if numbers <= left_out and line.isdecimal():  # several rows may be from one document
                self.lines_left_out[file].append(int(line))

    def fingerprint(self) -> dict[str, Any]:
        options = self.options
        options_of_split = {
            "version": VERSION,
            "share": self.share,
            "columns": list(options.columns),
            "preferred_kind": options.preferred_kind,
            "max_documents": options.max_documents,
        }
        return {**self.source.fingerprint(), NAME: options_of_split}

    def manifest(self) -> dict[str, Any]:
        self._prepare()
        counts = json.loads((self.directory / "counts.json").read_text(encoding="utf-8"))
        lines = {str(Path(file).absolute()): ranges_of(lines) for file, lines in self.lines_left_out.items()}
        return {**self.source.manifest(), NAME: counts, "lines_not_trained_on": lines}

    def tasks(self, prompts: Sequence[str | None]) -> list[RetrievalData]:
        """Return a list that contains the retrieval task, or an empty list if there are too few rows.

        Args:
            prompts: Prompts of queries and documents. ``None`` means the encoder's prompt.
        """
        self._prepare()
        task = json.loads((self.directory / "task.json").read_text(encoding="utf-8"))
        if not task["queries"]:
            return []
        sides = Prompted(task["queries"], prompts[0], "query"), Prompted(task["documents"], prompts[1], "document")
        one_each = all(right == [place] for place, right in enumerate(task["relevant"]))
        relevant = None if one_each else [dict.fromkeys(right, 1.0) for right in task["relevant"]]
        unranked = {query: places for query, places in enumerate(task["unranked"]) if places}
        return [RetrievalData(NAME, *sides, relevant, task["kind"], unranked)]

    def _prepare(self) -> None:
        build_once(self.directory, lambda folder: (folder / "counts.json").is_file(), self._build)

    def _build(self, folder: Path) -> None:
        divided = self._divide(self._choose((self.options.columns, True), ((0, 1), False), BY_ANCHOR))
        if 0 in self.options.columns and divided.counts["near_copies_left_out"] > MAX_NEAR_COPIES * divided.all_rows:
            by_anchor = self._divide(self._choose(BY_ANCHOR))
            if by_anchor.task["queries"] and len(by_anchor.not_trained) < len(divided.not_trained):
                divided = by_anchor
        if divided.all_rows == len(divided.not_trained) > 0:
            raise InputError(
                location="data",
                expected="rows to train on, besides the held-out ones",
                value=f"only near-duplicates of the {divided.counts['rows']:,} held-out rows",
                hint="Add rows with other texts, or set data.held_out_fraction=0 to train on all rows.",
            )
        np.save(folder / "left_out.npy", np.array(divided.not_trained, np.int64))
        (folder / "task.json").write_text(json.dumps(divided.task, ensure_ascii=False), encoding="utf-8")
        (folder / "counts.json").write_text(json.dumps(divided.counts), encoding="utf-8")

    def _divide(self, choice: HeldOutRows) -> DividedRows:
        """Divide the rows into held-out rows, rows that are too similar to them, and training rows."""
        held, sample, stride = dict[int, Record](), list[Record](), 1 + choice.grouped_rows // BOILERPLATE_ROWS
        columns, shared = choice.columns, set[int]()  # keys of anchors that training rows have too
        for row, record in enumerate(self.source):
            if row in choice.rows:
                held[row] = record
            elif 0 not in columns:  # else, rows with an equal anchor are not trained on
                shared.update(choice.anchors.intersection(_keys(record.texts[:1])))
            if row < choice.grouped_rows and row % stride == 0:
                sample.append(record)
        boilerplate = boilerplate_of(text for record in sample for text in record.texts)
        queries = [record for record in held.values() if shared.isdisjoint(_keys(record.texts[:1]))]
        kind, scored = self._scored(queries, prefers=choice.prefers)
        builder = TaskBuilder(scored, self.options.max_documents, boilerplate)
        compared = [[record.texts[column] for column in _compared_columns(record, columns)] for record in held.values()]
        known = {key for texts in compared for key in _keys(texts)}
        near = NearDuplicateIndex(list(chain(*compared)), boilerplate)
        left_out, rows, equal = list[int](), 0, 0
        for row, record in enumerate(self.source):
            keys = _keys(record.texts)
            rows, equal = rows + 1, equal + (keys[0] == keys[1])
            if record.made_as == kind:
                builder.add(keys, record, with_documents=self.options.corpus is None)
            if row not in held and (
                not known.isdisjoint(keys[column] for column in _compared_columns(record, columns))
                or any(near.has(words_of(record.texts[column])) for column in _compared_columns(record, columns))
            ):
                left_out.append(row)
        for text in self.options.corpus(kind) if self.options.corpus else ():
            builder.add_document(_keys([text])[0], text)
        task = builder.to_json()
        places = zip(task["relevant"], task["unranked"], strict=True)
        if sum(len(right) + len(unranked) < len(task["documents"]) for right, unranked in places) < MIN_QUERIES:
            held, left_out, kind, task = {}, [], "", TaskBuilder([], 0, boilerplate).to_json()
        counts = {
            "rows": len(held),
            "queries": len(task["queries"]),
            "documents": len(task["documents"]),
            "near_copies_left_out": len(left_out),
            "kept_apart_by": "anchors" if tuple(columns) == (0,) else "texts",
            **({"scored": kind} if kind else {}),
            **({"equal_texts": equal, "all_rows": rows} if not held and 2 * equal > rows else {}),
        }
        return DividedRows(rows, sorted([*held, *left_out]), {**task, "kind": kind}, counts)

    def _choose(self, *criteria: tuple[Sequence[int], bool]) -> HeldOutRows:
        """Choose rows by the first criteria that leave enough queries, or by the last ones. Criteria are columns, and
        whether places count.
        """
        for columns, by_place in criteria:
            groups, preferred = Groups(), dict[int, int]()
            anchors, positives = list[int](), list[int]()
            for row, record in enumerate(islice(self.source, MAX_GROUPED_ROWS)):
                place = [PLACE_KEYS + _hash(record.where)] if by_place else []
                keys = _keys(record.texts)
                groups.add([*place, *(keys[column] for column in _compared_columns(record, columns))])
                anchors.append(keys[0])
                positives.append(keys[1])
                if record.made_as and record.made_as == self.options.preferred_kind:
                    preferred[row] = keys[0]
            preferred = groups.of_one_group(preferred)
            prefers = len(preferred) >= MIN_PREFERRED
            target = min(MAX_HELD_OUT_ROWS, round(self.share * groups.rows))
            chosen = set(groups.select(target, preferred if prefers else {}))
            held, held_anchors = {positives[row] for row in chosen}, {anchors[row] for row in chosen}
            own = held_anchors.difference(anchor for row, anchor in enumerate(anchors) if row not in chosen)
            enough = 2 * len(chosen) >= target and len(own) >= MIN_QUERIES
            if enough and 2 <= len(held) <= len(set(positives)) / 2:
                break
        return HeldOutRows(chosen, held_anchors, groups.rows, columns, prefers)

    def _scored(self, held: Sequence[Record], *, prefers: bool) -> tuple[str, list[Record]]:
        """Return the kind of pair on which the task is based, and the held-out rows of this kind.

        It is the preferred kind if possible, else the most frequent kind.

        Only one kind is scored, since a passage also contains the answers of its other pairs.
        """
        kinds = [kind for kind, _ in Counter(record.made_as for record in held).most_common(1)]
        for kind in [*([self.options.preferred_kind] if prefers else []), *kinds]:
            scored = _rows_of_task(record for record in held if record.made_as == kind)
            if len({_keys(record.texts)[0] for record in scored}) >= MIN_QUERIES:
                return kind, scored
        return "", []


class TaskBuilder:
    """Data of a retrieval task: queries, all documents, and the relevant documents of each query.

    Texts that differ only in case and punctuation are treated as equal. A text that equals a query is not a document.
    """

    def __init__(self, scored: Iterable[Record], max_documents: int, boilerplate: Set[int]) -> None:
        self.max_documents, self.boilerplate = max_documents, boilerplate
        self.queries = dict[int, str]()  # key -> text
        self.right = dict[int, dict[int, None]]()  # key of a query -> keys of its documents, in order
        self.right_documents = dict[int, str]()  # key -> text
        self.other_documents = dict[int, str]()
        for record in scored:
            keys = _keys(record.texts)
            self.queries.setdefault(keys[0], record.texts[0])
            self.right.setdefault(keys[0], {})
            self.add(keys, record)

    def add(self, keys: Sequence[int], record: Record, *, with_documents: bool = True) -> None:
        """Add a row, whose positives are relevant documents for its anchor, and whose hard negatives are other
        documents.
        """
        others = list(zip(keys[1:], record.texts[1:], strict=True))
        for key, text in others[: record.positives]:
            if text and keys[0] in self.right and key not in self.queries:
                self.right[keys[0]].setdefault(key)
                self.right_documents.setdefault(key, text)
        for key, text in others if with_documents else ():
            if text:
                self.add_document(key, text)

    def add_document(self, key: int, text: str) -> None:
        self.other_documents.setdefault(key, text)
        if len(self.other_documents) > 2 * self.max_documents:
            self.other_documents = _smallest(self.other_documents, self.max_documents)

    def to_json(self) -> dict[str, Any]:
        """Return the texts of the task and, for each query, the indices of its relevant documents and of the documents
        that are left out of its ranking.
        """
        others = {
            key: document
            for key, document in self.other_documents.items()
            if key not in self.right_documents and key not in self.queries
        }
        others = _smallest(others, max(0, self.max_documents - len(self.right_documents)))
        documents = {**self.right_documents, **others}
        places = {key: place for place, key in enumerate(documents)}
        copies = self._near_copies(documents)
        relevant = [sorted(places[key] for key in right) for right in self.right.values()]
        unranked = [
            sorted({place for key in right for place in copies[key]} - {places[key] for key in right})
            for right in self.right.values()
        ]
        texts = {"queries": list(self.queries.values()), "documents": list(documents.values())}
        return {**texts, "relevant": relevant, "unranked": unranked}

    def _near_copies(self, documents: Mapping[int, str]) -> Mapping[int, list[int]]:
        """Find the near-duplicates of each relevant document. Return their indices by the key of the document."""
        keys, found = list(self.right_documents), defaultdict[int, list[int]](list)
        near = NearDuplicateIndex(list(self.right_documents.values()), self.boilerplate)
        for place, text in enumerate(documents.values()):
            for copied in near.like(words_of(text)):
                found[keys[copied]].append(place)
        return found


def _smallest(documents: Mapping[int, str], number: int) -> dict[int, str]:
    """Return the ``number`` documents with the smallest keys. Since keys are hashes of texts, the order of the rows has
    no effect.
    """
    return {key: documents[key] for key in sorted(documents)[:number]}


class Groups:
    """Groups of rows that have a key in common, directly or through other rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.parents = dict[int, int]()  # key -> another key of its group; the root maps to itself
        self.key_of = list[int]()

    def add(self, keys: Sequence[int]) -> None:
        roots = sorted({self._root(key) for key in keys})
        for root in roots:
            self.parents[root] = roots[0]
        self.key_of.append(roots[0])
        self.rows += 1

    def select(self, most: int, preferred: Mapping[int, int]) -> list[int]:
        """Return the rows to hold out: complete groups with at most ``most`` rows in total. The choice depends on the
        keys only.

        ``preferred`` contains the keys of the anchors of some rows. Their groups come first, those with the most of
        these anchors per row at the front, until `MIN_PREFERRED` or half of these anchors are chosen. Groups of long
        documents with more than half of ``most`` rows come last.
        """
        members = defaultdict[int, list[int]](list)
        for row, key in enumerate(self.key_of):
            members[self._root(key)].append(row)
        anchors_of = defaultdict[int, set[int]](set)
        for row, anchor in preferred.items():
            anchors_of[self._root(self.key_of[row])].add(anchor)
        places = Counter(self._root(key) for key in self.parents if key >= PLACE_KEYS)
        long = {root for root, rows in members.items() if 0 < places[root] < len(rows)}
        last = {root for root in long if 2 * len(members[root]) > most}

        def order(root: int) -> int:  # the smallest of the many hashes of a long document would put it first
            return _hash(str(root)) if root in long else root

        first = sorted(
            anchors_of.keys() - last, key=lambda root: (len(members[root]) / len(anchors_of[root]), order(root))
        )
        enough = min(MIN_PREFERRED, len(set(preferred.values())) // 2)
        chosen, rows, anchors = set[int](), list[int](), set[int]()
        for root in first:
            if len(anchors) < enough and len(rows) + len(members[root]) <= most:
                chosen.add(root)
                rows += members[root]
                anchors |= anchors_of[root]
        for root in sorted(members.keys() - chosen, key=lambda root: (root in last, order(root))):
            if len(rows) + len(members[root]) <= most:
                rows += members[root]
        return rows

    def of_one_group(self, anchors: Mapping[int, int]) -> dict[int, int]:
        """Return the rows of ``anchors`` whose anchor only one group has, each with this anchor."""
        groups_of = defaultdict[int, set[int]](set)
        for row, anchor in anchors.items():
            groups_of[anchor].add(self._root(self.key_of[row]))
        return {row: anchor for row, anchor in anchors.items() if len(groups_of[anchor]) == 1}

    def _root(self, key: int) -> int:
        parent = self.parents.setdefault(key, key)
        while parent != self.parents[parent]:
            self.parents[parent] = self.parents[self.parents[parent]]
            parent = self.parents[parent]
        return parent


def _rows_of_task(records: Iterable[Record]) -> list[Record]:
    """Select the rows of the retrieval task.

    A text is either a query or a document, since a document that equals a query would always be ranked first.
    """
    asked, found, rows = set[int](), set[int](), list[Record]()
    for record in records:
        anchor, *others = _keys(record.texts)
        if anchor not in found and anchor not in others and asked.isdisjoint(others):
            asked.add(anchor)
            found.update(others)
            rows.append(record)
    return rows


def _compared_columns(record: Record, columns: Sequence[int]) -> list[int]:
    """Return the columns whose texts are compared with those of other rows. The first positive represents all positives
    of a list.
    """
    others = range(2, 1 + record.positives) if 1 in columns else ()
    return [*columns, *(column for column in others if record.texts[column])]


def _keys(texts: Sequence[str]) -> list[int]:
    """Return a key for each text, by which equal texts are recognized. Texts that differ only in case and punctuation
    have the same key.
    """
    return [_hash(" ".join(words_of(text)) or text.strip()) for text in texts]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
