"""Each key of the data is checked against the bounds and choices of its config."""

import pytest

from contrastive_encoders import (
    DocumentDataConfig,
    MixtureDataConfig,
    QuestionDataConfig,
    ScoredPairDataConfig,
    SentenceDataConfig,
)
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import check

INVALID = [
    *((DocumentDataConfig, key, 0) for key in ("anchors_per_document", "positives_per_anchor", "min_span")),
    (DocumentDataConfig, "anchor_placement", "windows"),
    (DocumentDataConfig, "mask_strategy", "none"),
    *((DocumentDataConfig, "mlm_probability", value) for value in (-0.1, 1.0, 15)),
    *((DocumentDataConfig, "held_out_fraction", value) for value in (-0.1, 0.6, 5)),
    *((SentenceDataConfig, "deletion_ratio", value) for value in (0, 1, -0.5, 1.5, float("nan"))),
    *((QuestionDataConfig, "fraction", value) for value in (0, 1.5)),
    *((ScoredPairDataConfig, "smoothing", value) for value in (-0.1, 1.0)),
    (ScoredPairDataConfig, "max_pairs_per_label", -1),
    (ScoredPairDataConfig, "random_pairs", -1),
    (ScoredPairDataConfig, "random_pair_source", "code"),
    *((MixtureDataConfig, "temperature", value) for value in (0, float("inf"))),
]


@pytest.mark.parametrize(("kind", "key", "value"), INVALID)
def test_an_invalid_value_is_refused(kind, key, value):
    path = {} if kind is MixtureDataConfig else {"path": "data.jsonl"}
    with pytest.raises(InputError) as error:
        check(kind(**path, **{key: value}), "data.")
    assert error.value.key == f"data.{key}"
    assert error.value.value is value


def test_the_message_names_the_wrong_step_and_the_valid_ones():
    with pytest.raises(InputError) as error:
        check(ScoredPairDataConfig(path="data.jsonl", postprocess_steps=("shuffle", "smoth")), "data.")
    assert all(step in error.value.expected for step in ScoredPairDataConfig(path="data.jsonl").postprocess_steps)
    assert "smoth" in error.value.hint
