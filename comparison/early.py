"""Hyperband as a sweep file says it, without W&B's server: which trials are not worth going on with.

An iteration is a scoring that the trial has logged. A trial is judged once at each band (``min_iter``, times ``eta``,
times ``eta`` again ...), by the best of what it has logged until there: it goes on where one in ``eta`` does, of all
that have reached the band (Li et al. 2018). Nothing is stopped before ``eta`` trials have.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts import InputError

STOPPED = "stopped_early.json"  # in a trial's folder


class Hyperband:
    """Judges the trials of one sweep by what their folders hold."""

    def __init__(self, bands: Sequence[int], eta: float, metric: str, maximize: bool, folders: Sequence[Path]) -> None:
        self.bands, self.eta, self.metric, self.maximize = sorted(bands), eta, metric, maximize
        self.folders = list(folders)
        self._judged = dict[Path, int]()  # the last band

    def verdict(self, folder: Path) -> str:
        """Why this trial should end, or nothing; asked while it runs."""
        logged = self._logged(folder)
        band = max((one for one in self.bands if one <= len(logged)), default=0)
        if band <= self._judged.get(folder, 0):
            return ""
        self._judged[folder] = band
        values = [max(found[:band]) for one in self.folders if len(found := self._logged(one)) >= band]
        kept = math.ceil(len(values) / self.eta)
        own, least = max(logged[:band]), sorted(values, reverse=True)[kept - 1]
        if len(values) < self.eta or own >= least:
            return ""
        sign = 1 if self.maximize else -1
        return f"{self.metric} {sign * own:.2f} at scoring {band}, wanted {sign * least:.2f}"

    def _logged(self, folder: Path) -> list[float]:
        """Larger is better."""
        from files.metrics import read_rows

        path = folder / "metrics.csv"
        found = [float(row[self.metric]) for row in read_rows(path) if self.metric in row] if path.exists() else []
        return found if self.maximize else [-one for one in found]


def bands_of(early_terminate: Mapping[str, Any], where: Path) -> list[int]:
    """``min_iter`` with ``eta``, or ``max_iter`` with ``s`` and ``eta``; eta is 3 where it is not said.

    Raises:
        InputError: another kind, or numbers that make no bands.
    """
    kind, eta = early_terminate.get("type"), early_terminate.get("eta", 3)
    least, most, halvings = (early_terminate.get(key) for key in ("min_iter", "max_iter", "s"))
    if kind != "hyperband" or not isinstance(eta, int | float) or eta <= 1:
        raise InputError(f"{where}: early_terminate {dict(early_terminate)}: wanted type: hyperband and eta above 1.")
    if isinstance(least, int) and least > 0:
        return [round(least * eta**power) for power in range(12)]
    if isinstance(most, int) and isinstance(halvings, int) and most > 0 and halvings > 0:
        return [band for power in range(1, halvings + 1) if (band := int(most / eta**power)) > 0]
    raise InputError(f"{where}: early_terminate wanted min_iter, or max_iter and s, as whole numbers above 0.")


def write_stopped(folder: Path, reason: str) -> None:
    (folder / STOPPED).write_text(json.dumps({"reason": reason}) + "\n", encoding="utf-8")


def stopped(folder: Path) -> str:
    """Why the sweep has ended this trial; nothing where it has not."""
    path = folder / STOPPED
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise InputError(f"{path}: wanted JSON, got: {error}. Remove it, and the trial goes on.") from error
    return str(found.get("reason", "")) if isinstance(found, dict) else ""
