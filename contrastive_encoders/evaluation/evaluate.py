"""Score encoders: the function `evaluate`, and the functions that ``contrastive-encoders evaluate`` calls."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from contrastive_encoders.core import RECORD_VERSION, InputError, Results, RunCost, without_secrets
from contrastive_encoders.core.config_schema import as_mapping, build, plain_value
from contrastive_encoders.core.key_suggestions import check_known_keys
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.core.runtime.exit_codes import as_exceptions
from contrastive_encoders.core.runtime.log_output import logs_shown
from contrastive_encoders.core.runtime.process_group import find_ranks, group_ranks, launcher_info
from contrastive_encoders.core.shared_texts import overlap_warnings
from contrastive_encoders.encoders.cross_encoder import load_reranker
from contrastive_encoders.encoders.loading.load import load_configured
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder, encoder_name
from contrastive_encoders.evaluation.catalog import TaskSelection, load_tasks
from contrastive_encoders.evaluation.custom_tasks.resolve import CustomTaskEntry, resolve_custom_tasks
from contrastive_encoders.evaluation.download.registry import manifest
from contrastive_encoders.evaluation.embedding_pool import EmbeddingCache
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.mteb_suite import check_data, choose_tasks, run_tasks
from contrastive_encoders.evaluation.paper_tables import markdown
from contrastive_encoders.evaluation.reranking import RerankingScorer, retrieval_tasks
from contrastive_encoders.evaluation.several_encoders import EncoderScores, short_names
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.trained_texts import trained_texts
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.item_scores import items_path, write_items
from contrastive_encoders.io.manifest import CorruptFileError, read_record
from contrastive_encoders.io.output_directory import check_output_file, check_output_folder
from contrastive_encoders.io.results import environment, peak_memory_bytes, write_results
from contrastive_encoders.statistics.bootstrap import Scores

log = logging.getLogger(__name__)

COMMAND_KEYS = ("action", "download_mirror")  # keys that `evaluate` does not use
MAX_FILES = 3  # maximum number of files in a warning


def evaluate(
    encoder: str | Path | LoadedEncoder,
    *,
    suite: str | Sequence[str] = "sts",
    custom_tasks: str | Path | Sequence[str | Path | Mapping[str, Any]] | Mapping[str, Any] | None = None,
    data_root: str | Path | None = None,
    **keys: Any,
) -> Results:
    """Score an encoder in this process, as ``contrastive-encoders evaluate`` does.

    Args:
        encoder: an encoder that `train` or `load_encoder` returned; the directory of a run or of a
            sentence-transformers or transformers model; a checkpoint, a hub id, or a file of word vectors.
        suite: name of a suite or task, or several; ``"mteb"`` uses the mteb library, with names of its tasks as
            ``mteb_tasks``. If ``data_root`` is None, only ``custom_tasks`` are evaluated.
        custom_tasks: your own tasks: files, directories in BEIR's layout, YAML files, or a mapping from names to keys.
        data_root: directory of the suites' tables.
        **keys: other keys of ``contrastive-encoders evaluate``, such as ``max_length=64``. ``output="scores.json"``
            also writes the files of the command.

    Returns:
        The results. ``scores`` maps names, such as ``"sts12/cosine/spearman"``, to values from 0 to 100 (correlations
        from -100); ``intervals`` maps the same names to 95% confidence intervals.

    Raises:
        InputError: a key, a value, or a file is invalid, or a key such as ``pooling`` is set for an encoder that is
            already loaded.
        OutputError: the disk is full or cannot be written to.

    Example:
        >>> from pathlib import Path
        >>> from contrastive_encoders import evaluate, train
        >>> rows = [(f"What is thing {n}?", f"Thing {n} is a boat.") for n in range(16)]
        >>> encoder = train(rows, backbone="tiny", batch_size=8, max_steps=2, quiet=True).encoder
        >>> lines = ["query,document", *(f"{query},{document}" for query, document in rows)]
        >>> _ = Path("questions.csv").write_text("\\n".join(lines))
        >>> results = evaluate(encoder, custom_tasks="questions.csv", quiet=True)
        >>> 0 <= results["scores"]["questions/cosine/ndcg@10"] <= 100
        True
    """
    known = [one.name for one in fields(EvaluateConfig) if one.name not in COMMAND_KEYS]
    check_known_keys(keys, known, in_python=True)
    if launcher_info():
        raise InputError(
            key="evaluate",
            expected="a single process when called from Python",
            hint="To use several processes, start the command with torchrun: torchrun -m contrastive_encoders "
            "evaluate.",
        )
    loaded = encoder if isinstance(encoder, LoadedEncoder) else None
    named = {"encoder": encoder_name(encoder), "suite": suite, "custom_tasks": custom_tasks, "data_root": data_root}
    config = build(EvaluateConfig, plain_value({**keys, **named}))
    config.check_keys()
    with as_exceptions(), logs_shown(quiet=config.quiet):
        results, scores = score(config, loaded)
        if config.output:
            write_scores(Path(config.output), results, scores)
    return results


def score(config: EvaluateConfig, encoder: LoadedEncoder | None = None) -> tuple[Results, Scores]:
    """Score the single encoder of a configuration on all ranks.

    Args:
        config: configuration of the evaluation.
        encoder: the encoder, if it is already loaded.

    Raises:
        InputError: the encoder, a task, or the output cannot be used.
    """
    return _score_by_mteb(config, encoder) if config.is_mteb else _score_suites(config, encoder)


def score_several(config: EvaluateConfig) -> tuple[list[EncoderScores], list[Path]]:
    """Score several encoders, one after the other, and write each encoder's result files as soon as it is scored.

    Returns:
        The scores of each encoder, and the written files (none if ``output`` is not set).

    Raises:
        InputError: an encoder, a task, or an output cannot be used; all encoders are checked before the first is
            scored.
    """
    assert config.encoder is not None
    assert not isinstance(config.encoder, str)
    names = short_names(config.encoder)
    files = check_outputs(Path(config.output), names) if config.output else {}
    configs = {
        name: replace(config, encoder=encoder, output=str(files[name]) if files else None)
        for name, encoder in zip(names, config.encoder, strict=True)
    }
    for encoder_config in configs.values():
        load_configured(str(encoder_config.encoder), encoder_config)
    scored = list[EncoderScores]()
    for name, encoder_config in configs.items():
        results, scores = score(encoder_config)
        if find_ranks().rank == 0 and files:
            write_scores(files[name], results, scores)
        scored.append(EncoderScores(name, results, scores.items))
    return scored, list(files.values())


def write_scores(path: Path, results: Results, scores: Scores) -> None:
    """Write the results as JSON and, next to them, the scores of single test items and a Markdown table."""
    if scores.items:
        write_items(items_path(path), scores.items)
    write_results(path, results)
    atomic_write(path.with_suffix(".md"), markdown(results))


def check_output(path: Path) -> None:
    """Check that results can be written to ``path``, which must not exist or must contain earlier results.

    Raises:
        InputError: the path contains something else, or is not writable.
    """
    check_output_file(path)
    try:
        has_scores = {"version", "scores"} <= read_record(path).keys()
    except (OSError, CorruptFileError):
        has_scores = False
    for file in (path, path.with_suffix(".md")):
        if not has_scores and file.exists() and (file.is_dir() or file.stat().st_size):
            raise InputError(
                key="output",
                value=str(path),
                expected=f"a new file, or a file with earlier scores, but {file} exists and {path.name} contains no "
                "scores",
                hint=f"Choose a different file, or move {file}.",
            )


def check_outputs(output: Path, names: Sequence[str]) -> dict[str, Path]:
    """Check that the results of each encoder and the page that compares the encoders can be written, and return the
    paths of the results.

    Only earlier results are replaced.
    """
    files = {name: output.with_name(f"{output.stem}-{name}.json") for name in names}
    for file in files.values():
        check_output(file)
    page = output.with_suffix(".md")
    if page.exists() and not any(file.exists() for file in files.values()):
        raise InputError(
            key="output",
            value=output,
            expected=f"a path whose comparison page {page} does not exist yet",
            hint=f"Choose a different file, or move {page}.",
        )
    return files


def _score_suites(config: EvaluateConfig, encoder: LoadedEncoder | None) -> tuple[Results, Scores]:
    start_time = time.time()
    custom = resolve_custom_tasks(config.custom_tasks)
    selection = TaskSelection([], {}, {})
    if config.data_root is not None and (config.suites or not custom):
        selection = load_tasks(config.data_root, config.suites, config)
    suite = Suite([*(task for one in custom for task in one.read(config)), *selection.tasks])
    if not len(suite):
        raise InputError(key="custom_tasks", value=config.custom_tasks, expected="at least one task")
    reranked = retrieval_tasks(suite, f"reranker={config.reranker}") if config.reranker else []
    encoder = load_configured(str(config.encoder), config, encoder)
    reranker = load_reranker(config.reranker, device=device_of(config.device)) if config.reranker else None
    if config.output:
        check_output(Path(config.output))  # before the scoring, which may take hours
    if config.cache_dir:
        check_output_folder("cache_dir", Path(config.cache_dir))
    # A reranker embeds the texts again
    store = EmbeddingCache(config.cache_dir, encoder.fingerprint) if config.cache_dir or reranker is not None else None
    report = None if config.quiet else _report
    scores = suite.run(encoder, intervals=config.intervals, store=store, report=report, find_first=False)
    if reranker is not None:
        embedder = encoder
        reranking = RerankingScorer(reranked, lambda: embedder, config.rerank_top, store)
        autocast = torch.bfloat16 if config.precision == "bf16" else None
        scores = scores.with_others(
            reranking.score(reranker, intervals=config.intervals, autocast=autocast, progress=not config.quiet)
        )
    results = _results(config, scores, selection, encoder, time.time() - start_time, custom)
    if find_ranks().rank == 0:
        found = trained_texts(str(config.encoder), suite.sentences())
        if found.overlap:
            results["overlap"] = found.overlap
        files = ", ".join(found.files[:MAX_FILES]) + ", ..." * (len(found.files) > MAX_FILES)
        for warning in overlap_warnings(found.overlap, files):
            log.warning("%s: %s", config.encoder, warning)
    return results, scores


def _score_by_mteb(config: EvaluateConfig, encoder: LoadedEncoder | None) -> tuple[Results, Scores]:
    """Score an encoder on tasks of the mteb library, in one process and without intervals."""
    names: Any = [config.mteb_tasks] if isinstance(config.mteb_tasks, str) else list(config.mteb_tasks or [])
    tasks = choose_tasks(names)
    start_time, encoder = time.time(), load_configured(str(config.encoder), config, encoder)
    check_data(tasks)
    details = Path(config.output).with_suffix(".mteb") if config.output else None
    if config.output and details is not None:
        check_output(Path(config.output))
        check_output_folder("output", details)
    scores = Scores(run_tasks(encoder, tasks, results=details), {}, {})
    return _results(config, scores, TaskSelection([], {}, {}), encoder, time.time() - start_time), scores


def _report(task: str, seconds: float) -> None:
    log.info("%s scored in %.1f s", task, seconds)


def _results(
    config: EvaluateConfig,
    scores: Scores,
    selection: TaskSelection,
    encoder: LoadedEncoder,
    seconds: float,
    own: Sequence[CustomTaskEntry] = (),
) -> Results:
    runtime = environment()
    results = Results(
        version=RECORD_VERSION,
        objective=str(encoder.description.get("objective", "")),
        backbone=str(config.encoder),
        recipe={**without_secrets(as_mapping(config)), "encoder_description": encoder.description},
        scores=scores.values,
        intervals=scores.intervals,
        best_step=0,
        cost=RunCost(
            steps=0,
            examples=0,
            real_tokens=0,
            padded_tokens=0,
            wall_seconds=seconds,
            peak_memory_bytes=peak_memory_bytes(),
        ),
        seeds=[config.seed],
        versions=runtime["versions"],
        device=runtime["device"],
        processes=group_ranks().world,
        git_commit=runtime["git_commit"],
        data=[
            *(
                [manifest(Path(str(config.data_root)), [task.name for task in selection.tasks])]
                if selection.tasks
                else []
            ),
            *(one.manifest() for one in own),
        ],
        averages=scores.members,
        skipped=selection.skipped,
    )
    if selection.row_count_mismatches:
        results["row_count_mismatches"] = selection.row_count_mismatches
    return results
