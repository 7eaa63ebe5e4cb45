"""The verdict of a run: whether its headline score improved in training, and suggestions for the next run.

A score of rated pairs is judged by its interval alone, one of retrieval also by a permutation test. `contrasts` of
`comparison` tests both kinds and corrects for the number of pairs of arms, so it can be stricter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.core import ITEMS_FILE, ItemScores, Results, Verdict
from contrastive_encoders.datamodules.sources.hub_datasets import NAME
from contrastive_encoders.datamodules.sources.records import list_setting
from contrastive_encoders.io.cached_rows import is_cached
from contrastive_encoders.io.item_scores import read_items
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.statistics.headline import RankingMetric, choose_verdict_metric
from contrastive_encoders.statistics.verdict import add_items_before, compute_verdict, count_items
from contrastive_encoders.training.advice import Facts, manifest_facts, suggestions
from contrastive_encoders.training.data_summary import multilingual
from contrastive_encoders.training.fit import FitResult, mode_of
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.startup_summary import changed_keys


def items_of(fitted: FitResult) -> ItemScores | None:
    """Return the scores of individual test items before training, after training, and with the TF-IDF baseline; None if
    there are no scores of individual items.
    """
    if (found := fitted.final.scores.items) is None:
        return None
    return add_items_before(fitted.score_callback.suite.with_baselines(found), fitted.score_callback.items_before)


def verdict_of(
    run: ResolvedRun,
    results: Results,
    items: ItemScores | None,
    history: Mapping[int, Mapping[str, float]],
    batches: type | None,
    reads: int | None,
) -> Verdict | None:
    """Return the verdict that compares the weights of the best step with the encoder before training; None if nothing
    was scored before training.

    Args:
        history: step -> scores.
        batches: class of the batches that the data yield.
        reads: maximum number of tokens that the encoder reads.
    """
    if (headline := headline_of(results)) is None:
        return None
    scorings = [scores for _, scores in sorted(history.items())]
    chosen = headline.scores == [results["recipe"].get("monitor")]
    verdict = _verdict(headline, results, items, len(scorings) - 1 if chosen else 1)
    if verdict["outcome"] == "better":
        return verdict
    # the scores at the start are not those of the verdict if the encoder differs from its backbone, as in its pooling
    scored = [] if results.get("changed_keys") else [*scorings, results["scores"]]
    sign = -1 if headline.less_is_better else 1
    more, files = sources_of(run, results["data"][0])
    facts = Facts(
        **manifest_facts(results["data"][0], reads),
        steps=results["cost"]["steps"],
        worse=verdict["outcome"] == "worse",
        limits=" ".join(f"{name}=null" for name in ("max_epochs", "max_time") if getattr(run, name) is not None),
        stops_early=run.early_stopping is not None,
        multilingual=multilingual(batches),
        more=more,
        files=files,
        rate=None
        if hasattr(run.model, "retriever")
        else getattr(run.model, "lr", None),  # a different model was scored before training
        losses=logged_losses(run),
        scores=[sign * headline.value(one) for one in scored if all(name in one for name in headline.scores)],
        items=verdict["items"] or 0,
        unit=count_items(headline, items)[1] if items else "",
        doubt=(verdict["interval"][1] - verdict["interval"][0]) / 2 if verdict["interval"] else 0.0,
        key_prefix=f"stages.{run.stage_name}." if run.stage_name else "",
    )
    verdict["suggestions"] = suggestions(facts)
    return verdict


def logged_losses(run: ResolvedRun) -> list[float]:
    """Return the logged training losses. The list is empty for a run that continues from another run's checkpoint,
    since the losses before the checkpoint are in the directory of that run.
    """
    if run.resume not in (None, "auto"):
        return []
    return [float(row["train/loss"]) for row in read_rows(run.folder / "metrics.csv") if "train/loss" in row]


def sources_of(run: ResolvedRun, manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return an override that would add training examples, and the names of the data files. Each is empty if there is
    none.
    """
    parts = manifest.get("parts") or {"": manifest}
    places = {
        place: (keys, parts[place.rpartition(".")[2] if "parts" in manifest else ""])
        for place, keys in run.datasets.items()
    }
    shares = [f"{place}.fraction=1.0" for place, (_, part) in places.items() if part.get("fraction", 1.0) < 1]
    paths = {
        place: [path] if isinstance(path, str) else list(map(str, path))
        for place, (keys, _) in places.items()
        if (path := getattr(keys, "path", None))
    }
    files = {
        place: names
        for place, names in paths.items()
        if not any(NAME.fullmatch(name) and not Path(name).exists() for name in names)
        and not any(is_cached(name) for name in names)  # rows that were passed in Python
    }
    more = next(iter(shares), "")
    if files and not more:
        fewest = min(files, key=lambda place: places[place][1]["used"])
        more = list_setting(f"{fewest}.path", [*files[fewest], "ANOTHER_FILE"])
    return more, ", ".join(name for names in files.values() for name in names)


def items_of_all(folders: Sequence[Path]) -> ItemScores | None:
    """Return the scores of individual test items for a run with stages: before the training of the first stage and
    after the training of the last stage.
    """
    first, last = (folder / ITEMS_FILE for folder in (folders[0], folders[-1]))
    if not last.is_file():
        return None
    items, start = read_items(last), read_items(first) if first.is_file() else None
    before = start and start._replace(replicates=start.replicates_before, values=start.values_before)
    return add_items_before(items._replace(replicates_before={}, values_before={}), before)


def verdict_of_all(results: Results, last: Verdict | None, items: ItemScores | None) -> Verdict | None:
    """Return the verdict of a run with stages, which compares the encoder of the last stage with the initial encoder of
    the first stage. The suggestions are those of the last stage.
    """
    if (headline := headline_of(results)) is None:
        return None
    verdict = _verdict(headline, results, items)
    if last and verdict["outcome"] != "better":
        verdict["suggestions"] = last["suggestions"]
    return verdict


def headline_of(results: Results) -> RankingMetric | None:
    recipe, before = results["recipe"], results.get("scores_before", {})
    monitor = recipe.get("monitor")
    less = mode_of(monitor, recipe.get("monitor_mode")) == "min"
    return choose_verdict_metric(
        before, results["scores"], results.get("averages", {}), monitor, monitor_less_is_better=less
    )


def _verdict(headline: RankingMetric, results: Results, items: ItemScores | None, best_of: int = 1) -> Verdict:
    return compute_verdict(
        headline,
        results["scores_before"],
        results["scores"],
        items,
        results.get("baselines"),
        best_of,
        results.get("corpora"),
        at_start=results.get("scores_at_start"),
        changed=changed_keys(results.get("changed_keys", {})),
    )


def in_words(verdict: Verdict) -> str:
    """Return the verdict as a sentence, followed by one line for each suggestion."""
    tries = [f"  {one}" for one in verdict["suggestions"]]
    return "\n".join([verdict["sentence"], *(["Suggestions for the next run:", *tries] if tries else [])])
