"""Whose the folder of triplets is: claimed before anything is written, free again where nothing was."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from contracts import InputError
from synthesis.rules.triplet_rules import Rules
from synthesis.rules.triplets import SCORED, filter_identity
from synthesis.shards.store import MANIFEST, ShardStore, read_manifest

FAILED = (1, 2)  # exit statuses of what was wrong, and not interrupted


def claim_triplets(folder: Path, scored: Mapping[str, Any], rules: Rules, *, overwrite: bool, writer: bool) -> bool:
    """Whether all is there already, what the triplets were taken from too, unless that was thrown away.

    Raises:
        InputError: the folder is another data set's.
    """
    store, identity = ShardStore(folder), filter_identity(scored, rules)
    if not overwrite and (folder / MANIFEST).is_file():
        before = read_manifest(folder)["identity"]
        if before.get(SCORED) == identity[SCORED] and before != identity:
            raise InputError(
                f"output={folder} holds triplets that were taken by other rules. To take them anew, without "
                f"writing anew: recipe=gense_filter input={folder} output=ANOTHER_FOLDER rules. ..."
            )
    finished = store.claim(identity, overwrite=overwrite, writer=writer)
    if not overwrite and (folder / SCORED / MANIFEST).is_file():
        finished = ShardStore(folder / SCORED).claim(scored, overwrite=False) and finished
    if writer and not finished:  # cut short now, the folder says already what it will be
        store.write_manifest(store.manifest({"identity": identity}, 0, complete=False))
    return finished


@contextlib.contextmanager
def free_again(folder: Path, *, overwrite: bool, alone: bool) -> Iterator[Callable[[int], int]]:
    """Inside, a folder that was nobody's is claimed. Where wrong input ends that before the first shard, it is nobody's
    again: the corrected command, whose identity is another, need not throw anything away.

    Processes that were started in there say how they ended: it is given the exit status, and gives it back. ``alone``:
    no others are at work there.
    """
    free = alone and (overwrite or not (folder / MANIFEST).is_file())

    def ended(status: int) -> int:
        if free and status in FAILED and folder.is_dir() and not any((folder / SCORED).glob("shard-*")):
            for place in (folder / SCORED, folder):  # what was prepared stays: it knows what it was prepared from
                (place / MANIFEST).unlink(missing_ok=True)
        return status

    try:
        yield ended
    except InputError:
        ended(2)
        raise
