"""T5-like models in decoding: against transformers run from the start for every token, and in other batches."""

import itertools
import random

import pytest
import torch

from contrastive_encoders.synthesis.decoding.continuations import Prompt, Statistics
from contrastive_encoders.synthesis.decoding.loop import decode
from tests.synthesis.naive import drawn, numbers, restricted
from tests.synthesis.settings import decoding
from tests.synthesis.toy_t5 import FAMILIES, WORDS, generator
from tests.variations import slow_after


def sentences(count, longest=14):
    pick = random.Random(3)
    return [" ".join(pick.choices(WORDS, k=pick.randint(1, longest))) + f" {place}" for place in range(count)]


def prompts_for(model, texts, samples=range(2)):
    encoded = model.tokenizer(list(texts))["input_ids"]
    return [Prompt((text,), tuple(ids), samples=samples) for text, ids in zip(texts, encoded, strict=True)]


def settings(**how):
    return decoding(**{"max_new_tokens": 12, "top_k": 20, "ban_eos": False, "stop": "", **how})


def run(model, prompts, statistics=None, **how):
    out = list(decode(model, iter(prompts), settings(**how), statistics))
    texts = {(one.prompt.key, one.sample): (one.text, one.closed, one.tokens) for one in out}
    assert len(texts) == len(out)
    return texts


@torch.no_grad()
def next_probabilities(model, ids, tokens, how):
    """Return the probabilities after top-k and top-p, written slowly."""
    decoder = torch.tensor([[0, *tokens]])
    logits = model.model(input_ids=torch.tensor([ids]), decoder_input_ids=decoder).logits[0, -1].double()
    logits[list(model.surplus)] = -torch.inf
    return restricted(logits.softmax(-1).numpy(), how)


def one_at_a_time(model, prompt, sample, how):
    tokens = []
    for number in numbers(prompt, sample, how):
        tokens.append(drawn(next_probabilities(model, list(prompt.text), tokens, how), number))
        if tokens[-1] == 1:
            return model.tokenizer.decode(tokens, skip_special_tokens=True), True, len(tokens)
    return model.tokenizer.decode(tokens, skip_special_tokens=True), False, len(tokens)


@pytest.mark.rotates
@pytest.mark.parametrize("family", FAMILIES)
def test_every_text_is_what_decoding_one_at_a_time_gives(family):
    model = generator(family, end=1.5)
    prompts = prompts_for(model, sentences(8))
    found = run(model, prompts, decode_batch_size=5)
    for prompt, sample in itertools.product(prompts, range(2)):
        assert found[prompt.key, sample] == one_at_a_time(model, prompt, sample, settings())
    assert len({closed for _, closed, _ in found.values()}) == 2, "some end and some do not"


@pytest.mark.rotates
@pytest.mark.parametrize("family", slow_after(2, FAMILIES))
def test_neither_batch_size_nor_order_nor_shards_change_a_text(family):
    model = generator(family, end=2.0)
    prompts = prompts_for(model, sentences(12), range(3))
    alone = run(model, prompts, decode_batch_size=1)
    statistics = Statistics()
    assert run(model, prompts, statistics, decode_batch_size=32) == alone
    assert statistics.samples == len(alone) == 36
    assert statistics.prompts == 12, "the encoder reads a sentence once, whatever the candidates"
    assert statistics.wasted_row_steps == 0
    assert statistics.row_steps == sum(tokens - 1 for _, _, tokens in alone.values())
    shuffled = random.Random(1).sample(prompts, len(prompts))
    assert run(model, shuffled, decode_batch_size=7) == alone
    assert run(model, prompts[::2], decode_batch_size=16) | run(model, prompts[1::2], decode_batch_size=16) == alone
    assert run(model, prompts, kv_cache_tokens=100) == alone
    later = [prompt._replace(samples=range(2, 3)) for prompt in prompts]
    assert run(model, later).items() <= alone.items()
