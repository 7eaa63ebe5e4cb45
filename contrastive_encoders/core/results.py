"""``results.json``: its entries and their types."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict


class RunCost(TypedDict):
    """Cost of a run, summed over ranks, interruptions, and stages."""

    steps: int
    examples: int
    real_tokens: int
    padded_tokens: int  # padding only
    wall_seconds: float
    peak_memory_bytes: int  # largest rank: CUDA's allocator, or resident memory on a CPU
    compile_seconds: NotRequired[float]  # of the slowest rank, if torch's compiler was used
    compiled_graphs: NotRequired[int]


class StageResults(TypedDict):
    """Summary of a training stage. The directory of the stage contains the full ``results.json``."""

    place: int  # position among the stages, from 1
    objective: str
    backbone: str  # initial weights; from the second stage on, the directory of the previous stage
    scores: dict[str, float]
    best_step: int
    cost: RunCost
    overlap: dict[str, dict[str, int]]


class ScoreChange(TypedDict):
    """A query of a retrieval task whose top-ranked documents before and after training differ, with both documents."""

    query: str
    before: str
    after: str
    right: Literal["before", "after"]  # which of them belongs to the query


class Changes(TypedDict):
    """Number of queries of a retrieval task whose top-ranked document is relevant, before and after training."""

    queries: int
    correct_before: int
    gained: int  # correct only after training
    lost: int  # correct only before training
    examples: list[ScoreChange]  # of gained and lost queries


class CorpusInfo(TypedDict):
    """Size of the corpus of a retrieval task, and the type of its queries."""

    documents: int
    query_kind: NotRequired[str]  # such as titles, if the queries were made from the documents


class Verdict(TypedDict):
    """Comparison of the scores of an encoder before and after training, on the same test items.

    Attributes:
        headline: the compared score in words, such as ``nDCG@10 of faq``.
        scores: names of the scores in ``Results["scores"]`` whose mean is compared.
        outcome: ``"better"``, ``"inconclusive"``, or ``"worse"``.
        before: score of the unmodified backbone, 0 to 100.
        at_start: score of the encoder before step 1, if the settings of the run change the backbone (another pooling,
            for example).
        after: score of the trained encoder, 0 to 100.
        interval: 95% confidence interval of ``after - before``, by a paired bootstrap over test items; None if the
            scores of single items are not kept.
        p: two-sided p-value of a paired permutation test over queries; None if the score is not a retrieval metric.
        items: number of queries or pairs.
        documents: number of documents that the queries are ranked among, over all tasks; None without a retrieval task.
        tfidf: score of a TF-IDF baseline on the same tasks.
        sentence: the verdict as the terminal shows it.
        suggestions: suggestions if the encoder is not better.

    Example:
        >>> from contrastive_encoders import Verdict
        >>> sorted(Verdict.__required_keys__)[:4]
        ['after', 'before', 'documents', 'headline']
    """

    headline: str
    scores: list[str]
    outcome: Literal["better", "inconclusive", "worse"]
    before: float
    at_start: NotRequired[float]
    after: float
    interval: list[float] | None
    p: float | None
    items: int | None
    documents: int | None
    tfidf: float | None
    sentence: str
    suggestions: list[str]


class EmbeddingInfo(TypedDict):
    """Properties of an encoder's embeddings."""

    width: int
    pooling: str  # including the layers after it
    normalize: bool  # whether they are L2-normalized


class PromptsRecord(TypedDict):
    """The prompts of an encoder in JSON types; see `EncoderPrompts`."""

    named: dict[str, str]
    default_name: str | None


class EncoderCost(TypedDict):
    """Size and speed of an encoder."""

    parameters: int
    megabytes: float  # of the weights, 10^6 bytes each
    texts_per_s: float  # of the training data, on the device of the run
    bytes_per_text: int  # of an embedding in float32


class TeacherComparison(TypedDict):
    """Comparison of a student model with its teacher."""

    teacher: str
    scores: dict[str, float]  # the teacher's
    kept: dict[str, float]  # score of the student / score of the teacher, for the main metric of each task
    lead: dict[str, list[float]]  # score -> 95 % interval of the teacher's score minus the student's, over test items
    of_teacher: EncoderCost
    own: EncoderCost


class ResumedSettings(TypedDict):
    """Settings that were changed when a run was resumed from a checkpoint."""

    step: int  # of the checkpoint
    changed: dict[str, list[Any]]  # key -> value before, value after


class Results(TypedDict):
    """Content of ``results.json``, which a finished run and an evaluation write.

    Names of scores have the form ``task[-split][@senteval]/protocol/metric``. Scores are 0 to 100, except those of the
    protocol ``geometry``, ranks, and errors, which have their own units. Optional entries are missing if they do not
    apply.

    Attributes:
        version: version of the file format.
        objective: name of the objective.
        backbone: name or path of the backbone.
        recipe: the resolved config.
        scores: name of a score -> value.
        intervals: name of a score -> 95% confidence interval.
        scores_before: optional; scores of the unmodified backbone.
        scores_at_start: optional; scores before step 1 with the keys of ``changed_keys``.
        changed_keys: optional; key -> its value in the backbone and in this run.
        resumed: optional; settings that were changed when the run was resumed.
        baselines: optional; scores of baselines on the same tasks, such as TF-IDF.
        verdict: optional; the comparison with the scores from before training (`Verdict`).
        teacher_comparison: optional; size, speed, and scores of student and teacher, with
            ``evaluation.compare_with_teacher=true``.
        corpora: optional; retrieval task -> number of documents and kind of the queries.
        changes: optional; retrieval task -> queries whose first document changed.
        averages: optional; name of an average among the scores -> the scores it averages.
        skipped: optional; task of a suite -> why it was not scored.
        embeddings: optional; width, pooling, and normalization of the embeddings; generators have none.
        prompts: optional; the prompts of the encoder.
        resolved_settings: optional; key whose value depends on the backbone -> its value and the reason.
        row_count_mismatches: optional; evaluation table that differs from the published one -> number of its rows.
        stages: optional; stage -> its results; the other entries are those of the last stage.
        best_step: optimizer step of the exported weights.
        cost: steps, examples, tokens, seconds, and bytes, summed over processes, interruptions, and stages.
        seeds: seeds of the run.
        versions: package -> version.
        device: device of the run.
        processes: number of processes.
        git_commit: commit of the working directory, if it is a repository.
        data: manifests of the training data.
        overlap: optional; evaluation task -> number of texts checked and found in the training data. An evaluation
            lacks it if the training data of the encoder are unknown.

    Example:
        >>> from contrastive_encoders import Results
        >>> "scores" in Results.__required_keys__, "verdict" in Results.__optional_keys__
        (True, True)
    """

    version: int
    objective: str
    backbone: str
    recipe: Mapping[str, Any]
    scores: dict[str, float]
    intervals: dict[str, list[float]]
    scores_before: NotRequired[dict[str, float]]
    scores_at_start: NotRequired[dict[str, float]]
    changed_keys: NotRequired[dict[str, list[Any]]]
    resumed: NotRequired[list[ResumedSettings]]
    baselines: NotRequired[dict[str, float]]
    verdict: NotRequired[Verdict]
    teacher_comparison: NotRequired[TeacherComparison]
    corpora: NotRequired[dict[str, CorpusInfo]]
    changes: NotRequired[dict[str, Changes]]
    averages: NotRequired[dict[str, list[str]]]
    skipped: NotRequired[dict[str, str]]
    embeddings: NotRequired[EmbeddingInfo]
    prompts: NotRequired[PromptsRecord]
    resolved_settings: NotRequired[dict[str, str]]
    row_count_mismatches: NotRequired[dict[str, str]]
    stages: NotRequired[dict[str, StageResults]]
    best_step: int
    cost: RunCost
    seeds: list[int]
    versions: dict[str, str]
    device: str
    processes: int
    git_commit: str | None
    data: list[dict[str, Any]]
    overlap: NotRequired[dict[str, dict[str, int]]]
