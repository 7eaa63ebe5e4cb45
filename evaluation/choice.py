"""Which tasks a training run is scored on: at the end, and in between."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from contracts import PairTask, RetrievalTask, Writer
from evaluation.catalogue import ENTRIES, load_tasks
from evaluation.generator_dev import GeneratorDev
from evaluation.suite import Suite
from evaluation.task import Options

log = logging.getLogger(__name__)


class Suites(NamedTuple):
    final: Suite
    during: Suite


def choose_suites(
    model: object,
    held_out: Iterable[PairTask | RetrievalTask],
    data_root: str | Path | None,
    suite: Sequence[str],
    during: Sequence[str],
    options: Options,
) -> Suites:
    """What the data module holds out, and from the tables ``suite`` and what of ``during`` it lacks; a model that
    writes has a suite of its own.

    A name of ``during`` that is no task anywhere is left out here; messages name the keys of a run.

    Raises:
        InputError: as `load_tasks`.
    """
    if isinstance(model, Writer):
        if data_root is not None:
            log.warning("evaluation.data_root=%s: this model has no vectors, so nothing there is scored.", data_root)
        generator = GeneratorDev()
        return Suites(generator, generator if GeneratorDev.name in during else Suite([]))
    final = Suite(held_out)
    if data_root is None:
        log.info("evaluation.data_root is not set: no STS scores.")
        return Suites(final, Suite(task for task in final if task.name in during))
    chosen = load_tasks(data_root, suite, options, prefix="evaluation.")
    final = Suite([*final, *chosen.tasks], chosen.not_as_published)
    there = {task.name for task in final}
    lacking = [name for name in during if name not in there and name in ENTRIES]
    extra = load_tasks(data_root, lacking, options, prefix="evaluation.").tasks if lacking else []
    return Suites(final, Suite(task for task in [*final, *extra] if task.name in during))
