"""Compare a step of in-batch contrast that leaves out equal texts with one that keeps them, in pairs/s.

    python -m benchmarks.equal_texts [--quick] [--rounds 7]

MiniLM on the CPU, sentences and their neighbours in a file as pairs, fp32, a step of ``model=pairs`` with its gradient
in one chunk; ours leaves equal texts out. The same run times the loss and its gradient alone from given vectors, also
those of `nt_xent`, in which a text is paired with two others.
Wanted: a step not slower than 1.02 times one without masks, so a ratio of 0.98.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import materials
from benchmarks.sides import Line, alternate, arguments, on_the_cpu, rates, report
from benchmarks.texts import sentences
from contrastive_encoders.core import TripletBatch
from contrastive_encoders.losses.contrastive import nt_xent

LONGEST = 64
WANTED = ">= 0.98x"


def step_of(model: object, batch: TripletBatch) -> Callable[[], float]:
    def timed() -> float:
        start = time.perf_counter()
        model.training_step(batch, 0)["loss"].backward()  # type: ignore[attr-defined]
        seconds = time.perf_counter() - start
        model.zero_grad()  # type: ignore[attr-defined]
        return seconds

    return timed


def loss_of(model: object, batch: TripletBatch, width: int, times: int) -> Callable[[], float]:
    count = len(batch.rows)
    vectors = [torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]

    def timed() -> float:
        start = time.perf_counter()
        for _ in range(times):
            given = [one.clone().requires_grad_() for one in vectors]
            model.loss(given, batch, texts=model.numbered(batch)).loss.backward()  # type: ignore[attr-defined]
        return (time.perf_counter() - start) / times

    return timed


def nt_xent_of(texts: tuple[torch.Tensor, torch.Tensor] | None, size: int, times: int) -> Callable[[], float]:
    views = [torch.randn(size, 384, generator=torch.Generator().manual_seed(seed)).requires_grad_() for seed in (1, 2)]

    def timed() -> float:
        start = time.perf_counter()
        for _ in range(times):
            nt_xent(*views, temperature=0.05, texts=texts).loss.backward()
        return (time.perf_counter() - start) / times

    return timed


def measured(sizes: list[int], rounds: int) -> list[Line]:
    backbone, lines = materials.packaged_minilm(), list[Line]()
    models = {
        kept: materials.objective("pairs", backbone, exclude_equal_texts=not kept, token_budget=10**9, dropout=0.0)
        for kept in (False, True)
    }
    tokenize = models[True].encoder.tokenize
    texts = sentences(2 * max(sizes))
    for size in sizes:
        left, right = (tokenize([text[: 4 * LONGEST] for text in texts[side : 2 * size : 2]]) for side in (0, 1))
        batch = TripletBatch(left, right, None, None, np.arange(size))
        for case, make in (
            (f"a step of {size} pairs", step_of),
            (f"the loss of {size} pairs", lambda model, batch: loss_of(model, batch, 384, 20)),
        ):
            sides = {kept: make(model, batch) for kept, model in models.items()}
            alternate(sides, 1)  # what is allocated once
            seconds = alternate(sides, rounds)
            wanted = WANTED if make is step_of else ""
            lines.append(rates("equal texts", case, "pairs/s", size, [seconds[False], seconds[True]], wanted))
        texts_of_views = torch.arange(size) // 2, torch.arange(size) + size
        contrasts = {"masked": nt_xent_of(texts_of_views, size, 20), "kept": nt_xent_of(None, size, 20)}
        alternate(contrasts, 1)
        lines.append(
            rates("", f"nt_xent of {size} pairs", "pairs/s", size, [*alternate(contrasts, rounds).values()], "")
        )
    return lines


def main() -> None:
    options = arguments(__doc__, rounds=7).parse_args()
    on_the_cpu()
    materials.hush()
    found = measured([32] if options.quick else [64, 256], 2 if options.quick else options.rounds)
    report("Equal texts of a batch left out, against kept", found, options.output)


if __name__ == "__main__":
    main()
