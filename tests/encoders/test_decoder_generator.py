"""GenSE's generator on causal language models: ids written by hand, and transformers' own loss on them."""

import json
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.generator_dev import GeneratorDev
from tests.data import batches, data_module, sequences_of, write_rows
from tests.decoders import BEGIN, END, save_decoder
from tests.objectives import built
from tests.variations import slow_after

PROMPTS = {  # the models of the tests have 64 positions
    "entailment": {"prefix": 'So: "', "suffix": '" means'},
    "contradiction": {"prefix": 'Not: "', "suffix": '" means'},
    "discrimination": {"prefix": 'if "', "between": '", is "', "suffix": '"?', "yes": "true", "no": "false"},
}
ROWS = [("The ferry leaves" + " again" * (i % 3), f"Ferry {i}.", "No") for i in range(7)]


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    return cache(lambda family: save_decoder(family, tmp_path_factory.mktemp(family)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    names = ("premise", "entailment", "contradiction")
    records = (dict(zip(names, row, strict=True)) for row in ROWS)
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", records)


def data_of(rows, backbone, assembly="pieces", **keys):
    keys = {"batch_size": 28, "dev_path": rows, "cache_dir": rows.parent / "cache", **keys}
    return data_module(
        "nli_generation", path=rows, tokenizer=backbone, prompts=PROMPTS, prompt_assembly=assembly, **keys
    )


def generator(backbone, **options):
    return built(
        "gense_generator",
        backbone,
        prompts=PROMPTS,
        **{"token_budget": 10**6, "activation_checkpointing": "off", **options},
    )


def by_hand(tokenizer, row, kind, assembly):
    """Return source and target: a space before each sentence, except if the text is one string."""

    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    premise, *others = row
    asked = PROMPTS[("entailment", "contradiction", "discrimination", "discrimination")[kind]]
    sentences = [premise] if kind < 2 else [premise, others[kind - 2]]
    fixed = [asked[name] for name in ("prefix", "between", "suffix") if name in asked]
    answer = others[kind] if kind < 2 else asked[("yes", "no")[kind - 2]]
    if assembly == "string":
        source = ids("".join(a + b for a, b in zip(fixed, [*sentences, ""], strict=True)))
    else:
        source = ids(fixed[0])
        for sentence, piece in zip(sentences, fixed[1:], strict=True):
            source += ids(f" {sentence}") + ids(piece)
    return [BEGIN, *source], [*ids(f" {answer}"), END]


@pytest.mark.parametrize("assembly", ["pieces", "string"])
def test_the_prompt_begins_as_a_text_does_and_ends_where_the_answer_begins(decoders, rows, assembly):
    (batch,) = batches(data_of(rows, decoders("llama"), assembly))
    tokenizer = AutoTokenizer.from_pretrained(decoders("llama"))
    found = zip(batch.rows, batch.kinds, sequences_of(batch.sources), sequences_of(batch.targets), strict=True)
    for row, kind, source, target in found:
        assert (source, target) == by_hand(tokenizer, ROWS[row], kind, assembly)


def by_transformers(folder, assembly="pieces"):
    """Return {(row, kind): (summed loss of the target, tokens, logits after the prompt)}, one instance at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    tokenizer, found = AutoTokenizer.from_pretrained(folder), {}
    for row, kind in np.ndindex(len(ROWS), 4):
        source, target = by_hand(tokenizer, ROWS[row], kind, assembly)
        labels = torch.tensor([[-100] * len(source) + target])
        output = model(input_ids=torch.tensor([source + target]), labels=labels)
        found[row, kind] = output.loss * len(target), len(target), output.logits[0, len(source) - 1]
    return model, found


@pytest.mark.rotates
@pytest.mark.parametrize("family", slow_after(2, ["llama", "gpt2", "gemma2", "opt"]))
@pytest.mark.parametrize(
    "options", [{}, {"token_budget": 70}, {"token_budget": 70, "activation_checkpointing": "on"}], ids=str
)
def test_loss_and_gradient_are_those_of_transformers(decoders, rows, family, options):
    (batch,) = batches(data_of(rows, decoders(family)))
    model = generator(decoders(family), answer_weight=3, **options).eval()  # OPT has dropout
    outcome = model.training_step(batch, 0)
    outcome["loss"].backward()
    oracle, found = by_transformers(decoders(family))
    times = {key: 1 if key[1] < 2 else 3 for key in found}
    wanted = sum(times[key] * loss for key, (loss, _, _) in found.items())
    wanted = wanted / sum(times[key] * tokens for key, (_, tokens, _) in found.items())
    wanted.backward()
    torch.testing.assert_close(outcome["loss"], wanted, rtol=1e-5, atol=1e-6)
    ours = dict(model.seq2seq.transformer.named_parameters())
    for name, weight in oracle.named_parameters():
        torch.testing.assert_close(ours[name].grad, weight.grad, rtol=1e-4, atol=1e-5)
    tokens = batch.sources.lengths.sum() + batch.targets.lengths.sum()
    assert outcome["spent"]["real_tokens"] == tokens
    assert 0 <= outcome["spent"]["padded_tokens"] <= max(64 * 28 - tokens, 0)


def test_held_out_scores_are_those_of_one_instance_after_the_other(decoders, rows):
    model = generator(decoders("llama"), eval_batch_size=5).eval()
    model._trainer = SimpleNamespace(datamodule=data_of(rows, decoders("llama")))
    with torch.no_grad():
        scores = GeneratorDev().score(model, intervals=True).values
    _, found = by_transformers(decoders("llama"))
    yes, no = model.seq2seq.answers
    losses, tokens, _ = zip(*(found[row, kind] for row, kind in found if kind < 2), strict=True)
    right = [(logits[yes] > logits[no]) == (kind == 2) for (_, kind), (_, _, logits) in found.items() if kind >= 2]
    assert scores["generator-dev/perplexity"] == pytest.approx(
        math.exp(float(sum(losses).detach()) / sum(tokens)), rel=1e-5
    )
    assert scores["generator-dev/accuracy"] == pytest.approx(100 * np.mean(right))


@pytest.mark.parametrize(
    ("config", "data", "key", "part"),
    [
        ({"is_causal": False}, {}, "backbone", "bidirectional"),
        ({"layer_types": ["full_attention", "linear_attention"]}, {}, "backbone", "caches"),
        ({}, {"end": None}, None, "eos_token"),
        ({"max_position_embeddings": 20}, {}, "data.source_length", "20"),
    ],
    ids=str,
)
def test_unsuitable_models_and_lengths_are_refused(rows, tmp_path, config, data, key, part):
    folder = save_decoder("llama", tmp_path)
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(found | config))
    if data:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.eos_token, tokenizer.pad_token = None, "<unk>"
        tokenizer.save_pretrained(folder)
    with pytest.raises(InputError) as error:
        generator(folder).training_step(batches(data_of(rows, folder), 1)[0], 0)
    assert key is None or error.value.key == key
    assert part in str(error.value)
