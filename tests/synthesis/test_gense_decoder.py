"""recipe=gense with a causal language model: its answers one pair at a time, and its texts, by plain transformers."""

import itertools
import json
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import parse_prompts, write_generator_prompts
from contrastive_encoders.synthesis.decoding.continuations import Prompt
from contrastive_encoders.synthesis.decoding.discriminator import Discriminator
from contrastive_encoders.synthesis.decoding.generator import Generator, load_generator
from tests.decoders import save_decoder
from tests.encoders.test_decoder_generator import PROMPTS
from tests.synthesis.commands import here, rows_of
from tests.synthesis.naive import drawn, numbers, restricted
from tests.synthesis.settings import decoding

pytestmark = pytest.mark.usefixtures("no_pictures")

WORDS = "rain fell on the orchard and ferry leaves harbour again bread rises slowly kitchen".split()
SENTENCES = [" ".join(random.Random(place).sample(WORDS, 4)) for place in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = save_decoder("llama", tmp_path_factory.mktemp("llama"))
    config = json.loads((found / "config.json").read_text())
    (found / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 400}))  # rotary: any length
    write_generator_prompts(found, parse_prompts(PROMPTS, "pieces", "test"))
    return found


def in_float64(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    return Generator("llama", model, AutoTokenizer.from_pretrained(folder))


@torch.no_grad()
def behind(generator, ids):
    """Return (V,) probabilities of the next token."""
    logits_V = generator.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
    logits_V[list(generator.surplus)] = -torch.inf
    return logits_V.softmax(0)


def read(generator, *pieces):
    """Return a start token and the ids of the pieces, tokenized one by one; long pieces are cut."""
    return [
        1,
        *(id for piece in pieces for id in generator.tokenizer(piece, add_special_tokens=False)["input_ids"][:100]),
    ]


def test_true_against_false_are_their_probabilities_behind_the_prompt(folder):
    generator = in_float64(folder)
    pairs = [*itertools.pairwise(SENTENCES), ("rain", "the orchard"), ("rain " * 90, "bread")]
    found = Discriminator(generator, parse_prompts(PROMPTS, "pieces", "test"), 100)(pairs)
    yes, no = (generator.tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in ("true", "false"))
    for (premise, hypothesis), p in zip(pairs, found, strict=True):
        p_V = behind(generator, read(generator, 'if "', f" {premise}", '", is "', f" {hypothesis}", '"?'))
        assert p == pytest.approx(float(p_V[yes] / (p_V[yes] + p_V[no])), abs=6e-7)
    assert max(found) - min(found) > 0.05, "or nothing would have been compared"


def test_answers_of_a_model_in_16_bits_are_weighed_in_32(folder):
    """Its own logits would have 8 significant bits and be equal for many pairs."""
    generator = load_generator(str(folder), precision="bf16")
    ask = Discriminator(generator, parse_prompts(PROMPTS, "pieces", "test"), 100)
    yes, no = (generator.tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in ("true", "false"))
    off = []
    for premise, hypothesis in itertools.pairwise(SENTENCES):
        ids = torch.tensor([read(generator, 'if "', f" {premise}", '", is "', f" {hypothesis}", '"?')])
        with torch.no_grad():
            state_D = generator.model.base_model(input_ids=ids).last_hidden_state[0, -1].double()
            own_2 = generator.model(input_ids=ids).logits[0, -1][[yes, no]].double()
            wanted_2 = generator.model.get_output_embeddings().weight[[yes, no]].double() @ state_D
        wanted = float(wanted_2.softmax(0)[0])
        assert ask([(premise, hypothesis)])[0] == pytest.approx(wanted, abs=2e-6)
        off.append(abs(float(own_2.softmax(0)[0]) - wanted))
    assert max(off) > 1e-4, "or its own would have done"


def test_the_command_writes_what_drawing_one_token_after_the_other_gives(folder, tmp_path):
    """The texts and their judgments do not depend on the batch; the prompt is that of training."""
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES))
    overrides = ["recipe=gense", f"generator={folder}", f"input={tmp_path / 'in.txt'}", "sentences.min_words=1"]
    overrides += [
        "rules.agree=false",
        "rules.threshold=null",
        "max_new_tokens=6",
        "top_k=20",
        "top_p=null",
        "workers=1",
    ]
    here(*overrides, "max_pair_tokens=90", f"output={tmp_path / 'out'}")
    here(*overrides, "max_pair_tokens=90", f"output={tmp_path / 'alone'}", "decode_batch_size=1", "shard_size=5")
    found = rows_of(tmp_path / "out" / "scored")
    texts = [[row[name][0]["text"] for name in ("entailment", "contradiction")] for row in found]
    other = rows_of(tmp_path / "alone" / "scored")
    assert [[row[name][0]["text"] for name in ("entailment", "contradiction")] for row in other] == texts

    generator = in_float64(folder)
    how = decoding(max_new_tokens=6, top_k=20, top_p=None, ban_eos=False, stop="", seed=42)
    prefixes = {"entailment": 'So: "', "contradiction": 'Not: "'}
    for place, row in enumerate(found):
        for direction, prefix in prefixes.items():
            ids = read(generator, prefix, f" {row['premise']}", '" means')
            tokens = []
            for number in numbers(Prompt((place, direction), ()), 0, how):
                tokens.append(drawn(restricted(behind(generator, [*ids, *tokens]).numpy(), how), number))
                if tokens[-1] == 2:
                    break
            closed = tokens[-1] == 2
            text = generator.tokenizer.decode(tokens[:-1] if closed else tokens).strip()
            assert (row[direction][0]["text"], row[direction][0]["closed"]) == (text, closed)


def test_pairs_longer_than_the_context_are_refused(folder):
    with pytest.raises(InputError) as error:
        Discriminator(load_generator(str(folder)), parse_prompts(PROMPTS, "pieces", "test"), 196)
    assert (error.value.key, error.value.value, "400" in error.value.expected) == ("max_pair_tokens", 196, True)
