"""Batch classes, one for each type of training data. Token sequences are ragged, without padding."""

from typing import TYPE_CHECKING, NamedTuple, TypedDict, Union

if TYPE_CHECKING:  # a command that only prints its help should not import torch
    import numpy as np
    from torch import Tensor


RELATIONS = ("entailment", "neutral", "contradiction")  # of the labels 0, 1, and 2 of NLI pairs
IGNORED_LABEL = -100  # an MLM label that is not predicted; torch's cross_entropy skips it by default


class Ragged(NamedTuple):
    """Concatenated token sequences of different lengths, without padding.

    ``lengths`` is a NumPy array on the host: the host decides how to split a batch into chunks, and reading it from a
    GPU would stall every step.
    """

    ids: "Tensor"  # (tokens,) int64
    lengths: "np.ndarray"  # (sequences,) int64; the sum is ``tokens``; special tokens are counted
    kept: "np.ndarray | None" = None  # a copy of the ids for reading on the host while a GPU is busy

    def split(self) -> "list[np.ndarray]":
        """Return the ids of each sequence."""
        import numpy as np

        return np.split(self.ids.numpy(), np.cumsum(self.lengths)[:-1])


# Part of a mixture: its name, or (N,) the names for the rows of a mixed batch
Part = Union[str, "np.ndarray", None]


class SpanBatch(NamedTuple):
    """Batch for DeCLUTR: spans of tokens, including special tokens, from the documents of this rank.

    ``anchors`` contains A spans per document, with those of a document next to each other. ``positives`` contains P
    spans per anchor, grouped by anchor. ``masked_ids`` and ``labels`` are aligned with ``anchors.ids``.
    """

    anchors: Ragged  # N * A sequences
    masked_ids: "Tensor"  # (anchor tokens,) int64: the anchors after MLM corruption
    labels: "Tensor"  # (anchor tokens,) int64: the original id if predicted, else IGNORED_LABEL
    positives: Ragged  # N * A * P sequences
    rows: "np.ndarray"  # (N,) int64 rows of the token store, one per document, to identify a batch in a message
    part: Part = None
    # indices in ``labels`` of those that count: known to the host, as lengths are
    predicted: "np.ndarray | None" = None

    def roles(self) -> dict[str, Ragged | None]:
        """Return a mapping from each role to the sequences with this role, in field order. The value is None for a role
        that the batch does not contain.
        """
        return {"anchor": self.anchors, "positive": self.positives}


class SentenceBatch(NamedTuple):
    """Batch of single texts for unsupervised SimCSE, or for TSDAE, which also needs a damaged copy of each text."""

    sentences: Ragged
    rows: "np.ndarray"  # (N,) int64 rows of the store
    damaged: Ragged | None = None  # each text after word deletion
    part: Part = None
    taught: "Tensor | None" = None  # (N, 1, W) float32: a teacher's embeddings of the texts

    def roles(self) -> dict[str, Ragged | None]:
        return {"sentence": self.sentences, "damaged sentence": self.damaged}

    def describe_row(self, row: int) -> str:
        """Return what a preview shows about a row in addition to its texts, or an empty string."""
        return "its own positive under another dropout mask" if self.damaged is None else ""

    def easy_negatives(self, row: int) -> tuple[Ragged, list[int]]:
        """Return sequences, and the indices of those that a preview may show as easy negatives of a row."""
        return self.sentences, [other for other in range(len(self.rows)) if other != row and self.damaged is None]


class ScoredPairBatch(NamedTuple):
    """Batch of text pairs with similarity scores, such as DINO's pairs or STS."""

    left: Ragged
    right: Ragged
    scores: "Tensor"  # (N,) float32, 0..1
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"left": self.left, "right": self.right}

    def describe_row(self, row: int) -> str:
        return f"score {float(self.scores[row]):.2f}"


class NLIBatch(NamedTuple):
    """Batch of NLI pairs: a premise, a hypothesis, and the label of their relation."""

    premises: Ragged
    hypotheses: Ragged
    labels: "Tensor"  # (N,) int64: indices in RELATIONS
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"premise": self.premises, "hypothesis": self.hypotheses}

    def describe_row(self, row: int) -> str:
        return RELATIONS[int(self.labels[row])]


class TripletBatch(NamedTuple):
    """Batch of anchors, each with a positive and optional hard negatives."""

    anchors: Ragged
    positives: Ragged
    negatives: Ragged | None  # the same number for each anchor, next to each other; None: the data has two columns
    # (N,) int64, equal for rows that have the same meaning according to the data; None: not specified
    groups: "Tensor | None"
    rows: "np.ndarray"
    # limit to which texts were truncated, also when a prompt is added; None: the encoder's limit
    max_length: int | None = None
    part: Part = None
    taught: "Tensor | None" = None  # (N, texts of a row, W) float32: a teacher's embeddings of the texts
    # for rows with lists: the same number for each anchor, next to each other; some are empty
    all_positives: Ragged | None = None
    fillers: "np.ndarray | None" = None  # (negatives,) bool: empty texts that pad a row and are not negatives

    def roles(self) -> dict[str, Ragged | None]:
        return {"anchor": self.anchors, "positive": self.positives, "hard negative": self.negatives}

    def describe_row(self, row: int) -> str:
        twins = sum(self._same_group(row)) - 1
        return f"its anchor occurs {twins} more {'time' if twins == 1 else 'times'}" if twins else ""

    def easy_negatives(self, row: int) -> tuple[Ragged, list[int]]:
        return self.positives, [other for other, same in enumerate(self._same_group(row)) if not same]

    def _same_group(self, row: int) -> list[bool]:
        """Return whether each row is in the group of ``row``. If the data define no groups, rows with equal anchors
        form a group.
        """
        keys = [ids.tobytes() for ids in self.anchors.split()] if self.groups is None else self.groups.tolist()
        return [key == keys[row] for key in keys]


class ScoredTripletBatch(NamedTuple):
    """Batch of anchors, each with a positive and hard negatives, and a teacher's score for each of these texts."""

    anchors: Ragged
    positives: Ragged
    negatives: Ragged  # the same number for each anchor, next to each other
    scores: "Tensor"  # (N, 1 + negatives of an anchor) float32, of the anchor with its positive and with each negative
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"anchor": self.anchors, "positive": self.positives, "hard negative": self.negatives}

    def describe_row(self, row: int) -> str:
        return f"scores {', '.join(f'{float(score):.2f}' for score in self.scores[row])}"


class Seq2SeqBatch(NamedTuple):
    """Batch of input and target texts for a generator, both with special tokens."""

    sources: Ragged
    targets: Ragged  # N sequences, in the order of ``sources``
    kinds: "np.ndarray"  # (N,) int64: the index of the instance of its row; the data module defines the instances
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"source": self.sources, "target": self.targets}


class StepOutput(TypedDict):
    """Return value of every ``training_step``. The telemetry callback reduces it over ranks and logs it."""

    loss: "Tensor"
    metrics: "dict[str, Tensor]"  # detached scalars whose mean over ranks is the global value
    spent: dict[str, int]  # this rank's examples, real_tokens, padded_tokens (padding only) in this step
