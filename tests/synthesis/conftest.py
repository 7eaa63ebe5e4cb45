"""Language models of a few thousand weights over bytes, with random weights large enough to prefer some tokens."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

from contrastive_encoders.reports.figure import RenderError
from contrastive_encoders.synthesis.decoding.generator import Generator

CONTEXT = 128
SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def no_pictures(monkeypatch):
    """Disable the figures of reports, which take a second each; test_report covers them."""

    def fails(figures, **_):
        if figures:
            raise RenderError("no pictures in this test")
        return {}

    monkeypatch.setattr("contrastive_encoders.reports.page.draw", fails)


@pytest.fixture(scope="session")
def byte_tokenizer():
    """256 bytes, one token with the quotation mark inside, an end of sequence, and no pad token."""
    vocabulary = {symbol: place for place, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary['."'] = 256
    tokenizer = Tokenizer(models.BPE(vocabulary, [(".", '"')]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


@pytest.fixture(scope="session")
def toy_generator(byte_tokenizer):
    """``toy_generator("gpt2")`` makes a model in float64 (unless a dtype is given) for exact comparisons."""

    def build(family="gpt2", *, dtype=torch.float64, seed=0, quote=0.0, spread=0.5):
        """Build a model; ``quote`` is added to the logit of the tokens that close a sentence."""
        model_class, config = families(len(byte_tokenizer), byte_tokenizer.eos_token_id)[family]
        torch.manual_seed(seed)
        model = model_class(config).to(dtype).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1 and "norm" not in name:
                    weight.normal_(0, spread)
        model.set_output_embeddings(
            WithShift(model.get_output_embeddings(), [byte_tokenizer('"')["input_ids"][0], 256], quote)
        )
        return Generator(f"toy-{family}", model, byte_tokenizer)

    return build


class WithShift(torch.nn.Module):
    def __init__(self, head, ids, shift):
        super().__init__()
        self.head, self.ids, self.shift = head, ids, shift
        self.weight = head.weight

    def forward(self, states):
        logits = self.head(states)
        logits[..., self.ids] += self.shift
        return logits


def families(vocabulary, eos):
    """Return models with different positions: learned, with an offset, partly rotary, rotary, a window, ALiBi."""
    ends = {"vocab_size": vocabulary, "bos_token_id": eos, "eos_token_id": eos, "pad_token_id": None}
    rotary = SIZE | ends | {"max_position_embeddings": CONTEXT, "intermediate_size": 32}
    return {
        "gpt2": (GPT2LMHeadModel, GPT2Config(**ends, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2)),
        "opt": (
            OPTForCausalLM,
            OPTConfig(
                **SIZE,
                **(ends | {"pad_token_id": 1}),
                max_position_embeddings=CONTEXT,
                ffn_dim=32,
                word_embed_proj_dim=16,
            ),
        ),
        "neox": (GPTNeoXForCausalLM, GPTNeoXConfig(**rotary)),
        "llama": (LlamaForCausalLM, LlamaConfig(**rotary, num_key_value_heads=1)),
        "mistral": (MistralForCausalLM, MistralConfig(**rotary, num_key_value_heads=1, sliding_window=24)),
        "bloom": (BloomForCausalLM, BloomConfig(**ends, hidden_size=16, n_layer=2, n_head=2)),
    }
