"""Comparison of the encoder with its teacher (``evaluation.compare_with_teacher``): size, speed, and scores of both."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rich.table import Table

from contrastive_encoders.core import EncoderCost, Results, TeacherComparison
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
from contrastive_encoders.evaluation.callback import MAIN_MEASURES, ScoreCallback
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.resolve import ResolvedRun

NUM_TIMED_TEXTS = 512  # training texts whose embedding is timed
ROUNDS = 3  # rounds for each encoder, alternating; the median is reported


def score_teacher(run: ResolvedRun, score_callback: ScoreCallback) -> dict[str, float] | None:
    """Evaluate the teacher on all tasks of the run, and return its scores, or None if a comparison is not requested.
    All ranks must call this.
    """
    if not (run.evaluation.compare_with_teacher and getattr(run.model, "teacher", None)):
        return None
    with torch.no_grad():
        found = score_callback.suite.score(
            SimpleNamespace(encoder=_load(run, run.model.teacher)),
            intervals=False,
            autocast=score_callback.dtype,
            progress=score_callback.progress,
        )
    return dict(found.values)


def compare_with_teacher(
    run: ResolvedRun, data: Any, results: Results, of_teacher: Mapping[str, float]
) -> TeacherComparison:
    """Compare the size, speed, and scores of the exported encoder and its teacher. The speed is measured on the same
    training texts, alternating between the two encoders.
    """
    autocast = torch.bfloat16 if run.evaluation.precision == "bf16" else None
    sides = {"teacher": _load(run, run.model.teacher), "student": _load(run, run.folder / "encoder")}
    rows = next(iter(data_modules(data).values())).used_texts()
    texts = list(islice(chain.from_iterable(rows), NUM_TIMED_TEXTS))
    seconds = _median_seconds(
        {name: partial(one.embed, texts, autocast=autocast, progress=False) for name, one in sides.items()}
    )
    costs = {side: _cost(encoder, len(texts) / seconds[side]) for side, encoder in sides.items()}
    kept = {
        name: results["scores"][name] / value
        for name, value in of_teacher.items()
        if ScoreName.parse(name).measure in MAIN_MEASURES and value and name in results["scores"]
    }
    return TeacherComparison(
        teacher=str(run.model.teacher),
        scores={**of_teacher},
        kept=kept,
        of_teacher=costs["teacher"],
        own=costs["student"],
    )


def teacher_comparison_table(found: TeacherComparison, results: Results) -> Table:
    """Return a table that compares size, speed, average scores, and the scores that are not part of an average."""
    table = Table(title="Comparison with the teacher", title_justify="left")
    for name in ("", "teacher", "student", "kept"):
        table.add_column(name, justify="right" if name else "left")
    of_teacher, own = found["of_teacher"], found["own"]
    for title, key, form in (
        ("million parameters", "parameters", "{:.1f}"),
        ("MB of weights", "megabytes", "{:.0f}"),
        ("texts per second", "texts_per_s", "{:.0f}"),
    ):
        each = [float(one[key]) / (1e6 if key == "parameters" else 1) for one in (of_teacher, own)]  # type: ignore[literal-required]
        kept = f"x {each[1] / each[0]:.2f}" if key == "texts_per_s" else f"{each[1] / max(each[0], 1e-9):.1%}"
        table.add_row(title, *(form.format(one) for one in each), kept)
    members = {name for names in results.get("averages", {}).values() for name in names}
    for name in sorted(found["kept"].keys() - members):
        table.add_row(
            name, f"{found['scores'][name]:.2f}", f"{results['scores'][name]:.2f}", f"{found['kept'][name]:.1%}"
        )
    return table


def _load(run: ResolvedRun, name: str | Path) -> LoadedEncoder:
    return load_encoder(name, device=run.device)


def _median_seconds(several: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median duration of each function in seconds, over several rounds that call the functions in turn. The
    first round, a warm-up, does not count.
    """
    seconds = {name: list[float]() for name in several}
    for _ in range(ROUNDS + 1):
        for name, call in several.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(found[1:]) for name, found in seconds.items()}


def _cost(encoder: LoadedEncoder, texts_per_s: float) -> EncoderCost:
    model = encoder if isinstance(encoder, torch.nn.Module) else getattr(encoder, "model", None)
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return EncoderCost(
        parameters=sum(weight.numel() for weight in weights),
        megabytes=sum(weight.nbytes for weight in weights) / 1e6,
        texts_per_s=texts_per_s,
    )
