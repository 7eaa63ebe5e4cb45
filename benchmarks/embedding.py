"""Embedding: texts of mixed length as vectors, against sentence-transformers' `encode`.

    python -m benchmarks.embedding [--quick] [--rounds 3] [--precisions fp32 bf16] [--device cpu|cuda]
                                   [--clock wall|cpu] [--models minilm smollm2]

The same weights (all-MiniLM-L6-v2; SmolLM2-135M with its last token pooled, on a tenth of the texts), texts, length
limit and precision on both sides; theirs with batches of 32, its default. Half of the texts are single sentences, the
rest pieces of documents of up to 300 words. Loading is not counted. Wanted: 1.45 times as fast in fp32, of SmolLM2 1.5
times and 1.2 times in bf16; and equal vectors.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks import materials, texts
from benchmarks.sides import Line, alternate, arguments, clock_on, rates, report
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

WANTED = {"minilm": {"fp32": ">= 1.45x", "bf16": ""}, "smollm2": {"fp32": ">= 1.5x", "bf16": ">= 1.2x"}}
FIGURE = {"minilm": "E1", "smollm2": "P16"}
DECODER_SHARE = 10  # a forward pass of SmolLM2 takes about so many of MiniLM's
APART = {"fp32": "<= 1e-5", "bf16": ""}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def mixed(count: int) -> list[str]:
    """Return so many texts in random order: half are sentences, half pieces of documents of 5 to 300 words."""
    rng, found = random.Random(1), texts.sentences(count // 2)
    for document in texts.documents(count):
        words = document.split()
        start = rng.randrange(max(1, len(words) - 300))
        found.append(" ".join(words[start : start + rng.randint(5, 300)]))
        if len(found) == count:
            break
    rng.shuffle(found)
    return found


def timed(run: Callable[[], Any], kept: dict[str, np.ndarray], name: str, clock: Callable[[], float]) -> float:
    start = clock()
    kept[name] = np.asarray(run())
    return clock() - start


def decoder(folder: Path) -> Path:
    """SmolLM2 as a folder that both sides load."""
    encoder = load_encoder(materials.smollm2(folder / "transformer")[0], pooling="last", device="cpu")
    return export_encoder(folder / "encoder", **parts_of(cast(SentenceEncoder, encoder)))


def measured(options: argparse.Namespace) -> list[Line]:
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in options.models:
            count = 64 if options.quick else options.texts
            if model == "minilm":
                lines += compare_model(model, materials.packaged_minilm(), mixed(count), options)
            else:
                share = DECODER_SHARE if options.device == "cpu" else 1
                lines += compare_model(model, decoder(Path(scratch)), mixed(max(16, count // share)), options)
    return lines


def compare_model(model: str, folder: Path, sentences: list[str], options: Any) -> list[Line]:
    from sentence_transformers import SentenceTransformer

    lines, figure = [], FIGURE[model]
    for precision in options.precisions:
        ours = load_encoder(folder, precision=precision, device=options.device)
        theirs = SentenceTransformer(str(folder), device=options.device).to(DTYPES[precision])
        kept: dict[str, np.ndarray] = {}
        encode = partial(theirs.encode, sentences, batch_size=32, show_progress_bar=False, convert_to_tensor=True)
        sides = {
            "ours": lambda ours=ours: ours.embed(sentences, convert_to_numpy=True),
            "theirs": lambda encode=encode: encode().float().cpu().numpy(),
        }
        clock = clock_on(options.device, options.clock)
        if options.device != "cpu":  # its first kernels are loaded, which is not counted
            ours.embed(sentences[:64])
            theirs.encode(sentences[:64], show_progress_bar=False)
        runs = {name: partial(timed, run, kept, name, clock) for name, run in sides.items()}
        seconds = alternate(runs, 1 if options.quick else options.rounds)
        case = f"{precision}, {len(sentences)} texts"
        wanted = WANTED[model][precision] if options.device == "cpu" else ">= 1.5x"
        lines.append(rates(figure, case, "texts/s", len(sentences), list(seconds.values()), wanted))
        apart = float(np.abs(kept["ours"] - kept["theirs"]).max() / np.abs(kept["theirs"]).max())
        case = f"{precision}, largest difference, beside the largest value"  # SmolLM2's are up to 20
        lines.append(Line(figure, case, "", apart, None, None, APART[precision]))
    return lines


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, rounds=3, clock=True, precisions=True, device="cpu")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--models", nargs="+", choices=list(WANTED), default=list(WANTED))
    return parser.parse_args(words)


def main() -> None:
    options = parse()
    materials.hush()
    report(f"Embedding, {options.device}, {options.clock} time", measured(options), options.output)


if __name__ == "__main__":
    main()
