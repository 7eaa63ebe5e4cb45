"""P24: a step of in-batch contrast that excludes equal texts from the negatives, compared with one that keeps them.

MiniLM on the CPU, neighboring sentences of a file as pairs, fp32, a step of ``model=pairs`` with its gradient in one
chunk; ours excludes equal texts. The loss and its gradient alone are timed too, on random embeddings, and so is
`nt_xent`, with each text in two pairs. Target: a step at least 0.98 times as fast.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import materials
from benchmarks.runner import Line, alternate, clock_of, rates, timed
from benchmarks.texts import sentences
from contrastive_encoders.core import TripletBatch
from contrastive_encoders.losses.contrastive import nt_xent

OPTIONS = {"sizes": [64, 256], "rounds": 7, "clock": ("wall", "cpu")}
QUICK = {"sizes": [32], "rounds": 2}
WIDTH, REPEATS, MAX_CHARACTERS = 384, 20, 256


def make_embeddings(size: int) -> list[Tensor]:
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    return [torch.randn(size, WIDTH, generator=generator).requires_grad_() for generator in generators]


def step_of(model: Any, batch: TripletBatch) -> Callable[[], None]:
    model.log_step = False

    def step() -> None:
        model.training_step(batch, 0)["loss"].backward()
        model.zero_grad()

    return step


def loss_of(model: Any, batch: TripletBatch) -> Callable[[], None]:
    embeddings = make_embeddings(len(batch.rows))

    def step() -> None:
        for _ in range(REPEATS):
            model.loss(embeddings, batch, text_hashes=model.loss_hashes(batch)).loss.backward()

    return step


def nt_xent_of(texts: tuple[Tensor, Tensor] | None, size: int) -> Callable[[], None]:
    views = make_embeddings(size)

    def step() -> None:
        for _ in range(REPEATS):
            nt_xent(*views, temperature=0.05, text_hashes=texts).loss.backward()

    return step


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    backbone, clock = materials.packaged_minilm(), clock_of(options)
    keys = {"token_budget": 10**9, "dropout": 0.0}
    models = [materials.objective("pairs", backbone, exclude_equal_texts=exclude, **keys) for exclude in (True, False)]
    corpus = [text[:MAX_CHARACTERS] for text in sentences(2 * max(options.sizes))]
    for size in options.sizes:
        left, right = (models[0].encoder.tokenize(corpus[side : 2 * size : 2]) for side in (0, 1))
        batch = TripletBatch(left, right, None, None, np.arange(size))
        pairs_of_texts = torch.arange(size) // 2, torch.arange(size) + size
        cases = {
            f"a step of {size} pairs": ([step_of(model, batch) for model in models], 1, ">= 0.98x"),
            f"the loss of {size} pairs": ([loss_of(model, batch) for model in models], REPEATS, ""),
            f"nt_xent of {size} pairs": ([nt_xent_of(pairs, size) for pairs in (pairs_of_texts, None)], REPEATS, ""),
        }
        for case, (steps, repeats, target) in cases.items():
            sides = {name: timed(step, clock) for name, step in zip(("excluded", "kept"), steps, strict=True)}
            alternate(sides, 1)  # allocates what is kept
            seconds = alternate(sides, options.rounds)
            yield rates("P24", case, "pairs/s", size * repeats, *seconds.values(), target)
