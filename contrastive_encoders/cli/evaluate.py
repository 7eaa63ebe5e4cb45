"""Evaluate encoders, or list, check, or download evaluation data: ``contrastive-encoders evaluate``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core.runtime.module_imports import module_imports
from contrastive_encoders.core.runtime.process_group import find_ranks, init_process_group, local_rank
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig

if TYPE_CHECKING:  # torch takes seconds to import, so it is not imported before --help is answered
    from contrastive_encoders.core import Results
    from contrastive_encoders.evaluation.several_encoders import EncoderScores


def run(cfg: DictConfig, _: Sequence[str] = ()) -> int:
    """Score encoders or manage the evaluation tables; return the exit code."""
    config = config_of(cfg, EvaluateConfig)
    config.check_keys()
    return _score(config) if config.action == "score" else _manage_data(config)


def _score(config: EvaluateConfig) -> int:
    """Load the encoders, score them, and print and write the scores. Only rank 0 prints and writes."""
    with module_imports():
        from contrastive_encoders.evaluation.evaluate import score, score_several, write_scores

    rank, world = find_ranks()
    if world > 1:
        _init_process_group()
    if config.encoder is not None and not isinstance(config.encoder, str) and len(config.encoder) == 1:
        config = replace(config, encoder=config.encoder[0])
    if isinstance(config.encoder, str):
        results, scores = score(config)
        if rank == 0:
            _print_scores(config, results)
            if config.output:
                write_scores(Path(config.output), results, scores)
                _print_files(config, [Path(config.output)])
    else:
        scored, files = score_several(config)
        if rank == 0:
            _print_differences(config, scored, files)
    return 0


def _print_scores(config: EvaluateConfig, results: "Results") -> None:
    from rich.console import Console

    from contrastive_encoders.evaluation.paper_tables import terminal_parts
    from contrastive_encoders.reports.tables import to_terminal_table

    console = Console()
    for part in () if config.quiet else terminal_parts(results):
        shown = part if isinstance(part, str) else to_terminal_table(part)
        console.print(shown, highlight=False, soft_wrap=isinstance(part, str))


def _print_differences(config: EvaluateConfig, scored: "Sequence[EncoderScores]", files: Sequence[Path]) -> None:
    """Print the table that compares several encoders, and write it next to their score files."""
    from rich.console import Console

    from contrastive_encoders.evaluation.several_encoders import differences, markdown
    from contrastive_encoders.io.atomic import atomic_write
    from contrastive_encoders.reports.tables import split_to_fit, to_terminal_table

    table, console = differences(scored), Console()
    if not config.quiet:
        for part in split_to_fit(table, console.width):
            console.print(to_terminal_table(part, console.width))
        console.print(table.note, highlight=False, markup=False, soft_wrap=True)
    if config.output and files:
        atomic_write(Path(config.output).with_suffix(".md"), markdown(scored, table))
        _print_files(config, files)


def _print_files(config: EvaluateConfig, files: Sequence[Path]) -> None:
    from rich.console import Console

    if not config.quiet:
        page = Path(str(config.output)).with_suffix(".md").name
        line = f"Wrote {', '.join(map(str, files))} and {page}."
        Console().print(line, highlight=False, markup=False, soft_wrap=True)


def _manage_data(config: EvaluateConfig) -> int:
    """List, check, or download the tables; return exit code 2 if something is missing or damaged."""
    from rich.console import Console

    from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
    from contrastive_encoders.evaluation.download.check import check, custom_task_report
    from contrastive_encoders.evaluation.download.fetch import fetch
    from contrastive_encoders.evaluation.download.registry import DataStatus, listing

    reports = list[DataStatus]()
    if own := resolve_custom_tasks(config.custom_tasks):
        reports.append(custom_task_report(own, config if config.action == "check" else None))
    if config.data_root is not None and (config.suites or not own):
        root = Path(config.data_root)
        if config.action == "fetch":
            reports.append(fetch(root, config.suites, config.download_mirror, quiet=config.quiet))
        else:
            reports.append((check if config.action == "check" else listing)(root, config.suites))
    console = Console()
    for part in (part for report in reports for part in report.render()):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    return 0 if all(report.ok for report in reports) else 2


def _init_process_group() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")


main = command_line("evaluate", run, EvaluateConfig)
