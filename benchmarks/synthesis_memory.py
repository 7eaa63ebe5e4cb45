"""Peak memory of a synthesis over the number of its inputs: they stream, so there should be no difference.

    python -m benchmarks.synthesis_memory [--quick] [--recipe dino_x2|gense] [--inputs 2000 100000] [KEY=VALUE ...]

Each number is one ``contrastive-encoders generate`` in a process of its own, texts of four tokens, one per label or
direction, by
a network of one layer with random weights (further KEY=VALUE go to it). The reports are written too. Compared are the
last and the first number.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.materials import byte_level_bpe
from benchmarks.sides import Line, arguments, report
from benchmarks.texts import ROOT, sentences
from contrastive_encoders.encoders.loading.tiny import write_tiny_t5

SHORT = {  # texts, which all are kept
    "dino_x2": ["per_label=1", "max_new_tokens=4", "filters.keep_unclosed=true", "filters.allow_newlines=true"],
    "gense": [
        "max_new_tokens=4",
        "sentences.min_words=1",
        "rules.agree=false",
        "rules.threshold=null",
        "rules.min_premise_words=0",
        "rules.min_hypothesis_words=0",
        "rules.drop_near_copies=false",
    ],
}


def write_generator(recipe: str, folder: Path, corpus: Sequence[str]) -> Path:
    if recipe == "gense":
        shape = {"hidden_size": 32, "layers": 1, "heads": 1, "intermediate_size": 64, "max_length": 256, "dropout": 0.0}
        write_tiny_t5(folder, iter(corpus), seed=0, vocab_size=1_000, lowercase=True, **shape)
        return folder
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level_bpe(corpus, 5_999), eos_token="<|endoftext|>")
    end = tokenizer.eos_token_id
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_layer=1, n_embd=32, n_head=1, n_positions=256, bos_token_id=end, eos_token_id=end
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def peak(folder: Path, recipe: str, corpus: Sequence[str], inputs: int, more: Sequence[str]) -> tuple[float, float]:
    """MiB and seconds of one run."""
    given = folder / f"{inputs}.txt"
    given.write_text("".join(f"{corpus[place % len(corpus)]} {place}\n" for place in range(inputs)), encoding="utf-8")
    words = [f"recipe={recipe}", f"generator={folder}/generator", f"input={given}", f"output={folder}/{inputs}"]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "contrastive_encoders", "generate", *words, *SHORT[recipe], *more], cwd=ROOT
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the synthesis of {inputs} inputs failed")
    return used.ru_maxrss / 1024, time.monotonic() - began


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--inputs", type=int, nargs="+", default=[2_000, 100_000])
    parser.add_argument("--recipe", choices=list(SHORT), default="dino_x2")
    options, more = parser.parse_known_args()
    numbers = [20, 60] if options.quick else options.inputs
    corpus = [text for text in sentences(2_000) if len(text) < 100 and '"' not in text]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_generator(options.recipe, folder / "generator", corpus)
        found = {number: peak(folder, options.recipe, corpus, number, more) for number in numbers}
    first, last = found[numbers[0]][0], found[numbers[-1]][0]
    lines = [
        Line("memory", f"{number:,} inputs, peak, {seconds:.0f} s", "MiB", size, None, None, "")
        for number, (size, seconds) in found.items()
    ]
    case = f"{numbers[-1]:,} inputs against {numbers[0]:,}"
    lines.append(Line("memory", case, "MiB", last, first, last / first, "1x"))
    report(f"Memory of recipe={options.recipe}", lines, options.output)


if __name__ == "__main__":
    main()
