"""Types that several packages of the project use: the data that the packages exchange in memory and as files.

This package imports none of the project's other packages, so any of them may import it.
"""

from contrastive_encoders.core.batches import (
    IGNORED_LABEL,
    NLIBatch,
    Ragged,
    ScoredPairBatch,
    ScoredTripletBatch,
    SentenceBatch,
    Seq2SeqBatch,
    SpanBatch,
    StepOutput,
    TripletBatch,
)
from contrastive_encoders.core.encoder_prompts import (
    NO_PROMPTS,
    EncoderPrompts,
    Role,
)
from contrastive_encoders.core.errors import (
    NO_ROOM,
    InputError,
    OutputError,
    interruption_behind,
    missing_package,
)
from contrastive_encoders.core.protocols import (
    DataModule,
    Embedder,
    HeldOutTexts,
    PairScorer,
    Writer,
)
from contrastive_encoders.core.record_version import RECORD_VERSION, check_version
from contrastive_encoders.core.results import (
    Changes,
    CorpusInfo,
    EmbeddingInfo,
    EncoderCost,
    PromptsRecord,
    Results,
    ResumedSettings,
    RunCost,
    ScoreChange,
    StageResults,
    TeacherComparison,
    Verdict,
)
from contrastive_encoders.core.tasks import (
    ITEMS_FILE,
    ItemScores,
    Prompted,
    RatedPairs,
    RetrievalData,
)
from contrastive_encoders.core.urls import (
    ADDRESS,
    check_local_input,
    check_local_output,
    is_address,
    without_secrets,
)

__all__ = [
    "ADDRESS",
    "IGNORED_LABEL",
    "ITEMS_FILE",
    "NO_PROMPTS",
    "NO_ROOM",
    "RECORD_VERSION",
    "Changes",
    "CorpusInfo",
    "DataModule",
    "Embedder",
    "EmbeddingInfo",
    "EncoderCost",
    "EncoderPrompts",
    "HeldOutTexts",
    "InputError",
    "ItemScores",
    "NLIBatch",
    "OutputError",
    "PairScorer",
    "Prompted",
    "PromptsRecord",
    "Ragged",
    "RatedPairs",
    "Results",
    "ResumedSettings",
    "RetrievalData",
    "Role",
    "RunCost",
    "ScoreChange",
    "ScoredPairBatch",
    "ScoredTripletBatch",
    "SentenceBatch",
    "Seq2SeqBatch",
    "SpanBatch",
    "StageResults",
    "StepOutput",
    "TeacherComparison",
    "TripletBatch",
    "Verdict",
    "Writer",
    "check_local_input",
    "check_local_output",
    "check_version",
    "interruption_behind",
    "is_address",
    "missing_package",
    "without_secrets",
]
