"""``results.json``: its entries and their types."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    pass


RESULTS_VERSION = 1


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


class Corpus(TypedDict):
    """What the queries of a retrieval task are ranked among."""

    documents: int
    query_kind: NotRequired[str]  # such as titles, where the queries were made from the documents


class Verdict(TypedDict):
    """What training has done to the headline, judged on the same test items before and after it."""

    headline: str  # in words, e.g. nDCG@10 of faq
    scores: list[str]  # those whose mean it is
    outcome: Literal["better", "not told apart", "worse"]
    before: float  # of the backbone as it is
    at_start: NotRequired[float]  # of the encoder before training, if the run was asked to change it first
    after: float
    interval: list[float] | None  # 95 % of the change, paired over test items; None where none are kept
    p: float | None  # of a paired permutation test over queries; None where the scores are of no queries
    items: int | None  # queries or pairs
    documents: int | None  # that the queries are ranked among, of all tasks together; None: no retrieval
    tfidf: float | None  # on the same tasks
    sentence: str
    to_try: list[str]  # where it is not better: what this run itself speaks for


class Vectors(TypedDict):
    """What an encoder makes of a text."""

    width: int
    pooling: str  # and the layers behind it
    normalize: bool  # to length 1


class PromptsRecord(TypedDict):
    """The prompts of an encoder: see `EncoderPrompts`."""

    named: dict[str, str]
    default_name: str | None


class EncoderCost(TypedDict):
    """How large and how fast an encoder is."""

    parameters: int
    megabytes: float  # of the weights, 10^6 bytes each
    texts_per_s: float  # of the training data, on the device of the run


class BesideTeacher(TypedDict):
    """What a student keeps of its teacher."""

    teacher: str
    scores: dict[str, float]  # the teacher's
    kept: dict[str, float]  # the share of them that the student has, of each task's headline
    of_teacher: EncoderCost
    own: EncoderCost


class ResumedSettings(TypedDict):
    """The settings that a run changed when it continued from a checkpoint."""

    step: int  # of the checkpoint
    changed: dict[str, list[Any]]  # key -> value before, value after


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
    scores_before: NotRequired[dict[str, float]]  # of the backbone as it is, before training
    scores_at_start: NotRequired[dict[str, float]]  # before training, too, but with the changed keys
    changed_keys: NotRequired[dict[str, list[Any]]]  # key -> value of the backbone, value of this run
    resumed: NotRequired[list[ResumedSettings]]  # of a run that continued with other settings
    baselines: NotRequired[dict[str, float]]  # e.g. TF-IDF on the same task
    verdict: NotRequired[Verdict]  # where there are scores from before
    beside_teacher: NotRequired[BesideTeacher]  # where evaluation.teacher asks for it
    corpora: NotRequired[dict[str, Corpus]]  # of each retrieval task
    changes: NotRequired[dict[str, Changes]]  # retrieval task -> what was found before and after
    averages: NotRequired[dict[str, list[str]]]  # an average among the scores -> the scores that it holds
    skipped: NotRequired[dict[str, str]]  # task of a suite -> why it was not scored
    vectors: NotRequired[Vectors]  # that the encoder makes; generators have none
    prompts: NotRequired[PromptsRecord]  # of the encoder, if it has any
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
