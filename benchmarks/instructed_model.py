"""A small language model that follows DINO's instructions half of the time, made in minutes from real pairs.

A GPT-2-shaped network from random weights learns documents in the form of the STS prompts, about captions of pictures:
few words that come often, because minutes are few. Behind the instruction for "mean the same thing" stands an entailed
sentence, or x1 itself; behind "somewhat similar" a neutral sentence, but in half of the documents one that means the
same; behind "completely different topics" any other sentence, but in half of the documents a neutral or entailed one.
So the instruction matters, and is mixed up with those that self-debiasing compares it with: what a pretrained model
does by itself is put in here by hand.
"""

import gzip
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.texts import ROOT

CONTEXT, VOCABULARY = 160, 6_000
LONGEST = 20  # words of a sentence
CAPTIONS = ("snli", "cfsnli")  # sources of pairs about pictures
PICTURES = "multi30k_captions"  # and of single sentences
BATCH = 32
COPIED = 0.3  # of the sentences that mean the same: x1 as it is
MIXED_UP = 0.5  # of the documents for the other labels
POOL = 24  # batches that are sorted by length together
RATE, WARM_UP = 1.5e-3, 100


class Premise(NamedTuple):
    """A real sentence with those that people wrote for it."""

    text: str
    entailed: list[str]
    neutral: list[str]


def read_premises(data: Path) -> list[Premise]:
    """Captions with both an entailed and a neutral sentence."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(data / "train" / "nli_pairs.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            texts = (row["premise"], row["hypothesis"])
            if row["source"].startswith(CAPTIONS) and all(map(is_short, texts)):
                found[texts[0]][row["label"]].append(texts[1])
    return [
        Premise(text, of["entailment"], of["neutral"])
        for text, of in found.items()
        if of["entailment"] and of["neutral"]
    ]


def other_captions(data: Path, number: int) -> list[str]:
    """Captions that no pair begins with."""
    known = {premise.text.rstrip(".").lower() for premise in read_premises(data)}
    folder = data / "train"
    with (
        gzip.open(folder / "sentences.txt.gz", "rt", encoding="utf-8") as texts,
        gzip.open(folder / "sentences.source.txt.gz", "rt", encoding="utf-8") as sources,
    ):
        pictures = (text.strip() for text, source in zip(texts, sources, strict=True) if source.strip() == PICTURES)
        return list(
            islice((text for text in pictures if is_short(text) and text.rstrip(".").lower() not in known), number)
        )


def is_short(text: str) -> bool:
    return len(text.split()) <= LONGEST and '"' not in text


def instructions() -> dict[str, str]:
    """Of DINO's x2, by label."""
    recipe = yaml.safe_load((ROOT / "configs" / "recipe" / "dino_x2.yaml").read_text(encoding="utf-8"))
    return {label: about["instruction"] for label, about in recipe["x2"]["labels"].items()}


def documents(premises: Sequence[Premise], draw: random.Random) -> Iterator[str]:
    """Without end."""
    prompts = instructions()
    while True:
        premise, label = draw.choice(premises), draw.choice(list(prompts))
        same = premise.text if draw.random() < COPIED else draw.choice(premise.entailed)
        similar = draw.choice(premise.neutral)
        if draw.random() < MIXED_UP:
            second = {"1": same, "0.5": same, "0": draw.choice((same, similar))}[label]
        else:
            second = {"1": same, "0.5": similar, "0": draw.choice(draw.choice(premises).neutral)}[label]
        yield prompts[label].replace("<X1>", premise.text) + second + '"'


def make_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as GPT-2's."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY - 1, initial_alphabet=alphabet, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>")


def batches(tokenizer: PreTrainedTokenizerFast, texts: Iterator[str], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and labels (N, L), padded on the right; documents of like length come together, in random order."""
    end = tokenizer.eos_token_id
    order = random.Random(0)
    while True:
        ids = [[*one[: CONTEXT - 1], end] for one in tokenizer([next(texts) for _ in range(size * POOL)])["input_ids"]]
        ids.sort(key=len)
        groups = [ids[start : start + size] for start in range(0, len(ids), size)]
        order.shuffle(groups)
        for group in groups:
            longest = len(group[-1])
            ids_NL = torch.tensor([one + [end] * (longest - len(one)) for one in group])
            labels_NL = torch.tensor([one + [-100] * (longest - len(one)) for one in group])
            yield ids_NL, labels_NL


def train(
    model: GPT2LMHeadModel, data: Iterator[tuple[Tensor, Tensor]], minutes: float, most: int
) -> tuple[int, float]:
    """Steps taken and the mean loss of the last 50. The rate falls to nothing with the time or the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    began, step, losses = time.monotonic(), 0, list[float]()
    model.train()
    for ids_NL, labels_NL in data:
        done = max((time.monotonic() - began) / (60 * minutes), step / most)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * (1 - done)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(ids_NL, labels=labels_NL).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        step += 1
        if step % 200 == 0:
            print(f"step {step}, loss {sum(losses[-50:]) / 50:.3f}, {time.monotonic() - began:.0f} s", flush=True)
    last = losses[-50:]
    return step, sum(last) / max(len(last), 1)


def make(folder: Path, data: Path, *, minutes: float, layers: int = 4, width: int = 256, most: int = 1_000_000) -> str:
    """Train and save; what came of it in a sentence."""
    torch.manual_seed(0)
    premises = read_premises(data)
    texts = documents(premises, random.Random(1))
    tokenizer = make_tokenizer([next(texts) for _ in range(20_000)])
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=CONTEXT,
        n_layer=layers,
        n_embd=width,
        n_head=width // 64,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    steps, loss = train(model, batches(tokenizer, texts, BATCH), minutes, most)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = sum(weight.numel() for weight in model.parameters())
    return (
        f"{layers} layers of {width}, {weights / 1e6:.1f} million weights, {len(premises):,} premises, {steps:,} "
        f"steps of {BATCH} documents in {minutes:g} minutes, loss {loss:.2f}"
    )
