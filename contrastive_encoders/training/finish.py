"""Outputs of a finished run: encoder, learning curve, ``results.json``, and the final table."""

import logging
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from contrastive_encoders.core import (
    ITEMS_FILE,
    RECORD_VERSION,
    Changes,
    EncoderPrompts,
    ItemScores,
    Results,
    RunCost,
    StageResults,
)
from contrastive_encoders.core.config_schema import as_mapping
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.progress import clock
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.core.shared_texts import learns, overlap_warnings, sum_overlaps
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.sharding import is_sharded
from contrastive_encoders.export.model_card import model_card
from contrastive_encoders.export.run_export import export_product
from contrastive_encoders.io.atomic import atomic_directory
from contrastive_encoders.io.checkpoint import link_checkpoint, load_checkpoint
from contrastive_encoders.io.installed_models import hub_name
from contrastive_encoders.io.item_scores import write_items
from contrastive_encoders.io.model_names import PRODUCTS
from contrastive_encoders.io.results import environment, read_results, write_results
from contrastive_encoders.reports.figure import RenderError
from contrastive_encoders.statistics.bootstrap import Scores
from contrastive_encoders.training.build import make_model
from contrastive_encoders.training.callbacks.checkpoints import BEST, keep_best_weights, keep_resumable
from contrastive_encoders.training.curve import Reference, draw_curve, is_alike
from contrastive_encoders.training.fit import FitResult
from contrastive_encoders.training.prepare import PreparedRun
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.run_verdict import in_words, items_of, items_of_all, verdict_of, verdict_of_all
from contrastive_encoders.training.teacher_comparison import compare_with_teacher, teacher_comparison_table

MAX_ROWS = 16  # rows of the final table up to which it shows all scores
MAX_CHARS = 100  # characters of a query, and of a retrieved text
log = logging.getLogger(__name__)


def export(prepared: PreparedRun, fitted: FitResult) -> tuple[Results, ItemScores | None]:
    """Write the encoder, and return the results of the run and the scores of single test items."""
    run, model, data = prepared.run, prepared.model, prepared.data
    results, items = collect_results(prepared, fitted), items_of(fitted)
    for logger in fitted.trainer.loggers[1:]:  # metrics.csv contains the learning curve only
        logger.log_metrics(results["scores"], step=results["best_step"])
    reads = min(model.encoder.longest, model.encoder.max_length) if isinstance(model, Objective) else None
    if verdict := verdict_of(run, results, items, fitted.score_callback.history, getattr(data, "yields", None), reads):
        results["verdict"] = verdict
    export_product(run.folder, _unsharded(run, model), results)
    return results, items


def finish(prepared: PreparedRun, results: Results, items: ItemScores | None, teacher_scores: Scores | None) -> None:
    """Compare the exported encoder with its teacher, and write the learning curve and finally results.json, whose
    presence marks the run as finished.

    Args:
        results: results of the run, as `export` returns them.
        items: scores of single test items.
        teacher_scores: scores of the run's teacher, if it is compared with the encoder.
    """
    run, folder = prepared.run, prepared.run.folder
    if teacher_scores is not None:
        results["teacher_comparison"] = compare_with_teacher(run, prepared.data, results, items, teacher_scores)
    curve = Reference(
        results["best_step"],
        results["scores"],
        results["intervals"],
        results.get("scores_before", {}),
        results.get("baselines", {}),
    )
    title = f"{results['objective']} on {Path(hub_name(results['backbone'])).name}: {folder.resolve().name}"
    try:
        draw_curve(folder / "metrics.csv", folder / "curve.png", monitor=run.monitor, against=curve, title=title)
    except (RenderError, ValueError) as error:  # ValueError: metrics.csv was edited by hand
        log.warning("Could not write %s: %s", folder / "curve.png", error)
    if not run.checkpoint.keep_all:
        keep_resumable(folder / "checkpoints")
    _write(run, results, items)


def _write(run: ResolvedRun, results: Results, items: ItemScores | None) -> None:
    """Write the scores of single items and results.json, and print the results."""
    if items:
        write_items(run.folder / ITEMS_FILE, items)
    write_results(run.folder / "results.json", results)
    if not run.quiet:
        closing_table(results, run.folder, run.next_steps)


def _unsharded(run: ResolvedRun, model: Any) -> Any:
    """Return the model with the unsharded weights of the best checkpoint, so that this process alone can export it. A
    model with sharded weights is built again for this.
    """
    if not is_sharded(model):
        return model
    best = load_checkpoint(run.folder / "checkpoints" / BEST)
    prompts = model.encoder.prompts if isinstance(model, Objective) else EncoderPrompts()
    teaching, model = getattr(model, "teaching", None), make_model(run)
    if teaching is not None:
        model.learn_from_teacher(teaching.width, run.seed)
    model.on_load_checkpoint(best)
    model.load_state_dict(best["state_dict"])
    if isinstance(model, Objective):
        model.encoder.prompts = prompts
    return model


def collect_results(prepared: PreparedRun, fitted: FitResult) -> Results:
    """Return the content of ``results.json``, except the verdict and the comparison with the teacher, for a run without
    stages or for a single stage.
    """
    run, model, data = prepared.run, prepared.model, prepared.data
    suite, scores = fitted.score_callback.suite, fitted.final.scores
    current, tested = environment(), suite.sentences() if learns(as_mapping(run.model)) else {}
    results = Results(
        version=RECORD_VERSION,
        objective=model.objective,
        backbone=prepared.backbone,
        recipe=run.with_values(backbone=prepared.backbone).recorded_keys(),
        scores=scores.values,
        intervals={name: list(interval) for name, interval in scores.intervals.items()},
        best_step=fitted.final.best_step,
        cost=fitted.telemetry.total,
        seeds=[run.seed],
        versions=current["versions"],
        device=current["device"],
        processes=fitted.trainer.world_size,
        git_commit=current["git_commit"],
        data=[data.manifest() | ({"license": run.data_license} if run.data_license else {})],
        overlap={task: data.count_overlap(sentences) for task, sentences in tested.items()},
    )
    optional = {
        "scores_before": fitted.score_callback.scores_before,
        "scores_at_start": fitted.score_callback.scores_at_start,
        "changed_keys": fitted.changes,
        "resumed": fitted.resumed,
        "averages": scores.members,
        "baselines": suite.baselines(),
        "corpora": suite.corpora(),
        "changes": suite.changes(fitted.score_callback.found_before, scores.first_documents),
        "resolved_settings": dict(model.resolved_settings),
        "row_count_mismatches": suite.row_count_mismatches,
        "embeddings": model.encoder.embedding_info if isinstance(model, Objective) else None,
        "prompts": model.encoder.prompts.to_json() if isinstance(model, Objective) else None,
    }
    return cast(Results, results | {name: value for name, value in optional.items() if value})


def finish_stages(run: ResolvedRun) -> None:
    """If all stages are finished, write the encoder of the last stage and the results of all stages.

    As for a single training run, results.json is written last.
    """
    stages = run.all_stages
    if not all(stage.is_finished for stage in stages):
        return
    folder, folders = run.folder, [stage.folder for stage in stages]
    parts = {stage.stage_name: read_results(stage.folder / "results.json") for stage in stages}
    results, last = (
        merge_stage_results(parts, backbone=str(stages[0].backbone)),
        parts[stages[-1].stage_name].get("verdict"),
    )
    items = items_of_all(folders)
    if verdict := verdict_of_all(results, last, items):
        results["verdict"] = verdict
    for name in PRODUCTS:
        if (folders[-1] / name).is_dir():
            with atomic_directory(folder / name) as part:
                shutil.copytree(folders[-1] / name, part, dirs_exist_ok=True)
    if (folder / "encoder").is_dir():
        (folder / "encoder" / "README.md").write_text(model_card(results), encoding="utf-8")
    (folder / "checkpoints").mkdir(exist_ok=True)
    link_checkpoint(folders[-1] / "checkpoints" / BEST, folder / "checkpoints" / BEST)  # so that backbone=FOLDER works
    if not run.checkpoint.keep_all:
        for one in folders[:-1]:
            keep_best_weights(one / "checkpoints")
    _write(run, results, items)


def merge_stage_results(parts: Mapping[str, Results], backbone: str) -> Results:
    """Return the content of ``results.json`` for a run with stages: the results of the last stage, with the backbone of
    the first stage.
    """
    stages = list(parts.values())
    results = stages[-1].copy()
    results["backbone"] = backbone
    results["cost"] = total_cost([stage["cost"] for stage in stages])
    results["data"] = [manifest for stage in stages for manifest in stage["data"]]
    results["overlap"] = sum_overlaps([stage["overlap"] for stage in stages])
    results.pop("changes", None)
    results.pop("verdict", None)  # about the last stage alone
    first: Any = stages[0]
    merged: Any = results
    for key in ("scores_before", "scores_at_start", "changed_keys"):  # of the encoder that the first stage started from
        merged.pop(key, None)
        if key in first:
            merged[key] = first[key]
    results["stages"] = {
        name: StageResults(
            place=place,
            objective=stage["objective"],
            backbone=stage["backbone"],
            scores=stage["scores"],
            best_step=stage["best_step"],
            cost=stage["cost"],
            overlap=stage["overlap"],
        )
        for place, (name, stage) in enumerate(parts.items(), start=1)
    }
    return results


def total_cost(parts: Sequence[RunCost]) -> RunCost:
    """Return the total cost of all stages. Costs are summed; the peak memory is the maximum over the stages."""
    costs: list[Any] = list(parts)
    names = dict.fromkeys(name for part in costs for name in part)
    sums: Any = {name: sum(part.get(name, 0) for part in costs) for name in names}
    return cast(RunCost, sums | {"peak_memory_bytes": max(part["peak_memory_bytes"] for part in parts)})


def scores_table(
    before: Mapping[str, float],
    after: Mapping[str, float],
    baselines: Mapping[str, float] | None = None,
    at_start: Mapping[str, float] | None = None,
) -> Table:
    """Return the table of scores (0 to 100) that is printed after training. Missing scores are left blank.

    ``at_start`` contains the scores of the untrained encoder if settings of the run made it differ from its backbone. A
    baseline is in the row of the score with the same name, or with the same name without the protocol; otherwise it has
    its own row.
    """
    heading = "TF-IDF" if all(ScoreName.parse(name).protocol == "tfidf" for name in baselines or {}) else "baseline"
    baselines = {_row_of(name, after): value for name, value in (baselines or {}).items()}
    table = Table(title="Scores", title_justify="left")
    table.add_column("task / protocol / metric")
    columns = {"before": before, "at start": at_start, "after": True, "change": before, heading: baselines}
    for name in (name for name, shown in columns.items() if shown):
        table.add_column(name, justify="right")
    for name in sorted({*before, *after, *baselines}):
        first, last = before.get(name), after.get(name)
        change = "" if first is None or last is None else f"{last - first:+.2f}"
        cells = {
            "before": _number(first),
            "at start": _number((at_start or {}).get(name)),
            "after": _number(last),
            "change": change,
            heading: _number(baselines.get(name)),
        }
        table.add_row(name, *(cell for column, cell in cells.items() if columns[column]))
    return table


def _row_of(baseline: str, scores: Iterable[str]) -> str:
    same = [name for name in scores if is_alike(baseline, name)]
    return same[0] if len(same) == 1 and baseline not in scores else baseline


def shown_names(results: Results, names: Sequence[str]) -> list[str]:
    """Return the names of the scores to print: all scores if there are few, otherwise the averages, the monitored
    score, and the scores with the same task and metric but another protocol.
    """
    monitor = results["recipe"].get("monitor") or ""
    averages = results.get("averages", {})
    shown = [name for name in names if name in averages or name == monitor or is_alike(name, monitor)]
    return list(names) if len(names) <= MAX_ROWS or not shown else shown


def closing_table(
    results: Results, folder: Path, next_steps: str | None = None, console: Console | None = None
) -> None:
    """Print the results of a run, their location, and suggested next steps. It is also printed without a terminal, for
    the log of a job.
    """
    console = console if console is not None else Console()
    print_line = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    before, baselines = results.get("scores_before", {}), results.get("baselines", {})
    if all_scores := {**before, **results["scores"], **baselines}:
        shown = shown_names(results, sorted(all_scores))
        columns = (before, results["scores"], baselines, results.get("scores_at_start") or {})
        console.print(scores_table(*({name: scores[name] for name in shown if name in scores} for scores in columns)))
        if more := len(all_scores) - len(shown):
            print_line(f"{count_of(more, 'more score')}: see {folder / 'results.json'}")
    if comparison := results.get("teacher_comparison"):
        console.print(teacher_comparison_table(comparison, results))
    if verdict := results.get("verdict"):
        print_line(in_words(verdict))
    for warning in overlap_warnings(results["overlap"]):
        print_line(f"Warning: {warning}")
    for task, changes in results.get("changes", {}).items():
        print_line(format_changes(task, changes))
    spent = results["cost"]
    print_line(
        f"Training: {count_of(spent['steps'], 'step')}, {count_of(spent['examples'], 'example')}, "
        f"{count_of(spent['real_tokens'], 'token')} in {clock(spent['wall_seconds'])}; "
        f"best step {results['best_step']:,}. All files are in {folder}"
    )
    if line := disk_usage(folder):
        print_line(line)
    if next_steps:
        print_line(f"\n{next_steps.rstrip()}")


def disk_usage(folder: Path) -> str:
    """Return a sentence that states the size of a run directory and how to reduce it; empty if there are no
    checkpoints.
    """
    places = sorted(folder.glob("**/checkpoints"))
    if not places:
        return ""
    remove = f"rm -r {' '.join(shlex.quote(str(place)) for place in places)}"
    return (
        f"The directory takes {size_of(folder)}, of which checkpoints take {size_of(*places)}. To delete them (the run "
        f"can then no longer be resumed): {remove}. To keep more checkpoints: checkpoint.keep_all=true."
    )


def size_of(*folders: Path) -> str:
    """Return the total size of all files in these directories as text, such as ``3.2 GB``. A file with several hard
    links counts once.
    """
    found = [path.stat() for folder in folders for path in folder.rglob("*") if path.is_file()]
    size = sum({one.st_ino: one.st_size for one in found}.values())
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def format_changes(task: str, changes: Changes) -> str:
    """Describe how training changed the top-ranked texts of queries, with a few examples, one line per text."""
    after = changes["correct_before"] + changes["gained"] - changes["lost"]
    lines = [
        f"{task}: the correct text ranked first for {changes['correct_before']} of {changes['queries']} queries before "
        f"training and for {after} after training: {changes['gained']} gained, {changes['lost']} lost."
    ]
    if changes["examples"]:
        number = len(changes["examples"])
        examples = "A random example" if number == 1 else f"{number} random examples"
        lines.append(f"{examples} of these, with the text that ranked first:")
    for change in changes["examples"]:
        lines.append(f"  {_beginning(change['query'])}")
        for when, text in (("before", change["before"]), ("after", change["after"])):
            mark = "right" if change["right"] == when else "wrong"
            lines.append(f"    {when:6} {mark}  {_beginning(text)}")
    return "\n".join(lines)


def _beginning(text: str) -> str:
    """Return the beginning of a text, joined to one line. The text is truncated at a space if there is one, since not
    all scripts use spaces.
    """
    line = " ".join(text.split())
    if len(line) <= MAX_CHARS:
        return line
    words = line[: MAX_CHARS + 1].rpartition(" ")[0]
    return f"{words if len(words) > MAX_CHARS // 2 else line[:MAX_CHARS]} ..."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
