"""Score an encoder or manage evaluation data: ``contrastive-encoders evaluate encoder=... data_root=...``."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.cli.hydra_main import command_line
from contrastive_encoders.core import RECORD_VERSION, InputError, Results, Spent, without_secrets
from contrastive_encoders.io.output_directory import check_output_file, check_output_folder
from contrastive_encoders.runtime.devices import device_of
from contrastive_encoders.runtime.process_group import find_ranks, join_group, local_rank

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder
    from contrastive_encoders.evaluation.catalog import Chosen
    from contrastive_encoders.evaluation.custom_tasks.resolve import Own
    from contrastive_encoders.evaluation.several_encoders import Scored
    from contrastive_encoders.evaluation.suite import Suite
    from contrastive_encoders.evaluation.task import Options
    from contrastive_encoders.statistics.bootstrap import Scores

log = logging.getLogger(__name__)

MTEB = "mteb"
MAX_FILES = 3  # that a warning names


class Keys(TypedDict):
    action: Literal["score", "list", "check", "fetch"]
    encoder: str | Sequence[str] | None
    reranker: str | None
    rerank_top: int
    pooling: str | None
    prompt: str | None
    prompt_suffix: str | None
    max_length: int | None
    attention: str | None
    truncate: int | None
    precision: Literal["fp32", "bf16"]
    device: str
    suite: str | Sequence[str]
    tasks: str | Sequence[str | Mapping] | Mapping | None
    data_root: str | None
    protocol: Literal["default", "fast", "sklearn"]
    nhid: int
    seed: int
    alignment_above: float
    askubuntu_text: Literal["title", "body", "title+body"]
    allow_targets: Sequence[str]
    intervals: bool
    name: str | None
    output: str | None
    cache_dir: str | None
    quiet: bool
    source: str | None


def run(cfg: DictConfig, _: Sequence[str] = ()) -> int:
    if MTEB in (suites := [cfg.suite] if isinstance(cfg.suite, str) else list(cfg.suite)):
        check_mteb(cfg.action, suites)
        return score_by_mteb(cfg)
    if cfg.data_root is None and (cfg.tasks is None or cfg.action == "fetch"):
        raise InputError(
            "data_root is not set: it is the folder of the evaluation tables. Say data_root=FOLDER; or tasks=FILE for "
            "texts of your own."
        )
    return score(cfg) if cfg.action == "score" else look_after_data(cfg)


def score(cfg: DictConfig) -> int:
    """Load, score, print, write. Only rank 0 prints and writes."""
    check_names(cfg)
    with process_group() as rank:
        if not isinstance(cfg.encoder, str) and len(cfg.encoder) == 1:
            cfg.encoder = cfg.encoder[0]
        if isinstance(cfg.encoder, str):
            results, found = score_encoder(cfg)
            if rank == 0:
                leave(cfg, results, found)
        else:
            score_several(cfg, rank)
    return 0


def score_several(cfg: DictConfig, rank: int) -> None:
    """Score one encoder after the other, each with a file of its own, and show them in one table."""
    from contrastive_encoders.evaluation.several_encoders import Scored, names_of

    encoders = list(cfg.encoder)
    names = names_of(encoders)
    files = check_outputs(Path(cfg.output), names) if cfg.output else {}
    configs = dict[str, DictConfig]()
    for name, encoder in zip(names, encoders, strict=True):
        own = OmegaConf.merge(cfg, {"encoder": encoder, "output": str(files[name]) if files else None})
        assert isinstance(own, DictConfig)
        configs[name] = own
        load(own)  # what is wrong with any of them shows before the first one is scored
    scored = list[Scored]()
    for name, own in configs.items():
        results, found = score_encoder(own)
        if rank == 0 and files:  # at once: the next encoder may fail
            write(files[name], results, found)
        scored.append(Scored(name, results, found.items))
    if rank == 0:
        leave_several(cfg, scored, list(files.values()))


def check_outputs(output: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each encoder, beside the page of all; as for one encoder, only earlier ones are replaced."""
    files = {name: output.with_name(f"{output.stem}-{name}.json") for name in names}
    for file in files.values():
        check_output(file)
    page = output.with_suffix(".md")
    if page.exists() and not any(file.exists() for file in files.values()):
        raise InputError(
            key="output", value=output, expected="a name that is free", hint=f"Name another file, or move {page} away."
        )
    return files


def leave_several(cfg: DictConfig, scored: "Sequence[Scored]", files: Sequence[Path]) -> None:
    """Print the table of several encoders, and write it beside their files."""
    from rich.console import Console

    from contrastive_encoders.evaluation.several_encoders import differences, markdown
    from contrastive_encoders.io.atomic import write_whole
    from contrastive_encoders.reports.tables import fitting, on_terminal

    table, console = differences(scored), Console()
    if not cfg.quiet:
        for part in fitting(table, console.width):
            console.print(on_terminal(part, console.width))
        console.print(table.note, highlight=False, markup=False, soft_wrap=True)
    if files:
        page = Path(cfg.output).with_suffix(".md")
        write_whole(page, markdown(scored, table))
        if not cfg.quiet:
            said = f"{', '.join(map(str, files))} and {page.name} are written."
            console.print(said, highlight=False, markup=False, soft_wrap=True)


def score_encoder(cfg: DictConfig) -> "tuple[Results, Scores]":
    """Score the encoder of ``cfg`` on all ranks."""
    began = time.time()
    import torch

    from contrastive_encoders.evaluation.catalog import Chosen, load_tasks
    from contrastive_encoders.evaluation.embedding_pool import HeldVectors, VectorStore
    from contrastive_encoders.evaluation.reranking import Reranking, retrieval_tasks
    from contrastive_encoders.evaluation.suite import Suite

    own = own_of(cfg)
    names = [cfg.suite] if isinstance(cfg.suite, str) else list(cfg.suite)
    of_tables = cfg.data_root is not None and (names or not own)
    chosen = load_tasks(cfg.data_root, names, options_of(cfg)) if of_tables else Chosen([], {}, {})
    suite = Suite([*(task for one in own for task in one.read(options_of(cfg))), *chosen.tasks])
    reranked = retrieval_tasks(suite, f"reranker={cfg.reranker}") if cfg.reranker else []
    encoder = load(cfg)
    reranker = None
    if cfg.reranker:
        from contrastive_encoders.encoders.cross_encoder import load_reranker

        reranker = load_reranker(cfg.reranker, device=device_of(cfg.device))
    if cfg.output:
        check_output(Path(cfg.output))  # not after hours
    if cfg.cache_dir:
        check_output_folder("cache_dir", Path(cfg.cache_dir))
    in_memory = HeldVectors() if reranker is not None else None  # no text is embedded twice
    store = VectorStore(cfg.cache_dir, encoder.fingerprint) if cfg.cache_dir else in_memory
    report = None if cfg.quiet else say
    found = suite.run(encoder, intervals=cfg.intervals, store=store, report=report, find_first=False)
    if reranker is not None:
        reranking = Reranking(reranked, lambda: encoder, cfg.rerank_top, store)
        autocast = torch.bfloat16 if cfg.precision == "bf16" else None
        found = found.with_others(
            reranking.score(reranker, intervals=cfg.intervals, autocast=autocast, progress=not cfg.quiet)
        )
    warn_of_training_texts(cfg.encoder, suite)
    return collect(cfg, found, chosen, encoder.description, time.time() - began, own), found


def warn_of_training_texts(encoder: str, suite: "Suite") -> None:
    """Log the tasks whose texts are in the training data of the encoder, if its run is known."""
    from contrastive_encoders.evaluation.trained_texts import trained_texts

    if find_ranks().rank:
        return
    for one in trained_texts(encoder, suite.sentences()):
        more = ", ..." if len(one.files) > MAX_FILES else ""
        files = f" ({', '.join(one.files[:MAX_FILES])}{more})" if one.files else ""
        log.warning(
            "%s: %s of %s texts of %s are in the data that it was trained on%s. Score texts that it has not seen.",
            *(encoder, f"{one.found:,}", f"{one.checked:,}", one.task, files),
        )


def own_of(cfg: DictConfig) -> "list[Own]":
    from contrastive_encoders.evaluation.custom_tasks.resolve import own_tasks

    tasks: Any = OmegaConf.to_container(cfg.tasks) if OmegaConf.is_config(cfg.tasks) else cfg.tasks
    return own_tasks(tasks)


def check_mteb(action: str, suites: Sequence[str]) -> None:
    """Check that suite=mteb stands alone, in one process, and only scores."""
    if len(suites) > 1:
        others = ",".join(map(str, suites))
        raise InputError(f"suite=[{others}]: mteb stands alone. Say suite=mteb in a command of its own.")
    if action != "score":
        raise InputError(
            f"action={action}: looks after the tables of our suites, and suite=mteb keeps its data in the hub's cache. "
            "Leave action out, or choose another suite."
        )
    if (processes := find_ranks().world) != 1:
        raise InputError(f"suite=mteb runs in one process, got {processes}. Start it without torchrun.")


def score_by_mteb(cfg: DictConfig) -> int:
    """Score the mteb library's tasks, in one process and without intervals."""
    if cfg.reranker is not None:
        raise InputError(key="reranker", value=cfg.reranker, expected="null, since suite=mteb scores encoders alone")
    from contrastive_encoders.evaluation.catalog import Chosen
    from contrastive_encoders.evaluation.mteb_suite import check_data, choose_tasks, run_tasks
    from contrastive_encoders.statistics.bootstrap import Scores

    check_names(cfg)
    if not isinstance(cfg.encoder, str):
        raise InputError(
            key="encoder",
            value=f"[{','.join(cfg.encoder)}]",
            expected="one encoder with suite=mteb",
            hint="Start a command for each of them.",
        )
    tasks = choose_tasks([cfg.tasks] if isinstance(cfg.tasks, str) else list(cfg.tasks or []))
    began, encoder = time.time(), load(cfg)
    check_data(tasks)
    details = Path(cfg.output).with_suffix(".mteb") if cfg.output else None
    if details is not None:
        check_output(Path(cfg.output))
        check_output_folder("output", details)
    scores = run_tasks(encoder, tasks, results=details)
    found = Scores(scores, {}, {})
    leave(cfg, collect(cfg, found, Chosen([], {}, {}), encoder.description, time.time() - began), found)
    return 0


def check_names(cfg: DictConfig) -> None:
    if not cfg.encoder:
        raise InputError(
            "encoder is not set: a run folder, a model folder, a hub id or a word-vector file; say encoder=..."
        )
    if cfg.rerank_top < 1:
        raise InputError(f"rerank_top={cfg.rerank_top}: wanted 1 or more documents; 100 is usual.")
    if cfg.output is not None and not cfg.output.endswith(".json"):
        raise InputError(
            f"output={cfg.output}: wanted a name that ends in .json; a Markdown table is written beside it."
        )


def check_output(path: Path) -> None:
    """Check that the results can be written, in the place of earlier ones alone."""
    from contrastive_encoders.io.manifest import Damaged, read_record

    check_output_file(path)
    try:
        earlier = {"version", "scores"} <= read_record(path).keys()
    except (OSError, Damaged):
        earlier = False
    for there in (path, path.with_suffix(".md")):
        if not earlier and there.exists() and (there.is_dir() or there.stat().st_size):
            raise InputError(
                f"output={path}: {there} is there already, and {path.name} holds no scores of ours, which alone are "
                "replaced. Name another file, or move that away."
            )


def load(cfg: DictConfig) -> "LoadedEncoder":
    from contrastive_encoders.encoders import load_encoder

    keys = ("pooling", "prompt", "prompt_suffix", "max_length", "attention", "truncate", "precision")
    return load_encoder(cfg.encoder, **{key: cfg[key] for key in keys}, device=device_of(cfg.device))


def leave(cfg: DictConfig, results: Results, found: "Scores") -> None:
    """The tables, on the terminal and beside the JSON."""
    from rich.console import Console

    from contrastive_encoders.evaluation.paper_tables import terminal
    from contrastive_encoders.reports.tables import on_terminal

    console = Console()
    if not cfg.quiet:
        for part in terminal(results):
            console.print(
                part if isinstance(part, str) else on_terminal(part), highlight=False, soft_wrap=isinstance(part, str)
            )
    if cfg.output:
        path = Path(cfg.output)
        write(path, results, found)
        if not cfg.quiet:
            said = f"{path} and {path.with_suffix('.md').name} are written."
            console.print(said, highlight=False, soft_wrap=True)


def write(path: Path, results: Results, found: "Scores") -> None:
    """Write the results as JSON, the scores of single test items beside them, and a Markdown table."""
    from contrastive_encoders.evaluation.paper_tables import markdown
    from contrastive_encoders.io.atomic import write_whole
    from contrastive_encoders.io.item_scores import items_beside, write_items
    from contrastive_encoders.io.results import write_results

    if found.items:
        write_items(items_beside(path), found.items)
    write_results(path, results)
    write_whole(path.with_suffix(".md"), markdown(results))


def collect(
    cfg: DictConfig,
    found: "Scores",
    chosen: "Chosen",
    description: dict[str, Any],
    seconds: float,
    own: "Sequence[Own]" = (),
) -> Results:
    import torch.distributed as dist

    from contrastive_encoders.evaluation.download import manifest
    from contrastive_encoders.io.results import environment, peak_memory_bytes

    made_with = environment()
    results = Results(
        version=RECORD_VERSION,
        objective=str(description.get("objective", "")),
        backbone=cfg.encoder,
        recipe={**without_secrets(OmegaConf.to_container(cfg, resolve=True)), "encoder_description": description},
        scores=found.values,
        intervals=found.intervals,
        best_step=0,
        spent=Spent(
            steps=0,
            examples=0,
            real_tokens=0,
            padded_tokens=0,
            wall_seconds=seconds,
            peak_memory_bytes=peak_memory_bytes(),
        ),
        seeds=[cfg.seed],
        versions=made_with["versions"],
        device=made_with["device"],
        processes=dist.get_world_size() if dist.is_initialized() else 1,
        git_commit=made_with["git_commit"],
        data=[
            *([manifest(Path(cfg.data_root), [task.name for task in chosen.tasks])] if chosen.tasks else []),
            *(one.manifest() for one in own),
        ],
        overlap={},
        averages=found.members,
        skipped=chosen.skipped,
    )
    if chosen.not_as_published:
        results["not_as_published"] = chosen.not_as_published
    return results


def options_of(cfg: DictConfig) -> "Options":
    from contrastive_encoders.evaluation.task import Options

    return Options(**{name: cfg[name] for name in Options._fields})


def look_after_data(cfg: DictConfig) -> int:
    """list, check or fetch; status 2 where something is missing or damaged."""
    from rich.console import Console

    from contrastive_encoders.evaluation import download

    names = [cfg.suite] if isinstance(cfg.suite, str) else list(cfg.suite)
    reports = list[download.Report]()
    if own := own_of(cfg):
        reports.append(download.own_report(own, options_of(cfg) if cfg.action == "check" else None))
    if cfg.data_root is not None and (names or not own):
        root = Path(cfg.data_root)
        if cfg.action == "fetch":
            reports.append(download.fetch(root, names, cfg.source, quiet=cfg.quiet))
        else:
            reports.append((download.check if cfg.action == "check" else download.listing)(root, names))
    console = Console()
    for part in (part for report in reports for part in report.render()):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    return 0 if all(report.well for report in reports) else 2


def say(task: str, seconds: float) -> None:
    log.info("%s scored in %.1f s", task, seconds)


@contextmanager
def process_group() -> Iterator[int]:
    """This process's rank; a group where torchrun or srun started several."""
    if find_ranks().world < 2:
        yield 0
        return
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
    join_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


main = command_line("evaluate", run, Keys)
