"""A name is split into the parts from which its author composed it."""

import pytest

from contrastive_encoders.core.score_names import ScoreName

NAMES = {
    "stsb/cosine/spearman": ScoreName("stsb", "cosine", "spearman"),
    "stsb-dev@senteval/cosine/spearman": ScoreName("stsb", "cosine", "spearman", split="dev", form="senteval"),
    "faq-dev@256/cosine/ndcg@10": ScoreName("faq", "cosine", "ndcg@10", split="dev", size=256),
    "mr@senteval@64/default/accuracy": ScoreName("mr", "default", "accuracy", form="senteval", size=64),
    "declutr-avg17-dev@senteval/default/score": ScoreName(
        "declutr-avg17", "default", "score", split="dev", form="senteval"
    ),
    "sickr-all/regressor-spearman/mse": ScoreName("sickr-all", "regressor-spearman", "mse"),
    "generator-dev/perplexity": ScoreName("generator", "", "perplexity", split="dev"),
    "my-dev.set/cosine/mrr": ScoreName("my-dev.set", "cosine", "mrr"),
    "MSMARCO-dev:en/mteb/ndcg_at_10": ScoreName("MSMARCO", "mteb", "ndcg_at_10", split="dev:en"),
    "stsb-dev": ScoreName("stsb", split="dev"),
    "": ScoreName(""),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_parsed_into_its_parts_and_formatted_again(name):
    assert ScoreName.parse(name) == NAMES[name]
    assert str(NAMES[name]) == name


def test_another_form_or_protocol_changes_nothing_else():
    name = ScoreName.parse("stsb-dev@senteval@64/cosine/spearman")
    assert name.without_form() == "stsb-dev@64/cosine/spearman"
    assert name.with_protocol("tfidf") == "stsb-dev@senteval@64/tfidf/spearman"
    assert (name.full_task, name.measure, name.is_plain) == ("stsb-dev@senteval@64", "cosine/spearman", False)
