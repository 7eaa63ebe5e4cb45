"""The engine against decoding one sample at a time, without cache or padding; and against itself in other batches."""

import itertools
import random
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.decoding.continuations import Prompt, Statistics
from contrastive_encoders.synthesis.decoding.loop import decode
from tests.synthesis.naive import chi_square, drawn, numbers, restricted
from tests.synthesis.settings import decoding
from tests.variations import slow_after

FAMILIES = ["gpt2", "opt", "neox", "llama", "mistral", "bloom"]
LABELS = {"1": "the same", "0.5": "somewhat similar", "0": "completely different"}
COUNTERS = {"1": (), "0.5": ("1",), "0": ("1", "0.5")}


def prompt_of(sentence, label):
    return f'Be {LABELS[label]}.\n1: "{sentence}"\n2: "'


def prompts_for(sentences, samples=range(3), **settings):
    return [
        Prompt(
            (sentence, label),
            prompt_of(sentence, label),
            tuple(prompt_of(sentence, counter) for counter in COUNTERS[label]),
            samples=samples,
            **settings,
        )
        for sentence in sentences
        for label in LABELS
    ]


def sentences(count, longest=40):
    """Return sentences of very different lengths."""
    pick = random.Random(5)
    return ["".join(pick.choices("abcdefg hijk", k=pick.randint(1, longest))) + str(i) for i in range(count)]


def run(generator, prompts, statistics=None, **how):
    out = list(decode(generator, iter(prompts), decoding(**how), statistics))
    texts = {(one.prompt.key, one.sample): (one.text, one.closed, one.tokens) for one in out}
    assert len(texts) == len(out), "a sample came twice"
    return texts


# ------------------------------------------------------------------------- one at a time, written slowly


@torch.no_grad()
def next_probabilities(generator, prompt, tokens, how):
    """Return probabilities of the next token after self-debiasing, top-k and top-p.

    Each prompt runs from its start.
    """
    rows = []
    for text in (prompt.text, *prompt.counters):
        ids = torch.tensor([generator.tokenizer(text)["input_ids"] + tokens])
        logits = generator.model(ids).logits[0, -1].double().clone()
        if how.ban_eos:
            logits[generator.tokenizer.eos_token_id] = -torch.inf
        rows.append(logits.softmax(-1).numpy())
    own, others = rows[0], rows[1:]
    excess = np.maximum(0, np.max(others, axis=0) - own) if others else np.zeros_like(own)
    p = own * np.maximum(np.exp(-prompt.decay * excess), prompt.epsilon)
    return restricted(p / p.sum(), how)


def one_at_a_time(generator, prompt, sample, how):
    """Return (text, closed, tokens) of one sample."""
    tokenizer, tokens = generator.tokenizer, []
    for number in numbers(prompt, sample, how):
        tokens.append(drawn(next_probabilities(generator, prompt, tokens, how), number))
        text = tokenizer.decode(tokens)
        if how.stop in text:
            return text.split(how.stop)[0], True, len(tokens)
    return text, False, len(tokens)


@pytest.mark.parametrize("family", slow_after(3, FAMILIES))
def test_every_text_is_what_decoding_one_at_a_time_gives(toy_generator, family):
    # BLOOM's attention is float32 for any type of weights, and supports no fully masked row in float64
    generator = toy_generator(family, quote=2.0, dtype=torch.float32 if family == "bloom" else torch.float64)
    how = decoding(max_new_tokens=10, top_k=20)
    prompts = prompts_for(sentences(4), decay=30.0, samples=range(2))
    found = run(generator, prompts, **(asdict(how) | {"decode_batch_size": 11}))
    for prompt, sample in itertools.product(prompts, range(2)):
        assert found[prompt.key, sample] == one_at_a_time(generator, prompt, sample, how)
    assert len({closed for _, closed, _ in found.values()}) == 2, "some close and some do not"


def test_texts_have_the_distribution_of_naive_sampling(toy_generator):
    """Compare all two-token texts of a prompt with two counter prompts, and their counts in 6,000 samples."""
    generator = toy_generator(quote=2.0, spread=0.3)
    how = decoding(max_new_tokens=2, top_k=8, top_p=0.9, ban_eos=True)
    prompt = prompts_for(["a cat"], samples=range(6000), decay=50.0)[2]
    wanted = Counter()
    for first, p in enumerate(next_probabilities(generator, prompt, [], how)):
        if p and '"' in generator.tokenizer.decode([first]):
            wanted[generator.tokenizer.decode([first]).split('"')[0], True] += p
        elif p:
            for second, q in enumerate(next_probabilities(generator, prompt, [first], how)):
                text, mark, _ = generator.tokenizer.decode([first, second]).partition('"')
                wanted[text, bool(mark)] += p * q
    wanted = {key: p for key, p in wanted.items() if p}
    found = Counter((text, closed) for text, closed, _ in run(generator, [prompt], **asdict(how)).values())
    assert set(found) <= set(wanted)
    kinds, pvalue = chi_square(found, wanted)
    assert kinds > 20
    assert pvalue > 0.001


# ------------------------------------------------------------------------------- whatever the batching


@pytest.mark.rotates
@pytest.mark.parametrize("restriction", [{"top_k": 5}, {"top_k": 0, "top_p": 0.9}])
def test_neither_batch_size_nor_order_nor_shards_change_a_text(toy_generator, restriction):
    generator = toy_generator(quote=3.0)
    prompts = prompts_for(sentences(7))
    alone = run(generator, prompts, decode_batch_size=1, max_new_tokens=12, **restriction)
    statistics = Statistics()
    assert run(generator, prompts, statistics, decode_batch_size=64, max_new_tokens=12, **restriction) == alone
    assert statistics.samples == len(alone) == 63
    assert statistics.wasted_row_steps <= 0.05 * statistics.row_steps
    shuffled = random.Random(1).sample(prompts, len(prompts))
    assert run(generator, shuffled, decode_batch_size=13, max_new_tokens=12, **restriction) == alone
    shards = [
        run(generator, prompts[rank::2], decode_batch_size=16, max_new_tokens=12, **restriction) for rank in range(2)
    ]
    assert shards[0] | shards[1] == alone
    assert run(generator, prompts, decode_batch_size=64, kv_cache_tokens=300, max_new_tokens=12, **restriction) == alone
    later = [prompt._replace(samples=range(2, 3)) for prompt in prompts]
    assert run(generator, later, max_new_tokens=12, **restriction).items() <= alone.items()


def test_no_step_is_spent_on_finished_rows(toy_generator):
    """The rows of all passes are exactly those that the tokens after each first one need."""
    statistics = Statistics()
    prompts = prompts_for(sentences(20), samples=range(5))
    texts = run(toy_generator(quote=3.0), prompts, statistics, decode_batch_size=32)
    rows = {prompt.key: 1 + len(prompt.counters) for prompt in prompts}
    assert statistics.row_steps == sum((tokens - 1) * rows[key] for (key, _), (_, _, tokens) in texts.items())
    assert statistics.wasted_row_steps == 0
    assert statistics.tokens == sum(tokens for _, _, tokens in texts.values())
    assert statistics.steps < statistics.row_steps / 24


def test_inputs_stream(toy_generator):
    """The prompts are infinite, and only as many are held as a few batches need."""
    pulled = 0

    def endless():
        nonlocal pulled
        for number in itertools.count():
            pulled += 1
            yield Prompt((number,), f'{number}: "', samples=range(2))

    come = itertools.islice(decode(toy_generator(quote=4.0), endless(), decoding(decode_batch_size=16)), 300)
    for count, _ in enumerate(come, start=1):
        assert pulled <= count / 2 + 64


def test_prompts_that_depend_on_what_came(toy_generator):
    """None means: ask again after another sample is finished. Here each prompt is tried until a text is short."""
    tries, short = Counter(), set()

    def until_short():
        open_ = list(range(5))
        while open_:
            waiting = [n for n in open_ if tries[n] < asked[n]]
            ready = [n for n in open_ if n not in waiting]
            for number in ready:
                if number in short or tries[number] >= 30:
                    open_.remove(number)
                    continue
                asked[number] += 1
                yield Prompt((number,), f'{number}: "', samples=range(tries[number], tries[number] + 1))
            if open_ and not ready:
                yield None

    asked = Counter()
    for one in decode(toy_generator(quote=3.0), until_short(), decoding(decode_batch_size=4)):
        tries[one.prompt.key[0]] += 1
        if one.closed and one.tokens < 8:
            short.add(one.prompt.key[0])
    assert short == set(range(5))
    assert sum(tries.values()) > 5
    assert list(decode(toy_generator(), iter([None, None]), decoding())) == []


# ------------------------------------------------------------------------------------- when it ends


def test_a_model_that_only_closes(toy_generator):
    """A token may contain a full stop before the mark: the part before the mark belongs to the text."""
    statistics = Statistics()
    texts = run(toy_generator(quote=1e6), prompts_for(sentences(4), samples=range(20)), statistics, top_k=2, top_p=None)
    assert {text for text, _, _ in texts.values()} == {"", "."}
    assert {(closed, tokens) for _, closed, tokens in texts.values()} == {(True, 1)}
    assert statistics.row_steps == 0


def test_the_end_of_sequence_is_banned_or_ends_a_sample(toy_generator):
    generator = toy_generator()
    eos = generator.tokenizer.eos_token_id
    generator.model.get_output_embeddings().ids.append(eos)
    generator.model.get_output_embeddings().shift = 1e3  # the tokens of quotation marks and the end token
    banned = run(generator, prompts_for(["a"]), top_k=3, top_p=None)
    assert all(closed for _, closed, _ in banned.values())
    generator.model.get_output_embeddings().ids[:] = [eos]
    assert {t for t in run(generator, prompts_for(["a"]), ban_eos=False).values()} == {("", False, 1)}
    banned = run(generator, prompts_for(["a"]), max_new_tokens=9)
    assert all(closed or tokens == 9 for _, closed, tokens in banned.values())


@pytest.mark.parametrize("stop", ["d.", "é", "\n"])
def test_a_stop_string_of_several_tokens(toy_generator, stop):
    generator = toy_generator(spread=0.05)  # nearly uniform over the bytes
    head = generator.model.get_output_embeddings()
    head.ids, head.shift = generator.tokenizer(stop)["input_ids"], 5.0
    texts = run(generator, prompts_for(["a"], samples=range(30)), stop=stop, top_k=0, top_p=None)
    assert all(stop not in text for text, _, _ in texts.values())
    assert any(closed and tokens > 2 for _, closed, tokens in texts.values())


def test_abandoned_samples_end_early_and_no_other_changes(toy_generator):
    generator = toy_generator(quote=3.0)
    prompts = prompts_for(sentences(10))
    whole, short = (run(generator, prompts, top_k=30, abandon=part) for part in ("", "e"))
    accepted = {key: value for key, value in whole.items() if value[1] and "e" not in value[0]}
    assert {key: value for key, value in short.items() if value[1] and "e" not in value[0]} == accepted
    dropped = [value for value in short.values() if not value[1] and "e" in value[0]]
    assert dropped
    assert all(text.endswith("e") and text.count("e") == 1 for text, _, _ in dropped)


# ------------------------------------------------------------------------------------ context limit


def test_a_prompt_longer_than_the_context_is_rejected_with_a_reason(toy_generator):
    generator = toy_generator(quote=3.0)
    long = prompts_for(["x" * 200])
    fine = prompts_for(sentences(5))
    out = list(decode(generator, iter([*fine[:7], *long, *fine[7:]]), decoding(decode_batch_size=16)))
    rejected = [one for one in out if one.rejected]
    assert sorted((one.prompt.key, one.sample) for one in rejected) == sorted(
        (p.key, s) for p in long for s in range(3)
    )
    assert all("context" in one.rejected and "128" in one.rejected and not one.text for one in rejected)
    texts = {(one.prompt.key, one.sample): (one.text, one.closed, one.tokens) for one in out if not one.rejected}
    assert texts == run(generator, fine)


def test_the_context_cuts_a_sample_short(toy_generator):
    """The context limits prompt and continuation together, as published, counter prompts included."""
    generator = toy_generator(quote=-1e9)
    long, short = "x" * 118 + ': "', 'a: "'
    assert len(generator.encode([long])[0]) == 121
    prompts = [Prompt((0,), long), Prompt((1,), short, (long,)), Prompt((2,), short), Prompt((3,), "x" * 127)]
    tokens = {key[0]: tokens for (key, _), (_, _, tokens) in run(generator, prompts).items()}
    assert tokens == {0: 7, 1: 7, 2: 40, 3: 1}


# --------------------------------------------------------------------------------------- bad input


def test_logits_that_are_not_finite_are_reported(toy_generator):
    generator = toy_generator(dtype=torch.float32)
    generator.model.get_output_embeddings().shift = torch.nan
    with pytest.raises(InputError) as error:
        list(decode(generator, iter(prompts_for(["a"])), decoding()))
    assert (error.value.key, error.value.value) == ("generator", generator.name)


@pytest.mark.gpu
def test_on_a_gpu_batches_change_no_text(toy_generator):
    generator = toy_generator(quote=3.0)
    generator.model.cuda()
    prompts = prompts_for(sentences(30))
    assert run(generator, prompts, decode_batch_size=200) == run(generator, prompts, decode_batch_size=5)


def test_an_empty_prompt_is_rejected(toy_generator):
    (one,) = decode(toy_generator(), iter([Prompt((0,), "")]), decoding())
    assert "empty" in one.rejected


@pytest.mark.rotates
@pytest.mark.parametrize("seed", range(2))
def test_rows_outgrow_the_cache_in_the_middle(toy_generator, seed):
    """The prompts fit next to the active rows, but not with all the tokens that follow them."""
    lengths = random.Random(seed).choices([4, 20, 50, 70, 84], k=12)
    generator = toy_generator(quote=-1e9)
    prompts = [Prompt((i,), "x" * length, ("y" * (length // 2 + 1),)) for i, length in enumerate(lengths)]
    found = run(generator, prompts, decode_batch_size=6)
    assert found == run(generator, prompts, decode_batch_size=2)
    assert {tokens for _, _, tokens in found.values()} == {40}
