"""Comparison of the encoder with its teacher (``evaluation.compare_with_teacher``): size, speed, and scores of both."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.table import Table

from contrastive_encoders.core import EncoderCost, ItemScores, Results, TeacherComparison
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.encoders.loading.load import load_encoder, load_encoder_of
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
from contrastive_encoders.evaluation.callback import MAIN_MEASURES, ScoreCallback
from contrastive_encoders.io.manifest import read_record
from contrastive_encoders.statistics.bootstrap import Scores
from contrastive_encoders.statistics.paired_tests import interval
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.teacher import RECORD

NUM_TIMED_TEXTS = 512  # training texts whose embedding is timed
ROUNDS = 3  # rounds for each encoder, alternating; the median is reported


def score_teacher(run: ResolvedRun, score_callback: ScoreCallback) -> Scores | None:
    """Evaluate the teacher on all tasks of the run, and return its scores, or None if a comparison is not requested.
    Prefixes of its embeddings are scored up to their width. All ranks must call this.
    """
    if not (run.evaluation.compare_with_teacher and getattr(run.model, "teacher", None)):
        return None
    with torch.no_grad():
        found = score_callback.suite.score(
            SimpleNamespace(encoder=_load_teacher(run)),
            intervals=True,
            autocast=score_callback.dtype,
            progress=score_callback.progress,
        )
    width = _width_of_teacher(run)
    sizes = {name: ScoreName.parse(name).size for name in found.values}
    return found._replace(values={name: one for name, one in found.values.items() if (sizes[name] or 0) < width})


def compare_with_teacher(
    run: ResolvedRun, data: Any, results: Results, items: ItemScores | None, teacher_scores: Scores
) -> TeacherComparison:
    """Compare the size, speed, and scores of the exported encoder and its teacher. The speed is measured on the same
    training texts, alternating between the two encoders.

    Args:
        items: the encoder's scores of single test items.
        teacher_scores: scores of the teacher, as `score_teacher` returns them.
    """
    autocast = torch.bfloat16 if run.evaluation.precision == "bf16" else None
    sides = {"teacher": _load_teacher(run), "student": load_encoder(run.folder / "encoder", device=run.device)}
    rows = next(iter(data_modules(data).values())).used_texts()
    texts = list(islice(chain.from_iterable(rows), NUM_TIMED_TEXTS))
    seconds = _median_seconds(
        {name: partial(one.embed, texts, autocast=autocast, progress=False) for name, one in sides.items()}
    )
    widths = {"teacher": _width_of_teacher(run), "student": results["embeddings"]["width"]}
    costs = {side: _cost(encoder, len(texts) / seconds[side], widths[side]) for side, encoder in sides.items()}
    kept = {
        name: results["scores"][name] / value
        for name, value in teacher_scores.values.items()
        if ScoreName.parse(name).measure in MAIN_MEASURES and value and name in results["scores"]
    }
    replicates = [one.replicates if one else {} for one in (teacher_scores.items, items)]
    lead = {
        name: list(interval(replicates[0][name].astype(np.float64) - replicates[1][name]))
        for name in kept
        if all(name in one for one in replicates)
    }
    return TeacherComparison(
        teacher=str(run.model.teacher),
        scores=dict(teacher_scores.values),
        kept=kept,
        lead=lead,
        of_teacher=costs["teacher"],
        own=costs["student"],
    )


def teacher_comparison_table(found: TeacherComparison, results: Results) -> Table:
    """Return a table that compares size, speed, average scores, and the scores that are not part of an average, and
    states the teacher's lead with its 95 % interval over test items.
    """
    table = Table(title="Comparison with the teacher", title_justify="left")
    for name in ("", "teacher", "before", "after", "kept", "teacher - after"):
        table.add_column(name, justify="right" if name else "left")
    of_teacher, own = found["of_teacher"], found["own"]
    for title, key, form in (
        ("million parameters", "parameters", "{:.1f}"),
        ("MB of weights", "megabytes", "{:.0f}"),
        ("texts per second", "texts_per_s", "{:.0f}"),
        ("bytes per embedding", "bytes_per_text", "{:.0f}"),
    ):
        each = [float(one[key]) / (1e6 if key == "parameters" else 1) for one in (of_teacher, own)]  # type: ignore[literal-required]
        cells = [form.format(one) if one else "" for one in each]  # word vectors have no parameters
        kept = each[1] / each[0] if each[0] else None
        ratio = "" if kept is None else f"x {kept:.2f}" if key == "texts_per_s" else f"{kept:.1%}"
        table.add_row(title, cells[0], "", cells[1], ratio)
    members = {name for names in results.get("averages", {}).values() for name in names}
    for name in sorted(found["kept"].keys() - members):
        teacher, after = found["scores"][name], results["scores"][name]
        before, bounds = results.get("scores_before", {}).get(name), found["lead"].get(name)
        lead = f"{teacher - after:+.1f}" + (f" ({bounds[0]:.1f}, {bounds[1]:.1f})" if bounds else "")
        scores = ("" if one is None else f"{one:.2f}" for one in (teacher, before, after))
        table.add_row(name, *scores, f"{found['kept'][name]:.1%}", lead)
    return table


def _load_teacher(run: ResolvedRun) -> LoadedEncoder:
    return load_encoder_of("model.teacher", str(run.model.teacher), run.device)


def _width_of_teacher(run: ResolvedRun) -> int:
    return int(read_record(run.folder / RECORD)["width"])


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


def _cost(encoder: LoadedEncoder, texts_per_s: float, width: int) -> EncoderCost:
    model = encoder if isinstance(encoder, torch.nn.Module) else getattr(encoder, "model", None)
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return EncoderCost(
        parameters=sum(weight.numel() for weight in weights),
        megabytes=sum(weight.nbytes for weight in weights) / 1e6,
        texts_per_s=texts_per_s,
        bytes_per_text=width * torch.float32.itemsize,
    )
