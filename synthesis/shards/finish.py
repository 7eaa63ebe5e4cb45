"""What lies beside the shards: the manifest with its measures, the report, the data card."""

import contextlib
import logging
from typing import Any

from filelock import Timeout

from synthesis.shards.stage import Stage

log = logging.getLogger(__name__)


def finish(stage: Stage) -> None:
    """Of a data set whose shards are all there."""
    counts = _leave(stage, complete=True)
    if not counts["accepted"]:
        reasons = ", ".join(f"{reason} {number}" for reason, number in counts["rejected"].items())
        log.warning(
            "%s: not one text was accepted (%s). report.md has more.", stage.folder, reasons or "none was asked for"
        )
        return
    log.info(
        "%s: %s of %s texts accepted (%.1f %%); report.html says how good they are.",
        stage.folder, f"{counts['accepted']:,}", f"{counts['samples']:,}", 100 * counts["yield"],
    )  # fmt: skip


def leave_unfinished(stage: Stage) -> None:
    """The same for the shards that are there; of several interrupted processes the first does it."""
    with contextlib.suppress(Timeout), stage.lock(timeout=0):
        if not stage.is_complete():
            _leave(stage, complete=False)


def _leave(stage: Stage, *, complete: bool) -> dict[str, Any]:
    """The manifest last: where it says complete, all the rest is there."""
    manifest = stage.manifest(complete=complete)
    stage.store.write_manifest({**manifest, **stage.describe(manifest)})
    return manifest["counts"]
