"""The maximum input length given by a model's config."""

import pytest
from transformers import BertConfig, RobertaConfig, T5Config, XLNetConfig

from contrastive_encoders.encoders.lengths import longest_input


@pytest.mark.parametrize(
    ("config", "tokens"),
    [(BertConfig(), 512), (RobertaConfig(max_position_embeddings=514), 512)],
    ids=["BERT", "RoBERTa, whose positions start after the pad id"],
)
def test_position_embeddings_limit_the_length(config, tokens):
    assert longest_input(config) == tokens


@pytest.mark.parametrize("config", [T5Config(), XLNetConfig()], ids=["T5", "XLNet, which says -1"])
def test_relative_positions_do_not(config):
    assert longest_input(config) > 10**6
