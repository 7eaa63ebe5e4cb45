"""P10: sentences from an encoder-decoder, compared with transformers' ``generate`` on batches in input order.

A model of T5-small's shape with random weights, the same on both sides; real premises; one entailment and one
contradiction per sentence, top-k 50 and top-p 0.9, at most 63 new tokens. A random model never ends a text: on both
sides texts end at the same lengths, drawn from those of real hypotheses. The other side does what the published script
does: batches of both prompts as they come, padded to the longest, until the last text of the batch has ended. A second
line adds the discriminator's pass over the generated texts, on the other side in batches as they come.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    T5Config,
    T5ForConditionalGeneration,
)

from benchmarks import texts
from benchmarks.runner import Line, alternate, clock_of, rates, timed
from contrastive_encoders.core.gense_prompts import DIRECTIONS, PromptIds, parse_prompts
from contrastive_encoders.synthesis.decoding import loop
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.discriminator import Discriminator
from contrastive_encoders.synthesis.decoding.encoder_decoder import EncoderDecoder

OPTIONS = {"sentences": 96, "batch": 32, "rounds": 1, "clock": ("wall", "cpu")}
QUICK = {"sentences": 4, "rounds": 1}
STEPS, TOP_K, TOP_P, MAX_LENGTH = 63, 50, 0.9, 128
PROMPTS = texts.ROOT / "configs/prompts/gense.yaml"


class Work:
    """Model, inputs, and the length at which each text ends."""

    def __init__(self, sentences: int, quick: bool) -> None:
        corpus = texts.sentences(500 if quick else 20_000)
        self.premises = [one for one in corpus if 8 <= len(one.split()) <= 60][:sentences]
        self.tokenizer: Any = sentence_piece(corpus)
        torch.manual_seed(0)
        sizes = {"num_layers": 1, "d_model": 64, "d_ff": 128} if quick else {}  # the defaults are those of T5-small
        config = T5Config(vocab_size=32_128, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **sizes)
        self.model = T5ForConditionalGeneration(config).eval()
        prompts = parse_prompts(yaml.safe_load(PROMPTS.read_text(encoding="utf-8")), "pieces", str(PROMPTS))
        self.ids = PromptIds(prompts, self.tokenizer, alone=False)
        self.generator = EncoderDecoder("t5-small-shaped", self.model, self.tokenizer)
        self.discriminator = Discriminator(self.generator, prompts, MAX_LENGTH)
        generation = {direction: self.ids.generation(direction, self.premises, 96) for direction in DIRECTIONS}
        self.prompts = [  # entailment and contradiction of a sentence side by side, as in the published input
            Prompt((number, direction), tuple(generation[direction][number]))
            for number in range(len(self.premises))
            for direction in DIRECTIONS
        ]
        hypotheses = [text for _, text in texts.entailments(3000)]
        draw, lengths = random.Random(0), [len(one) + 1 for one in self.ids.ids(hypotheses)]
        self.lengths = {prompt.key: min(STEPS, draw.choice(lengths)) for prompt in self.prompts}


def sentence_piece(corpus: list[str]) -> PreTrainedTokenizerFast:
    """Return a Unigram tokenizer like T5's; unused tokens fill it to T5's number of ids."""
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    unigram.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=8000, special_tokens=special, unk_token="<unk>", show_progress=False)
    unigram.train_from_iterator([*corpus, "true false " * 100], trainer)
    unigram.add_tokens([f"word{number}" for number in range(32_100 - unigram.get_vocab_size())])
    roles = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=unigram, **roles)


def generate_ours(work: Work, statistics: Statistics, judge: bool) -> None:
    class AtLength(loop.StopCriteria):
        def of(self, sample: loop.Sample) -> Continuation | None:
            sample.limit = work.lengths[sample.prompt.key]
            return super().of(sample)

    keys: Any = {"max_new_tokens": STEPS, "top_p": TOP_P, "top_k": TOP_K, "temperature": 1.0}
    how = Decoding(seed=42, decode_batch_size=None, kv_cache_tokens=32_768, **keys)
    with patch.object(loop, "StopCriteria", AtLength), work.generator.session():
        out = {one.prompt.key: one.text for one in loop.decode(work.generator, iter(work.prompts), how, statistics)}
        if judge:
            work.discriminator([(work.premises[number], text) for (number, _), text in out.items()])
    assert len(out) == len(work.prompts)


class AtLengths(StoppingCriteria):
    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        return torch.tensor(input_ids.shape[1] - 1) >= self.lengths


@torch.inference_mode()
def generate_theirs(work: Work, batch: int, judge: bool) -> None:
    torch.manual_seed(1)
    pairs = list[tuple[str, str]]()
    for first in range(0, len(work.prompts), batch):
        some = work.prompts[first : first + batch]
        inputs = work.tokenizer.pad({"input_ids": [list(one.text) for one in some]}, return_tensors="pt")
        stop = StoppingCriteriaList([AtLengths([work.lengths[one.key] for one in some])])
        sampling: Any = {"do_sample": True, "top_k": TOP_K, "top_p": TOP_P, "max_new_tokens": STEPS}
        out = work.model.generate(**inputs, **sampling, stopping_criteria=stop)
        written = work.tokenizer.batch_decode(out, skip_special_tokens=True)
        pairs += [(work.premises[one.key[0]], text) for one, text in zip(some, written, strict=True)]
    for first in range(0, len(pairs) if judge else 0, batch):
        rows = work.ids.discrimination(*zip(*pairs[first : first + batch], strict=True), MAX_LENGTH)
        inputs = work.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        work.model(**inputs, decoder_input_ids=torch.zeros(len(rows), 1, dtype=torch.long))


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    work, statistics, clock = Work(options.sentences, options.quick), Statistics(), clock_of(options)
    number = len(work.premises)
    for judge in (False, True):
        sides = {
            "ours": timed(lambda judge=judge: generate_ours(work, statistics, judge), clock),
            "theirs": timed(lambda judge=judge: generate_theirs(work, options.batch, judge), clock),
        }
        seconds = alternate(sides, options.rounds).values()
        case = f"{number} sentences, batches of {options.batch}" + (", judged too" if judge else "")
        yield rates("P10", case, "sentences/s", number, *seconds, ">= 2x")
    wasted = 100 * statistics.wasted_row_steps / max(statistics.row_steps, 1)
    yield Line("P10", "row-steps of finished rows", "%", wasted, target="0")
