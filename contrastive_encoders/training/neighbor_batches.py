"""Batches of neighbours: groups of rows by the vectors of the encoder that a run begins from (``data.neighbours``)."""

import io
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contrastive_encoders.datamodules.row_datamodules import text_groups
from contrastive_encoders.datamodules.sampling.neighbor_groups import grouped_rows, neighbour_groups
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.runtime.process_group import broadcast_from_rank_zero
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.resolve import ResolvedRun

NEIGHBOURS = "neighbours"  # folder of the groups, a file for each data set
SMALLEST = 8  # groups in a batch, at least: the rest of it is as far away as rows at random

log = logging.getLogger(__name__)


def group_neighbours(run: ResolvedRun, model: Any, data: Any) -> None:
    """Give data that asks for it its groups: computed once by rank 0, kept in the run's folder, read by all.

    ``model`` has the weights that the run begins from. A file of groups is named after the content of its data, too: a
    run that has not come to its first checkpoint begins anew on data that have changed since.
    """
    data.setup()  # the shares of a mixture are those of all rows, of which groups hold what the steps will take
    for place, one in data_modules(data).items():
        size = min(getattr(one.settings, "neighbours", None) or 0, one.batch_size // SMALLEST)
        if size < 2 or not isinstance(model, Objective):
            continue
        path = run.folder / NEIGHBOURS / f"{place}-{one.data_id[:12]}.npy"
        if not broadcast_from_rank_zero(partial(_is_whole, path)):
            broadcast_from_rank_zero(partial(_write, run, model, one, size, path))
        one.groups = [group[group >= 0] for group in np.load(path, allow_pickle=False)]


def _write(run: ResolvedRun, model: Objective, data: Any, size: int, path: Path) -> None:
    """Write (groups, size) int64 examples, where a group is smaller -1."""
    store, steps = data.store, run.max_steps if run.max_steps > 0 else 0
    examples = grouped_rows(data.num_examples, steps * data.batch_size or data.num_examples, data.settings.seed)
    rows = data.subset[examples]
    log.info("neighbours: reading %d first texts, for groups of %d in a batch", len(rows), size)
    autocast = torch.bfloat16 if run.precision == "bf16" else None
    vectors = model.encoder.embed_ids(data.sequences(store, rows, 0), autocast=autocast)
    texts = [text_groups(store, rows, column).numpy() for column in (0, 1)]
    groups = np.full((len(rows), size), -1)
    number = 0
    for number, group in enumerate(neighbour_groups(vectors.numpy(), texts, size), start=1):
        groups[number - 1, : len(group)] = examples[group]
    content = io.BytesIO()
    np.save(content, groups[:number])
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content.getvalue())


def _is_whole(path: Path) -> bool:
    try:
        np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, EOFError) as error:
        log.warning("%s: cut short or damaged (%s). The groups are made anew.", path, error)
        return False
    return True
