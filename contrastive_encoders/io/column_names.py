"""Column names in data files: the alternative names that published data sets use for the same columns.

The first set that a file has is selected. A data set's identity contains these sets, so they should not be changed
accidentally.
"""

from collections.abc import Sequence

from contrastive_encoders.io.nested_columns import top_level

Names = tuple[str, ...]

TEXTS: tuple[Names, ...] = (("text",), ("sentence",))
PAIRS: tuple[Names, ...] = (("text_a", "text_b"), ("sentence1", "sentence2"))
INFERENCE_PAIRS: tuple[Names, ...] = (("premise", "hypothesis"), ("sentence1", "sentence2"))
QUESTIONS: tuple[Names, ...] = (("question", "answer"), ("query", "answer"), ("anchor", "positive"))
POSITIVES: tuple[Names, ...] = (("premise", "entailment"), ("sent0", "sent1"), ("anchor", "positive"))
TRIPLETS: tuple[Names, ...] = (
    ("premise", "entailment", "contradiction"),
    ("sent0", "sent1", "hard_neg"),
    ("anchor", "positive", "negative"),
)
SCORED_TRIPLETS: tuple[Names, ...] = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
PAIRS_TO_MINE: tuple[Names, ...] = (
    ("anchor", "positive"),
    ("question", "answer"),
    ("premise", "entailment"),
    ("sent0", "sent1"),
)
POSITIVE_LISTS: tuple[Names, ...] = (  # FlagEmbedding's and Tevatron's formats
    ("query", "pos", "neg"),
    ("query", "pos"),
    ("query", "positive_passages", "negative_passages"),
    ("query", "positive_passages"),
)
# For evaluation only
RATED_PAIRS: tuple[Names, ...] = (("sentence1", "sentence2"), ("text_a", "text_b"), ("text1", "text2"))
RATINGS: tuple[Names, ...] = (("score",), ("label",), ("scores",), ("labels",), ("similarity",))
ANSWERS: tuple[Names, ...] = (("query", "document"), ("query", "passage"), ("query", "positive"), *QUESTIONS)
LABELS: tuple[Names, ...] = (("label",), ("labels",), ("label_text",))
IDS: tuple[Names, ...] = (("_id",), ("id",))
RELEVANCE: tuple[Names, ...] = (
    ("query-id", "corpus-id"),
    ("query_id", "corpus_id"),
    ("query_id", "doc_id"),
    ("qid", "docid"),
)
GAINS: tuple[Names, ...] = (("score",), ("relevance",), ("label",), ("rel",), ("grade",), ("gain",))


def choose_columns(present: Sequence[str], known: Sequence[Names]) -> Names | None:
    """Return the first tuple of column names in ``known`` whose names all exist in a file, or None. ``OUTER.INNER`` is
    a value inside the column ``OUTER``.
    """
    return next((names for names in known if all(top_level([name], present) for name in names)), None)
