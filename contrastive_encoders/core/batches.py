"""Batches in memory: ragged token sequences without padding, by kind of data."""

from typing import TYPE_CHECKING, NamedTuple, TypedDict, Union

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    import numpy as np
    from torch import Tensor


IGNORED_LABEL = -100  # an MLM label that is not predicted; torch's cross_entropy skips it by default


class Ragged(NamedTuple):
    """Token sequences of different lengths, one behind the other, without padding.

    ``lengths`` stays a NumPy array on the host: how a batch is cut into chunks is decided there,
    and asking a GPU for it would stall every step.
    """

    ids: "Tensor"  # (tokens,) int64
    lengths: "np.ndarray"  # (sequences,) int64; sums to ``tokens``; special tokens are counted
    kept: "np.ndarray | None" = None  # the ids once more, for whoever reads them on the host while a GPU is at work


# Of a mixture: the name of the part, or (N,) those of the rows where they are mixed
Part = Union[str, "np.ndarray", None]


class SpanBatch(NamedTuple):
    """DeCLUTR: spans of this rank's documents, special tokens included.

    ``anchors`` holds A spans per document, those of one document side by side; ``positives`` holds
    P spans per anchor, grouped by anchor. ``masked_ids`` and ``labels`` lie beside ``anchors.ids``.
    """

    anchors: Ragged  # N * A sequences
    masked_ids: "Tensor"  # (anchor tokens,) int64: the anchors after MLM corruption
    labels: "Tensor"  # (anchor tokens,) int64: the original id where predicted, else IGNORED_LABEL
    positives: Ragged  # N * A * P sequences
    rows: "np.ndarray"  # (N,) int64 rows of the token store, one per document, to name a batch in a message
    part: Part = None
    predicted: "np.ndarray | None" = None  # places in ``labels`` of those that count: known to the host, as lengths are

    def roles(self) -> dict[str, Ragged | None]:
        """Return the sequences by role, in the order of the fields; None: the batch has none of this role."""
        return {"anchor": self.anchors, "positive": self.positives}


class SentenceBatch(NamedTuple):
    """Single texts: unsupervised SimCSE; TSDAE, which has them damaged as well."""

    sentences: Ragged
    rows: "np.ndarray"  # (N,) int64 rows of the store
    damaged: Ragged | None = None  # what is left of each where words are deleted
    part: Part = None
    taught: "Tensor | None" = None  # (N, 1, W) float32: a teacher's vectors of the texts

    def roles(self) -> dict[str, Ragged | None]:
        return {"sentence": self.sentences, "damaged sentence": self.damaged}


class ScoredPairBatch(NamedTuple):
    """Two texts and how similar they are: DINO's data, STS."""

    left: Ragged
    right: Ragged
    scores: "Tensor"  # (N,) float32, 0..1
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"left": self.left, "right": self.right}


class NLIBatch(NamedTuple):
    """Premise and hypothesis with their relation."""

    premises: Ragged
    hypotheses: Ragged
    labels: "Tensor"  # (N,) int64: 0 entailment, 1 neutral, 2 contradiction
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"premise": self.premises, "hypothesis": self.hypotheses}


class TripletBatch(NamedTuple):
    """An anchor, a text that should be near it, and one or more that should not."""

    anchors: Ragged
    positives: Ragged
    negatives: Ragged | None  # as many for each anchor, side by side; None: the data has two columns
    groups: "Tensor | None"  # (N,) int64, equal where the data says that rows share a meaning; None: it does not
    rows: "np.ndarray"
    max_length: int | None = None  # that the texts were cut at, and are with a prompt; None: what the encoder reads
    part: Part = None
    taught: "Tensor | None" = None  # (N, texts of a row, W) float32: a teacher's vectors of the texts
    all_positives: Ragged | None = None  # of rows with lists: as many for each anchor, side by side; some are empty
    fillers: "np.ndarray | None" = None  # (negatives,) bool: empty texts that fill up a row, and are no negatives

    def roles(self) -> dict[str, Ragged | None]:
        return {"anchor": self.anchors, "positive": self.positives, "hard negative": self.negatives}


class ScoredTripletBatch(NamedTuple):
    """An anchor with a positive and its negatives, and what a teacher finds of each of them."""

    anchors: Ragged
    positives: Ragged
    negatives: Ragged  # as many for each anchor, side by side
    scores: "Tensor"  # (N, 1 + negatives of an anchor) float32, of the anchor with its positive and with each negative
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"anchor": self.anchors, "positive": self.positives, "hard negative": self.negatives}


class Seq2SeqBatch(NamedTuple):
    """Texts to write: what the model reads, and what it is to answer; special tokens included in both."""

    sources: Ragged
    targets: Ragged  # N sequences, those of the same place in ``sources``
    kinds: "np.ndarray"  # (N,) int64: which of its row's instances; the data module says what they are
    rows: "np.ndarray"
    part: Part = None

    def roles(self) -> dict[str, Ragged | None]:
        return {"source": self.sources, "target": self.targets}


class StepOutput(TypedDict):
    """What every ``training_step`` returns; the telemetry callback reduces it over ranks and logs it."""

    loss: "Tensor"
    metrics: "dict[str, Tensor]"  # detached scalars whose mean over ranks is the global value
    spent: dict[str, int]  # this rank's examples, real_tokens, padded_tokens in this step
