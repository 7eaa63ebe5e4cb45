"""Group similar rows into batches (``data.neighbor_group_size``), by the embeddings from the run's initial encoder."""

import io
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_encoders.core.runtime.process_group import broadcast_from_rank_zero
from contrastive_encoders.datamodules.row_datamodules import text_groups
from contrastive_encoders.datamodules.sampling.neighbor_groups import find_neighbor_groups, rows_to_group
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.initial_embeddings import initial_embeddings
from contrastive_encoders.training.resolve import ResolvedRun

NEIGHBORS = "neighbors"  # folder of the groups, with one file per data set
GROUPED_ROWS = "grouped_rows"  # entry of a checkpoint: the number of rows in the groups of each data set
MIN_GROUPS = 8  # minimum number of groups in a batch, so that most of it is as distant as random rows

log = logging.getLogger(__name__)


def group_neighbors(run: ResolvedRun, model: Any, data: Any, earlier: Mapping[str, int]) -> None:
    """Form groups of similar rows for data configs that set ``neighbor_group_size``. Rank 0 computes the groups once
    and stores them in the run's folder, and all ranks read the file.

    A run groups as many rows as its steps need. A resumed run has the groups of its checkpoint, since the position in
    the batches refers to them; additional steps draw from the same rows.

    Args:
        model: Objective with the initial weights of the run. The name of a file of groups also depends on the content
            of its data. Therefore a run without a checkpoint starts from scratch if the data have changed.
        earlier: Entry `GROUPED_ROWS` of the checkpoint from which the run is resumed; empty for a new run.
    """
    data.setup()  # the shares of a mixture are those of all rows, of which the groups contain those that the steps need
    for place, one in data_modules(data).items():
        size = min(getattr(one.settings, "neighbor_group_size", None) or 0, one.batch_size // MIN_GROUPS)
        if size < 2 or not isinstance(model, Objective):
            continue
        path = run.folder / NEIGHBORS / f"{place}-{one.data_id[:12]}.npy"
        if not broadcast_from_rank_zero(partial(_is_readable, path)):
            needed = max(run.max_steps, 0) * one.batch_size or one.num_examples
            broadcast_from_rank_zero(partial(_write, run, model, one, size, earlier.get(place, needed), path))
        one.groups = [group[group >= 0] for group in np.load(path, allow_pickle=False)]


def grouped_rows(data: Any) -> dict[str, int]:
    """Return the number of rows in the groups of each data set that has groups."""
    return {place: sum(map(len, one.groups)) for place, one in data_modules(data).items() if getattr(one, "groups", ())}


def _write(run: ResolvedRun, model: Objective, data: Any, size: int, num_rows: int, path: Path) -> None:
    """Group ``num_rows`` rows, and write the groups to ``path`` as an int64 array (groups, size) of example indices.
    Smaller groups are padded with -1.
    """
    store = data.store
    examples = rows_to_group(data.num_examples, num_rows, data.settings.seed)
    rows = data.subset[examples]
    log.info("neighbors: embedding %d anchors to form groups of %d similar rows", len(rows), size)
    vectors = initial_embeddings(run, model, data.sequences(store, rows, 0))
    texts = [text_groups(store, rows, column).numpy() for column in (0, 1)]
    groups = np.full((len(rows), size), -1)
    number = 0
    for number, group in enumerate(find_neighbor_groups(vectors.numpy(), texts, size), start=1):
        groups[number - 1, : len(group)] = examples[group]
    content = io.BytesIO()
    np.save(content, groups[:number])
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content.getvalue())


def _is_readable(path: Path) -> bool:
    try:
        np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, EOFError) as error:
        log.warning("%s is truncated or damaged (%s). The groups are computed again.", path, error)
        return False
    return True
