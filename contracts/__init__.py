"""The nouns of the project: what crosses a package border, in memory and on disk, and in what shape.

A leaf: it imports none of our packages, so any of them may import it.
"""

import errno
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, Union, runtime_checkable

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    import numpy as np
    import torch
    from torch import Tensor

IGNORED_LABEL = -100  # an MLM label that is not predicted; torch's cross_entropy skips it by default
RESULTS_VERSION = 1
ITEMS_FILE = "items.npz"


class InputError(ValueError):
    """The command line, the config or an input file is wrong; the process exits with status 2.

    The message says where, what was wanted, what came, and what to do about it.
    """


class NotWritten(RuntimeError):
    """There is no room, or what was computed could not be written where it was wanted; the process exits with status 1.

    The message says what to do, or where it lies instead. The same command is right once there is room.
    """


ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # how one on another machine begins; C:/ is a disk


def is_address(path: object) -> bool:
    """Whether a path is an address, such as ``s3://BUCKET/FILE``, and no name on a disk here."""
    return ADDRESS.match(str(path).strip()) is not None


def check_local_output(key: str, path: object) -> None:
    """
    Raises:
        InputError: ``path``, under which something is to be written, is an address.
    """
    if is_address(path):
        raise InputError(
            f"{key}={path}: results can only be written to a disk of this machine, and this is an address. Name a "
            "local path, and copy what lies there once the command is done."
        )


def check_local_input(key: str, path: object) -> None:
    """
    Raises:
        InputError: ``path``, from which something is read that is no text, is an address.
    """
    if is_address(path):
        raise InputError(
            f"{key}={path}: wanted a path on this machine, and this is an address. Copy what lies there to this "
            "machine, and name the copy; a model of the Hugging Face hub is OWNER/NAME."
        )


def interruption_behind(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or SIGTERM in the middle of which a library stumbled while it cleared up; None where there was none.

    OmegaConf does, and a zip file that is closed while one of its members is open.
    """
    while error is not None:
        terminated = isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM
        if terminated or isinstance(error, KeyboardInterrupt):
            return error
        error = error.__context__
    return None


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of a disk that is full, or fails


# ------------------------------------------------------------------------------ batches in memory


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


class SentenceBatch(NamedTuple):
    """Single texts: unsupervised SimCSE; TSDAE, which has them damaged as well."""

    sentences: Ragged
    rows: "np.ndarray"  # (N,) int64 rows of the store
    damaged: Ragged | None = None  # what is left of each where words are deleted
    part: Part = None


class ScoredPairBatch(NamedTuple):
    """Two texts and how similar they are: DINO's data, STS."""

    left: Ragged
    right: Ragged
    scores: "Tensor"  # (N,) float32, 0..1
    rows: "np.ndarray"
    part: Part = None


class NLIBatch(NamedTuple):
    """Premise and hypothesis with their relation."""

    premises: Ragged
    hypotheses: Ragged
    labels: "Tensor"  # (N,) int64: 0 entailment, 1 neutral, 2 contradiction
    rows: "np.ndarray"
    part: Part = None


class TripletBatch(NamedTuple):
    """An anchor, a text that should be near it, and one or more that should not."""

    anchors: Ragged
    positives: Ragged
    negatives: Ragged | None  # as many for each anchor, side by side; None: the data has two columns
    groups: "Tensor"  # (N,) int64, equal where the anchors are the same text
    rows: "np.ndarray"
    max_length: int | None = None  # that the texts were cut at, and are with a prompt; None: what the encoder reads
    part: Part = None


class Seq2SeqBatch(NamedTuple):
    """Texts to write: what the model reads, and what it is to answer; special tokens included in both."""

    sources: Ragged
    targets: Ragged  # N sequences, those of the same place in ``sources``
    kinds: "np.ndarray"  # (N,) int64: which of its row's instances; the data module says what they are
    rows: "np.ndarray"
    part: Part = None


class StepOutput(TypedDict):
    """What every ``training_step`` returns; the telemetry callback reduces it over ranks and logs it."""

    loss: "Tensor"
    metrics: "dict[str, Tensor]"  # detached scalars whose mean over ranks is the global value
    spent: dict[str, int]  # this rank's examples, real_tokens, padded_tokens in this step


# -------------------------------------------------------------------------------------- protocols


class Embedder(Protocol):
    """All that evaluation and export know about a model that makes vectors."""

    @property
    def normalize(self) -> bool:
        """Whether vectors are brought to length 1."""
        ...

    @property
    def device(self) -> "torch.device":
        """Where it computes; classifiers of its vectors are trained there."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        autocast: "torch.dtype | None" = None,
        progress: bool | None = None,
    ) -> "Tensor":
        """N texts -> (N, width) float32 rows on the CPU, in input order.

        ``prompt`` stands before each text, ``autocast`` is the type of products, ``progress`` shows how far it is. None
        is what the model does by itself; a model that knows no prompt or no autocast does without.
        """
        ...


class HeldOutTexts(NamedTuple):
    """What held-out texts cost a model that writes, and whether it answers rightly; the same on every rank."""

    losses: "np.ndarray"  # (texts,) float64, -log p of a text, all its tokens together
    tokens: "np.ndarray"  # (texts,) int64
    right: "np.ndarray"  # (pairs,) bool
    batch_size: int | None  # texts whose mean loss is averaged with those of other batches; None: all tokens alike


@runtime_checkable
class Writer(Protocol):
    """All that evaluation knows about a model that writes texts and has no vectors."""

    def held_out_texts(self) -> HeldOutTexts:
        """All ranks must call it."""
        ...


class DataModule(Protocol):
    """What ``train.py`` asks of a data module beyond Lightning's own methods."""

    def prepare_data(self) -> None:
        """Read, tokenise and store; one process does it while the others wait for its file lock."""
        ...

    def samples(self) -> Iterator[Any]:
        """A small batch, or of a mixture one of each part: what those of training will be like."""
        ...

    def texts(self) -> Iterator[str]:
        """The training texts, before there is a tokenizer: ``backbone=tiny`` trains one on them."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Where the data came from, counts kept and dropped, sha256; goes into ``results.json``."""
        ...

    def held_out(self) -> "Sequence[RetrievalTask]":
        """Tasks made from held-out data, scored besides the suite; mostly empty."""
        ...

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        """How many of these test sentences stand word for word in the training text.

        Returns ``checked`` (long enough to tell), ``found``.
        """
        ...


# -------------------------------------------------------------------------------- evaluation data


class PairTask(NamedTuple):
    """Sentence pairs with a human rating, as one STS test set."""

    name: str  # e.g. "sts12", "sts12@senteval", "stsb-dev", "stsb", "sickr", "sickr-all"
    left: list[str]
    right: list[str]
    gold: "np.ndarray"  # (pairs,) float64
    subsets: list[str]  # (pairs,) name of the subset of each pair; one name where there are none


class RetrievalTask(NamedTuple):
    """Each query must find its documents among all documents."""

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]] | None = None  # per query: document -> gain, < 0: not there; None: document i


class ItemScores(NamedTuple):
    """What single test items came to: ``items.npz`` beside ``results.json``, an array KIND/NAME for each entry.

    Two runs are compared item by item where the digests of a task are equal.
    """

    cosines: "dict[str, np.ndarray]"  # task of pairs -> (pairs,) float64
    gold: "dict[str, np.ndarray]"  # (pairs,) float64
    subsets: "dict[str, np.ndarray]"  # (pairs,) names
    digests: dict[str, str]  # of texts and gold
    replicates: "dict[str, np.ndarray]"  # score -> (resamples,) float32; resample r is the same items for any encoder
    values: "dict[str, np.ndarray]" = {}  # score of retrieval -> (queries,) float64, whose mean it is
    replicates_before: "dict[str, np.ndarray]" = {}  # both of the encoder before training, of the same items
    values_before: "dict[str, np.ndarray]" = {}


# ---------------------------------------------------------------------------------- results.json


class Spent(TypedDict):
    """What a run cost, summed over ranks, interruptions and stages."""

    steps: int
    examples: int
    real_tokens: int
    padded_tokens: int  # padding only
    wall_seconds: float
    peak_memory_bytes: int  # largest rank: CUDA's allocator, or resident memory on a CPU
    compile_seconds: NotRequired[float]  # of the slowest rank, where torch's compiler was at work
    compiled_graphs: NotRequired[int]


class StageResults(TypedDict):
    """What one stage of a run came to; its own ``results.json``, in its own folder, says more."""

    place: int  # among the stages, from 1
    objective: str
    backbone: str  # what it began from; the folder of the stage before
    scores: dict[str, float]
    best_step: int
    spent: Spent
    overlap: dict[str, dict[str, int]]


class Change(TypedDict):
    """A query of a retrieval task, and the documents that it found first."""

    query: str
    before: str
    after: str
    right: Literal["before", "after"]  # which of them belongs to the query


class Changes(TypedDict):
    """What training has changed in a retrieval task: how many queries find their own document first."""

    queries: int
    right_before: int
    gained: int  # right after training alone
    lost: int  # right before it alone
    examples: list[Change]  # of these two


class Verdict(TypedDict):
    """What training has done to the headline, judged on the same test items before and after it."""

    headline: str  # in words, e.g. nDCG@10 of faq
    scores: list[str]  # those whose mean it is
    outcome: Literal["better", "not told apart", "worse"]
    before: float
    after: float
    interval: list[float] | None  # 95 % of the change, paired over test items; None where none are kept
    p: float | None  # of a paired permutation test over queries; None where the scores are of no queries
    items: int | None  # queries or pairs
    tfidf: float | None  # on the same tasks
    sentence: str
    to_try: list[str]  # where it is not better: what this run itself speaks for


class Vectors(TypedDict):
    """What an encoder makes of a text."""

    width: int
    pooling: str  # and the layers behind it
    normalize: bool  # to length 1


class Results(TypedDict):
    """``results.json`` of a finished run or of an evaluation.

    Scores are in 0..100, named ``task[-split][@senteval]/protocol/metric``; those of protocol ``geometry``, ranks and
    errors are in their own units.
    """

    version: int
    objective: str
    backbone: str
    recipe: Mapping[str, Any]  # the resolved config
    scores: dict[str, float]
    intervals: dict[str, list[float]]  # 95 %, same names as scores
    scores_before: NotRequired[dict[str, float]]  # of the untrained encoder
    baselines: NotRequired[dict[str, float]]  # e.g. TF-IDF on the same task
    verdict: NotRequired[Verdict]  # where there are scores from before
    changes: NotRequired[dict[str, Changes]]  # retrieval task -> what was found before and after
    averages: NotRequired[dict[str, list[str]]]  # an average among the scores -> the scores that it holds
    skipped: NotRequired[dict[str, str]]  # task of a suite -> why it was not scored
    vectors: NotRequired[Vectors]  # that the encoder makes; generators have none
    settled: NotRequired[dict[str, str]]  # a key that was left to the backbone -> what it has become, and why
    not_as_published: NotRequired[dict[str, str]]  # table with other rows than the published one -> how many
    stages: NotRequired[dict[str, StageResults]]  # of a run in stages, whose other entries are the last one's
    best_step: int
    spent: Spent
    seeds: list[int]
    versions: dict[str, str]
    device: str
    processes: int
    git_commit: str | None
    data: list[dict[str, Any]]  # data manifests
    overlap: dict[str, dict[str, int]]  # task -> {"checked", "found"}; in stages: at most so many
