"""P10: sentences from an encoder-decoder, against transformers' ``generate`` on batches in the order of the input.

    python -m benchmarks.triplet_synthesis [--quick] [--sentences 96] [--rounds 1] [--batch 32]

A model shaped like T5-small with random weights, the same on both sides; real premises; one entailment and one
contradiction per sentence, top-k 50 and top-p 0.9, 63 new tokens at most. A random model never ends by itself: on both
sides texts end at lengths drawn from those of real hypotheses, the same ones. The other side is what the published
script does: batches of both prompts as they come, padded to the longest, until the last text of the batch has ended.
Also with the discriminator's pass over what was written, in batches as they come on the other side.
"""

import argparse
import gzip
import json
import random
from collections.abc import Callable
from functools import partial
from itertools import islice
from statistics import mean, median

import torch
import yaml
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers import StoppingCriteria, StoppingCriteriaList, T5Config, T5ForConditionalGeneration

from benchmarks import materials, texts
from benchmarks.sides import CLOCKS, Line, alternate, arguments, median_ratio, report
from contrastive_encoders.core.gense_prompts import DIRECTIONS, PromptIds, parse_prompts
from contrastive_encoders.synthesis.decoding import loop as decoding
from contrastive_encoders.synthesis.decoding.continuations import Continuation, Decoding, Prompt, Statistics
from contrastive_encoders.synthesis.decoding.discriminator import Discriminator
from contrastive_encoders.synthesis.decoding.encoder_decoder import EncoderDecoder
from contrastive_encoders.synthesis.decoding.loop import Sample, StopCriteria, decode

STEPS = 63
TOP_K, TOP_P = 50, 0.9
PROMPTS = texts.ROOT / "configs/prompts/gense.yaml"


class Work:
    """Model, inputs, and the length at which each text ends."""

    def __init__(self, sentences: int, quick: bool) -> None:
        corpus = texts.sentences(20_000 if not quick else 500)
        self.premises = [one for one in corpus if 8 <= len(one.split()) <= 60][:sentences]
        self.tokenizer = sentence_piece(corpus)
        self.model = t5_small_shaped(len(self.tokenizer), quick)
        prompts = parse_prompts(yaml.safe_load(PROMPTS.read_text(encoding="utf-8")), "pieces", str(PROMPTS))
        self.ids = PromptIds(prompts, self.tokenizer, alone=False)
        self.generator = EncoderDecoder("t5-small-shaped", self.model, self.tokenizer)
        self.score = Discriminator(self.generator, prompts, 128)
        draw, lengths = random.Random(0), hypothesis_lengths(self.ids, corpus)
        self.lengths = {
            (place, direction): min(STEPS, draw.choice(lengths))
            for place in range(len(self.premises))
            for direction in DIRECTIONS
        }

    def prompts(self) -> list[Prompt]:
        """Entailment and contradiction of a sentence side by side, as in the published input."""
        written = {direction: self.ids.generation(direction, self.premises, 96) for direction in DIRECTIONS}
        return [
            Prompt((place, direction), tuple(written[direction][place]))
            for place in range(len(self.premises))
            for direction in DIRECTIONS
        ]


def sentence_piece(corpus: list[str]) -> Tokenizer:
    """Unigram, as T5's; as many ids as T5 has embeddings are reached by unused words."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    fast = Fast(models.Unigram())
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=8000, special_tokens=special, unk_token="<unk>", show_progress=False)
    fast.train_from_iterator([*corpus, "true false " * 100], trainer)
    fast.add_tokens([f"word{number}" for number in range(32100 - fast.get_vocab_size())])
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def t5_small_shaped(tokens: int, quick: bool) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    size = {"num_layers": 1, "d_model": 64, "d_ff": 128} if quick else {}  # the defaults are those of T5-small
    config = T5Config(vocab_size=max(tokens, 32128), decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **size)
    return T5ForConditionalGeneration(config).eval()


def hypothesis_lengths(ids: PromptIds, corpus: list[str]) -> list[int]:
    """Tokens of real hypotheses, the end included; of short sentences where the triplets are not there."""
    folder = texts.shared_data()
    path = None if folder is None else folder / "train" / "triplets.jsonl.gz"
    if path is None or not path.is_file():
        found = [one for one in corpus if len(one.split()) <= 12]
    else:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found = [json.loads(line)["entailment"] for line in islice(file, 3000)]
    return [len(one) + 1 for one in ids.ids(found)]


def ours(work: Work, statistics: Statistics, judged: bool, rows: int | None) -> list[str]:
    class AtLength(StopCriteria):
        def of(self, sample: Sample) -> Continuation | None:
            sample.limit = work.lengths[sample.prompt.key]  # type: ignore[index]
            return super().of(sample)

    decoding.StopCriteria = AtLength  # type: ignore[misc]
    how = Decoding(
        max_new_tokens=STEPS, top_p=TOP_P, top_k=TOP_K, temperature=1.0, seed=42, rows=rows, token_budget=32_768
    )
    with work.generator.at_work():
        out = {one.prompt.key: one.text for one in decode(work.generator, iter(work.prompts()), how, statistics)}
        if judged:
            work.score([(work.premises[key[0]], text) for key, text in out.items()])  # type: ignore[index]
    return list(out.values())


class AtLengths(StoppingCriteria):
    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        return torch.tensor(input_ids.shape[1] - 1) >= self.lengths


@torch.inference_mode()
def theirs(work: Work, batch: int, judged: bool) -> list[str]:
    torch.manual_seed(1)
    out: list[str] = []
    prompts = work.prompts()
    for first in range(0, len(prompts), batch):
        some = prompts[first : first + batch]
        padded = work.tokenizer.pad({"input_ids": [list(one.text) for one in some]}, return_tensors="pt")
        found = work.model.generate(
            input_ids=padded["input_ids"],
            attention_mask=padded["attention_mask"],
            do_sample=True,
            top_k=TOP_K,
            top_p=TOP_P,
            max_new_tokens=STEPS,
            stopping_criteria=StoppingCriteriaList([AtLengths([work.lengths[one.key] for one in some])]),  # type: ignore[index]
        )
        out += work.tokenizer.batch_decode(found, skip_special_tokens=True)
    if judged:
        pairs = [(work.premises[one.key[0]], text) for one, text in zip(prompts, out, strict=True)]  # type: ignore[index]
        for first in range(0, len(pairs), batch):
            premises, hypotheses = zip(*pairs[first : first + batch], strict=True)
            rows = work.ids.discrimination(premises, hypotheses, 128)
            padded = work.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
            work.model(**padded, decoder_input_ids=torch.zeros(len(rows), 1, dtype=torch.long))
    return out


def timed(run: Callable[[], list[str]], sentences: int, clock: Callable[[], float]) -> float:
    """Sentences per second."""
    start = clock()
    assert len(run()) == 2 * sentences
    return sentences / (clock() - start)


def generation(options: argparse.Namespace) -> list[Line]:
    sentences = 4 if options.quick else options.sentences
    work, statistics = Work(sentences, options.quick), Statistics()
    batch, clock = options.batch, CLOCKS[options.clock]
    number, lines = len(work.premises), []
    for judged in (False, True):
        sides = {
            "ours": partial(timed, partial(ours, work, statistics, judged, options.rows), number, clock),
            "theirs": partial(timed, partial(theirs, work, batch, judged), number, clock),
        }
        speed = alternate(sides, 1 if options.quick else options.rounds)
        ratio = median_ratio(speed["ours"], speed["theirs"])
        case = f"{number} sentences, batches of {batch}" + (", judged too" if judged else "")
        own, other = median(speed["ours"]), median(speed["theirs"])
        lines.append(Line("P10", case, "sentences/s", own, other, ratio, ">= 2x"))
    wasted = 100 * statistics.wasted_row_steps / max(statistics.row_steps, 1)
    lines.append(Line("P10", "row-steps of finished rows", "%", wasted, None, None, "0"))
    lines.append(Line("P10", "tokens of a text, mean", "", mean(work.lengths.values()), None, None, "real hypotheses"))
    return lines


def main() -> None:
    parser = arguments(__doc__, rounds=1, clock=True)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--batch", type=int, default=32, help="of the other side, in prompts")
    parser.add_argument("--rows", type=int, help="of our batches")
    options = parser.parse_args()
    materials.hush()
    report("Triplet synthesis", generation(options), options.output)


if __name__ == "__main__":
    main()
