"""Negatives that remain after duplicates, and data without a gradient: the counts against those of a step."""

import pytest
import pytorch_lightning as pl
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.training.usable_negatives import count_usable_negatives
from tests.conftest import TOPICS
from tests.data import data_module, write_rows
from tests.objectives import built

WORDS = [word for words in TOPICS.values() for word in words]
PAIRS = ("anchor", "positive")
TRIPLETS = (*PAIRS, "negative")
SCORED = ("sentence1", "sentence2", "score")
OFF = {"mlp": False}


def rows_of(columns, *rows):
    return [dict(zip(columns, row, strict=True)) for row in rows]


def pairs(number, answers, name="bread"):
    """Make questions, each with one of this many answers, in the tokenizer's vocabulary."""
    return rows_of(PAIRS, *((f"{name} {WORDS[row]}", f"the {name} of {WORDS[row % answers]}") for row in range(number)))


ONE_ANSWER = pairs(12, 1)
SPELLED = rows_of(PAIRS, *((f"bread {WORDS[row]}", ("The bread", "the  BREAD ")[row % 2]) for row in range(12)))
SAME_ROWS = rows_of(PAIRS, *[("a question", "an answer")] * 12)
NEGATIVE_IS_POSITIVE = rows_of(TRIPLETS, *[(f"bread {WORDS[row]}", "yes", "yes") for row in range(12)])
ONE_NEGATIVE = rows_of(TRIPLETS, *[(f"bread {WORDS[row]}", "yes", "no") for row in range(12)])
SENTENCES = rows_of(("text",), *[("The same.",), ("the  same .",)] * 6)
EQUAL_SIDES = rows_of(SCORED, *((f"bread {WORDS[row]}", f"bread {WORDS[row]}", row / 12) for row in range(12)))
SCORES = rows_of(SCORED, *((f"bread {WORDS[row]}", f"onion {WORDS[row]}", row / 12) for row in range(12)))
OFF_DINO = {"data_postprocess": "off", "data_dev_fraction": 0.0}


def found(model, data, rows, tmp_path, batch_size=4, steps=6, backbone=None, **keys):
    """Return the model, the data module, and the arguments of the count."""
    of_data = {name.removeprefix("data_"): keys.pop(name) for name in list(keys) if name.startswith("data_")}
    module = built(model, backbone, **keys)
    path = write_rows(tmp_path / "rows.jsonl", rows)
    source = data_module(data, path=path, batch_size=batch_size, tokenizer=str(backbone), **of_data)
    source.trainer = pl.Trainer(max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    source.prepare_data()
    source.setup()
    return module, source, source.train_dataloader(), source.trainer, "rows.jsonl"


def has_gradient(module, batch):
    """Return whether a training step gives weights a gradient: rounding alone is below 1e-5, others above 1e-3."""
    module.zero_grad()
    module.training_step(batch, 0)["loss"].backward()
    return any(weight.grad is not None and weight.grad.abs().max() > 1e-4 for weight in module.parameters())


BOTH_WAYS = {"directions": ["query_to_doc", "doc_to_query"]}
CASES = [
    ("pairs", "qa", ONE_ANSWER, {}, False),
    ("pairs", "qa", SPELLED, {}, False),
    ("pairs", "qa", SAME_ROWS, {}, False),
    ("pairs", "qa", ONE_ANSWER, {"exclude_equal_texts": False}, False),
    ("pairs", "qa", ONE_ANSWER, {"directions": ["query_to_doc", "doc_to_query", "query_to_query"]}, False),
    (
        "pairs",
        "qa",
        ONE_ANSWER,
        {"directions": ["query_to_doc", "doc_to_query"], "exclude_equal_texts": False},
        True,
    ),
    ("pairs", "qa", pairs(12, 2), {}, True),
    ("pairs", "qa", pairs(12, 12), {}, True),
    ("pairs", "triplets", NEGATIVE_IS_POSITIVE, {}, False),
    ("pairs", "triplets", ONE_NEGATIVE, {}, True),
    ("simcse", "qa", ONE_ANSWER, OFF, False),
    ("simcse", "triplets", NEGATIVE_IS_POSITIVE, OFF, False),
    ("simcse", "triplets", ONE_NEGATIVE, OFF, True),
    ("gense", "triplets", NEGATIVE_IS_POSITIVE, {"pooling": "mean", "data_max_length": 64}, False),
    ("cosent", "dino", EQUAL_SIDES, OFF_DINO, False),
    ("angle", "dino", EQUAL_SIDES, OFF_DINO, False),
    ("sroberta", "dino", EQUAL_SIDES, OFF_DINO, False),
    ("cosent", "dino", SCORES, OFF_DINO, True),
    ("angle", "dino", SCORES, OFF_DINO, True),
    ("sroberta", "dino", SCORES, OFF_DINO, True),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("model", "data", "rows", "keys", "learns"), CASES)
def test_data_without_a_gradient_are_refused_and_others_are_not(model, data, rows, keys, learns, tiny_bert, tmp_path):
    given = found(model, data, rows, tmp_path, backbone=tiny_bert, **keys)
    module, _, loader, *_ = given
    assert has_gradient(module, next(iter(loader.global_batches()))) == learns
    if learns:
        count_usable_negatives(*given)
        return
    with pytest.raises(InputError) as error:
        count_usable_negatives(*given)
    assert (error.value.location, error.value.expected) == ("rows.jsonl", module.needs)
    assert error.value.hint == module.remedy


def test_sentences_that_are_equal_but_for_dropout_have_no_negatives(tiny_mlm_with_dropout, tiny_bert, tmp_path):
    given = found("simcse", "sentences", SENTENCES, tmp_path, backbone=tiny_bert, dropout=0.1, **OFF)
    assert not has_gradient(given[0].train(), next(iter(given[2].global_batches())))
    with pytest.raises(InputError):
        count_usable_negatives(*given)


def test_a_teacher_is_a_term_of_the_loss(tiny_bert, tmp_path, caplog):
    given = found("pairs", "qa", ONE_ANSWER, tmp_path, backbone=tiny_bert, teacher="any")
    count_usable_negatives(*given)
    assert (given[0].needs, given[0].remedy) in [record.args for record in caplog.records]


@pytest.mark.parametrize(("loss", "learns"), [("listwise", False), ("binary", True)])
def test_a_reranker_needs_negatives_unlike_their_positive(loss, learns, small_reranker, tmp_path, caplog):
    given = found("reranker", "triplets", NEGATIVE_IS_POSITIVE, tmp_path, backbone=small_reranker, loss=loss, dropout=0)
    assert has_gradient(given[0], next(iter(given[2].global_batches()))) == learns
    if learns:
        count_usable_negatives(*given)
        assert (given[0].needs, given[0].remedy) in [record.args for record in caplog.records]
        return
    with pytest.raises(InputError):
        count_usable_negatives(*given)


def test_masked_language_modeling_is_a_term_of_the_loss(tiny_bert, tmp_path, caplog):
    rows = [{"text": "the " * 80}] * 8
    keys = {"data_min_span": 4, "data_max_span": 4, "data_mlm_probability": 0.5}
    given = found("declutr", "text", rows, tmp_path, backbone=tiny_bert, mlm_weight=1.0, **keys)
    assert str(count_usable_negatives(*given)[""]) == "0"
    assert (given[0].needs, given[0].remedy) in [record.args for record in caplog.records]
    without = found("declutr", "text", rows, tmp_path, backbone=tiny_bert, mlm_weight=0.0, **keys)
    assert not has_gradient(without[0], next(iter(without[2].global_batches())))
    with pytest.raises(InputError):
        count_usable_negatives(*without)


@pytest.mark.parametrize(
    ("rows", "batch_size", "wanted", "shown"),
    [
        (pairs(12, 12), 12, (11, 11, 11), "11"),
        (pairs(12, 2), 12, (6, 6, 6), "6"),  # those of the other answer
        (pairs(12, 3), 12, (8, 8, 8), "8"),
        (
            [*pairs(9, 1), *rows_of(PAIRS, *((f"soup {WORDS[row]}", f"salt {WORDS[row]}") for row in range(3)))],
            12,
            ((9 * 3 + 3 * 11) / 12, 3, 11),
            "5.0 (3 to 11)",
        ),
        ([*ONE_NEGATIVE[:11], {"anchor": "bread soup", "positive": "no", "negative": "maybe"}], 12, None, None),
    ],
)
def test_the_negatives_of_a_batch_are_counted_after_duplicates(rows, batch_size, wanted, shown, tiny_bert, tmp_path):
    data = "triplets" if "negative" in rows[0] else "qa"
    (counts,) = count_usable_negatives(*found("pairs", data, rows, tmp_path, batch_size, backbone=tiny_bert)).values()
    if wanted is None:
        # 11 rows: 11 times "no", once "maybe", the positive "no"; the last: 11 "yes"
        wanted, shown = ((11 * 13 + 1 * 12) / 12, 12, 13), "12.9 (12 to 13)"
    assert counts == pytest.approx(wanted)
    assert str(counts) == shown


def test_batches_without_a_negative_are_counted(tiny_bert, tmp_path, caplog):
    rows = [*pairs(20, 1), *pairs(4, 4, "soup")]
    given = found("pairs", "qa", rows, tmp_path, 4, 6, backbone=tiny_bert)
    counts = count_usable_negatives(*given)[""]
    empty = 0
    for batch, _ in zip(given[2].global_batches(), range(6), strict=False):
        answers = {tuple(ids.tolist()) for ids in torch.split(batch.positives.ids, batch.positives.lengths.tolist())}
        empty += len(answers) == 1
    assert 0 < empty < 6
    assert [record.args[:2] for record in caplog.records if record.levelname == "WARNING"] == [(empty, 6)]
    assert counts.minimum == 0
    caplog.clear()
    count_usable_negatives(*found("pairs", "qa", pairs(24, 24), tmp_path, 4, 6, backbone=tiny_bert))
    assert "batches" not in caplog.text


@pytest.mark.parametrize(("model", "data", "rows"), [("pairs", "qa", pairs(12, 12)), ("cosent", "dino", SCORES)])
def test_a_larger_batch_is_advised_if_it_has_a_gradient(model, data, rows, tiny_bert, tmp_path):
    keys = OFF_DINO if data == "dino" else {}
    with pytest.raises(InputError) as error:
        count_usable_negatives(*found(model, data, rows, tmp_path, 1, backbone=tiny_bert, **keys))
    assert (error.value.key, error.value.value, error.value.location) == ("batch_size", 1, None)
    assert error.value.hint == "Set batch_size=12."
    count_usable_negatives(*found(model, data, rows, tmp_path, 12, backbone=tiny_bert, **keys))


def test_it_is_the_same_on_every_rank(tiny_bert, tmp_path):
    """A rank's own share of these batches has no negatives, but the shares of both together have some."""
    rows = [*pairs(6, 1), *pairs(6, 6, "soup")]
    module, data, _, trainer, name = found("pairs", "qa", rows, tmp_path, 4, backbone=tiny_bert)
    alone = count_usable_negatives(module, data, data.train_dataloader(), trainer, name)
    for rank in range(2):
        stream = data.train_dataloader()
        stream._batches = data.epoch_batches(rank, 2)
        assert count_usable_negatives(module, data, stream, trainer, name) == alone
