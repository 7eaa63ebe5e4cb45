"""E1, P16: embeddings of texts of mixed length, compared with sentence-transformers' `encode`.

Both sides have the same weights (all-MiniLM-L6-v2; SmolLM2-135M with last-token pooling, on a CPU with a tenth of the
texts), texts, length limit, and precision; theirs with batches of 32, its default. Half of the texts are single
sentences, the rest pieces of documents of up to 300 words. Loading is not counted. Target: 1.45 times as fast in fp32,
for SmolLM2 1.5 times, and 1.2 times in bf16; on a GPU 1.5 times; and equal embeddings.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import materials, texts
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, rates, timed
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of

OPTIONS = {
    "models": ["minilm", "smollm2"],
    "texts": 2000,
    "precisions": PRECISIONS,
    "rounds": 3,
    "clock": ("wall", "cpu"),
    "device": "cpu",
}
QUICK = {"texts": 64, "rounds": 1}
TARGETS = {"minilm": {"fp32": ">= 1.45x", "bf16": ""}, "smollm2": {"fp32": ">= 1.5x", "bf16": ">= 1.2x"}}
FIGURES = {"minilm": "E1", "smollm2": "P16"}
DECODER_SHARE = 10  # a forward pass of SmolLM2 takes about as long as ten of MiniLM


def mixed(count: int) -> list[str]:
    """Return texts in random order: half are sentences, and half are document passages of 5 to 300 words."""
    rng, mixture = random.Random(1), texts.sentences(count // 2)
    for document in texts.documents(count):
        words = document.split()
        start = rng.randrange(max(1, len(words) - 300))
        mixture.append(" ".join(words[start : start + rng.randint(5, 300)]))
        if len(mixture) == count:
            break
    rng.shuffle(mixture)
    return mixture


def make_decoder(folder: Path) -> Path:
    """Export SmolLM2 as a folder that both sides load."""
    encoder: Any = load_encoder(materials.smollm2(folder / "transformer"), pooling="last", device="cpu")
    return export_encoder(folder / "encoder", **parts_of(encoder))


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    from sentence_transformers import SentenceTransformer

    clock = clock_of(options)
    for model in options.models:
        path = materials.packaged_minilm() if model == "minilm" else make_decoder(folder)
        share = DECODER_SHARE if model == "smollm2" and options.device == "cpu" else 1
        corpus = mixed(max(16, options.texts // share))
        for precision in options.precisions:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            encoder = load_encoder(path, precision=precision, device=options.device)
            library = SentenceTransformer(str(path), device=options.device).to(dtype)
            results = dict[str, np.ndarray]()

            def embed(encoder: Any = encoder, results: Any = results, some: list[str] = corpus) -> None:
                results["ours"] = encoder.embed(some, convert_to_numpy=True)

            def encode(library: Any = library, results: Any = results, some: list[str] = corpus) -> None:
                tensors = library.encode(some, batch_size=32, show_progress_bar=False, convert_to_tensor=True)
                results["theirs"] = tensors.float().cpu().numpy()

            if options.device != "cpu":  # loading its first kernels is not counted
                embed(some=corpus[:64])
                encode(some=corpus[:64])
            seconds = alternate({"ours": timed(embed, clock), "theirs": timed(encode, clock)}, options.rounds)
            target = TARGETS[model][precision] if options.device == "cpu" else ">= 1.5x"
            figure, case = FIGURES[model], f"{precision}, {len(corpus)} texts"
            yield rates(figure, case, "texts/s", len(corpus), *seconds.values(), target)
            difference = np.abs(results["ours"] - results["theirs"]).max() / np.abs(results["theirs"]).max()
            case = f"{precision}, largest difference relative to the largest value"  # SmolLM2's are up to 20
            yield Line(figure, case, "", float(difference), target="<= 1e-5" if precision == "fp32" else "")
