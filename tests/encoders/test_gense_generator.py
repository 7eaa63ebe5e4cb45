"""The generator's loss, gradient, answers and held-out scores against transformers' own forward."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5ForConditionalGeneration,
)

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.optimizers import linear_constant
from contrastive_encoders.evaluation.generator_dev import GeneratorDev
from tests.data import data_module, write_rows
from tests.objectives import built

ROWS = [
    (
        f"The ferry number {i} leaves the harbour{' before the market opens' * (i % 3)}.",
        f"Ferry {i} leaves.",
        f"No {i}.",
    )
    for i in range(9)
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    names = ("premise", "entailment", "contradiction")
    return write_rows(path, (dict(zip(names, row, strict=True)) for row in ROWS))


@pytest.fixture(scope="module")
def data(rows, tiny_t5, gense_prompts, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    keys = {"path": rows, "tokenizer": tiny_t5, "batch_size": 8, "dev_path": rows, "cache_dir": cache}
    return data_module("nli_generation", prompts=gense_prompts, **keys)


@pytest.fixture(scope="module")
def batch(data):
    return next(iter(data.train_dataloader()))


def generator(backbone, gense_prompts, **options):
    return built(
        "gense_generator",
        backbone,
        prompts=gense_prompts,
        **({"token_budget": 10**6, "activation_checkpointing": "off"} | options),
    )


def as_transformers_wants(batch, pad=0):
    """Return (N, S) ids and mask, and (N, T) labels with -100 for padding."""

    def rectangle(ragged, fill):
        parts = torch.split(ragged.ids, ragged.lengths.tolist())
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=fill)

    ids, labels = rectangle(batch.sources, pad), rectangle(batch.targets, -100)
    mask = (torch.arange(ids.shape[1]) < torch.from_numpy(batch.sources.lengths)[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def gradients(module):
    return {name: weight.grad.clone() for name, weight in module.named_parameters() if weight.grad is not None}


@pytest.mark.rotates
@pytest.mark.parametrize(
    "options", [{}, {"token_budget": 120}, {"token_budget": 120, "activation_checkpointing": "on"}], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_loss_and_gradient_are_those_of_transformers(dtype, options, batch, tiny_t5, gense_prompts):
    model = generator(tiny_t5, gense_prompts, **options).to(dtype)
    loss = model.training_step(batch, 0)["loss"]
    loss.backward()
    oracle = T5ForConditionalGeneration.from_pretrained(tiny_t5, dtype=dtype)
    theirs = oracle(**as_transformers_wants(batch)).loss
    theirs.backward()
    close = {"rtol": 1e-4, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(loss, theirs, **close)
    ours, expected = gradients(model.seq2seq.transformer), gradients(oracle)
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, **close)


def test_an_answer_that_counts_three_times_is_as_one_that_stands_three_times(batch, tiny_t5, gense_prompts):
    model = generator(tiny_t5, gense_prompts, answer_weight=3)
    times = torch.where(torch.from_numpy(batch.kinds) < 2, 1, 3)
    assert set(times.tolist()) == {1, 3}
    wanted = {name: part.repeat_interleave(times, 0) for name, part in as_transformers_wants(batch).items()}
    oracle = T5ForConditionalGeneration.from_pretrained(tiny_t5)
    torch.testing.assert_close(model.training_step(batch, 0)["loss"], oracle(**wanted).loss, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("family", ["flan", "mt5"])
def test_other_families_have_transformers_loss_too(family, batch, tiny_t5, gense_prompts, tmp_path):
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    tokenizer.save_pretrained(tmp_path)
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
    torch.manual_seed(3)
    if family == "mt5":
        oracle = MT5ForConditionalGeneration(MT5Config(vocab_size=len(tokenizer), **sizes, **gated))
    else:
        config = T5ForConditionalGeneration.config_class(vocab_size=len(tokenizer), **sizes, **gated)
        oracle = T5ForConditionalGeneration(config)
    oracle.save_pretrained(tmp_path)
    loss = generator(tmp_path, gense_prompts).training_step(batch, 0)["loss"]
    torch.testing.assert_close(loss, oracle(**as_transformers_wants(batch)).loss, rtol=1e-5, atol=1e-6)


def slowly(data, backbone, batch_size=None):
    """Compute perplexity and accuracy of the answers for every held-out instance alone through transformers."""
    oracle = T5ForConditionalGeneration.from_pretrained(backbone).eval()
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in ("true", "false"))
    losses, tokens, right = [], [], []
    with torch.no_grad():
        for one in data.dev_batches("generation", 1):
            losses.append(float(oracle(**as_transformers_wants(one)).loss) * one.targets.lengths[0])
            tokens.append(one.targets.lengths[0])
        for one in data.dev_batches("discrimination", 1):
            given = as_transformers_wants(one)
            del given["labels"]
            logits = oracle(**given, decoder_input_ids=torch.zeros(1, 1, dtype=torch.int64)).logits[0, 0]
            right.append((logits[yes] > logits[no]) == (one.kinds[0] == 2))
    if batch_size is None:
        perplexity = math.exp(sum(losses) / sum(tokens))
    else:
        starts = range(0, len(losses), batch_size)
        means = [sum(losses[i : i + batch_size]) / sum(tokens[i : i + batch_size]) for i in starts]
        perplexity = math.exp(sum(means) / len(means))
    return 100 * np.mean(right), perplexity


@pytest.mark.parametrize("perplexity", ["corpus", "mean_of_batches"])
def test_held_out_scores_are_those_of_one_instance_after_the_other(perplexity, data, tiny_t5, gense_prompts):
    model = generator(tiny_t5, gense_prompts, perplexity=perplexity, eval_batch_size=4).eval()
    model._trainer = SimpleNamespace(datamodule=data)
    with torch.no_grad():
        found = GeneratorDev().score(model, intervals=True).values
    accuracy, expected = slowly(data, tiny_t5, None if perplexity == "corpus" else 4)
    assert found["generator-dev/accuracy"] == pytest.approx(accuracy)
    assert found["generator-dev/perplexity"] == pytest.approx(expected, rel=1e-5)
    assert found["generator-dev/selection"] == pytest.approx(accuracy - 10 * expected, rel=1e-5)


def test_the_published_schedule_is_constant_then_linear():
    """The first 10 of 100 steps are constant; the last has 1/90 of the learning rate, after which it is 0."""
    schedule = linear_constant(100, warmup_ratio=0.1)
    assert [schedule(step) for step in range(10)] == [1.0] * 10
    assert schedule(55) == pytest.approx(0.5)
    assert schedule(99) == pytest.approx(1 / 90)
    assert schedule(100) == 0.0


def test_other_models_than_t5_are_refused(tiny_mlm, tiny_t5, gense_prompts, tmp_path):
    """It could be trained, but synthesis would refuse the resulting model."""
    with pytest.raises(InputError) as error:
        generator(tiny_mlm, gense_prompts)
    assert (error.value.key, error.value.value) == ("backbone", str(tiny_mlm))
    size = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    tokenizer.save_pretrained(tmp_path)
    BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **size, **heads)).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        generator(tmp_path, gense_prompts)
    assert (error.value.key, error.value.value) == ("backbone", str(tmp_path))


@pytest.mark.parametrize("wrong", [{"perplexity": "published"}, {"answer_weight": 0}], ids=str)
def test_unknown_settings_are_refused(wrong, tiny_t5, gense_prompts):
    with pytest.raises(InputError) as error:
        generator(tiny_t5, gense_prompts, **wrong)
    assert (error.value.key, error.value.value) == next((f"model.{key}", value) for key, value in wrong.items())
