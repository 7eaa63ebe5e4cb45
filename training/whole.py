"""What stages leave together: the last one's encoder and scores, the cost of all, and each one's account."""

import gc
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl
import torch

from contracts import ITEMS_FILE, Results, Spent, StageResults
from files.results import read_results, write_results
from files.whole import link_whole, whole_folder
from training.callbacks.checkpoints import BEST

log = logging.getLogger(__name__)

OF_THE_TRANSFORMER = "encoder.transformer."
MADE = ("encoder", "generator")  # folders to use; a run leaves one of them


def take_weights(model: pl.LightningModule, before: Path) -> None:
    """The best weights of the run in ``before``, wherever name and size are the same.

    The transformer is there already, as the run's folder is the backbone; this brings what stands behind it.
    """
    state = torch.load(before / "checkpoints" / BEST, map_location="cpu", weights_only=True, mmap=True)["state_dict"]
    ours = model.state_dict()
    same = {name: weight for name, weight in state.items() if name in ours and ours[name].shape == weight.shape}
    model.load_state_dict(same, strict=False)
    fresh = sorted(name for name in ours.keys() - same.keys() if not name.startswith(OF_THE_TRANSFORMER))
    if fresh:
        log.info("new in this stage: %s", ", ".join(fresh))


def let_go() -> None:
    """Free the model and the optimiser of a stage that has ended; the next one's peak of memory is its own."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def summed(parts: Sequence[Spent]) -> Spent:
    """Of all stages; the memory is the most that any of them held."""
    return Spent(
        steps=sum(part["steps"] for part in parts),
        examples=sum(part["examples"] for part in parts),
        real_tokens=sum(part["real_tokens"] for part in parts),
        padded_tokens=sum(part["padded_tokens"] for part in parts),
        wall_seconds=sum(part["wall_seconds"] for part in parts),
        peak_memory_bytes=max(part["peak_memory_bytes"] for part in parts),
    )


def whole(names: Sequence[str], stages: Sequence[Results], backbone: str) -> Results:
    """``results.json`` of the whole: the last stage's, from the backbone that the first began from."""
    results = stages[-1].copy()
    results["backbone"] = backbone
    results["spent"] = summed([stage["spent"] for stage in stages])
    results["data"] = [manifest for stage in stages for manifest in stage["data"]]
    results["overlap"] = _overlap(stages)
    results.pop("scores_before", None)
    if "scores_before" in stages[0]:  # of the untrained encoder
        results["scores_before"] = stages[0]["scores_before"]
    results["stages"] = {
        name: StageResults(
            place=place,
            objective=stage["objective"],
            backbone=stage["backbone"],
            scores=stage["scores"],
            best_step=stage["best_step"],
            spent=stage["spent"],
            overlap=stage["overlap"],
        )
        for place, (name, stage) in enumerate(zip(names, stages, strict=True), start=1)
    }
    return results


def leave_whole(
    folder: Path, names: Sequence[str], folders: Sequence[Path], backbone: str, card: Callable[[Results], str]
) -> Results:
    """Write the last stage's encoder and the account of all; results.json last, for it says that the run is done."""
    results = whole(names, [read_results(one / "results.json") for one in folders], backbone)
    for made in MADE:
        if (folders[-1] / made).is_dir():
            with whole_folder(folder / made) as part:
                shutil.copytree(folders[-1] / made, part, dirs_exist_ok=True)
    if (folder / "encoder").is_dir():
        (folder / "encoder" / "README.md").write_text(card(results), encoding="utf-8")
    (folder / "checkpoints").mkdir(exist_ok=True)
    link_whole(folders[-1] / "checkpoints" / BEST, folder / "checkpoints" / BEST)  # so that backbone=FOLDER works
    if (folders[-1] / ITEMS_FILE).is_file():
        link_whole(folders[-1] / ITEMS_FILE, folder / ITEMS_FILE)
    write_results(folder / "results.json", results)
    return results


def _overlap(stages: Sequence[Results]) -> dict[str, dict[str, int]]:
    """At most so many: a sentence that two stages were trained on counts twice."""
    found = dict[str, dict[str, int]]()
    for stage in stages:
        for task, counts in stage["overlap"].items():
            sums = found.setdefault(task, {"checked": counts["checked"], "found": 0})
            sums["found"] = min(sums["checked"], sums["found"] + counts["found"])
    return found
