"""Compare finished runs, or train several recipes and compare them: ``contrastive-encoders compare ...``."""

import glob
import logging
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.comparison.compare_config import CompareConfig
from contrastive_encoders.comparison.outputs import COMPARISON, ENTRIES
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.renamed_keys import RENAMED_KEYS, renamed_key
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.io.output_directory import check_owner, claim_output_directory
from contrastive_encoders.training.composition.config_files import MEANINGS
from contrastive_encoders.training.composition.config_keys import config_folders
from contrastive_encoders.training.composition.config_store import to_container
from contrastive_encoders.training.composition.literal_values import literal_override

if TYPE_CHECKING:
    import numpy as np

    from contrastive_encoders.comparison.arms import Arm
    from contrastive_encoders.comparison.probe_sentences import ProbeEmbeddings
    from contrastive_encoders.comparison.report import Comparison
    from contrastive_encoders.comparison.run_scheduler import JobResult
    from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask

log = logging.getLogger(__name__)

# Keys of every race; other keys are specific to a race
STRUCTURE = ("name", "prepare", "plan_run", "common", "arms", "ranking_metric", "choose", "seeds", "budget")


def run(cfg: DictConfig, arguments: Sequence[str] = ()) -> int:
    """Compare finished runs, or train the runs of a race and compare them; return the exit code."""
    for name in ("httpx", "transformers", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    config = config_of(cfg, CompareConfig, without="race")
    require(config, "output", "the directory of the report")
    output = Path(str(config.output)).expanduser()
    check_owner("output", output, COMPARISON)
    if config.wandb:
        from contrastive_encoders.training.wandb_session import check_wandb

        check_wandb(config.wandb_offline)
    if cfg.get("race") is None:
        if config.runs is None:
            raise InputError(
                key="runs",
                value=None,
                expected="directories of finished runs",
                hint="Set runs='[outputs/*]' to compare finished runs, or race=head_to_head to train runs first.",
            )
        return write_comparison(config, [config.runs] if isinstance(config.runs, str) else config.runs, output)
    if config.runs is not None:
        raise InputError(
            key="runs",
            value=config.runs,
            expected="null if race is set, since a race trains the runs that it compares",
            hint="Remove either runs or race.",
        )
    from contrastive_encoders.comparison.hyperparameter_selection import choose, selection_of
    from contrastive_encoders.comparison.race import plan, train_all
    from contrastive_encoders.comparison.race_data import commands_of, needed, prepare, race_overrides
    from contrastive_encoders.comparison.run_scheduler import WRONG_INPUT, open_workers

    if config.cluster is None:
        check_number("parallel", config.parallel)
    options = [f"--config-dir={folder}" for folder in config_folders(arguments)]
    options += [argument for argument in arguments if argument.startswith("hydra.searchpath=")]
    check_texts(cfg.race)
    keys = plain(cfg.race)
    where = f"race={keys.get('name', '?')}"
    if keys.get("choose") and not config.untrained:
        raise InputError(
            key="untrained",
            value=False,
            expected=f"true for {where}, which compares each arm with the untrained encoder",
            hint="Remove untrained=false.",
        )
    if keys.get("estimate_only"):
        from contrastive_encoders.comparison.race_estimate import estimate

        with tempfile.TemporaryDirectory(prefix="race-plan-") as folder:
            cfg.output = folder  # where the race would write
            estimate(plain(cfg.race), config.budget, config.seeds, Path(folder), config.parallel, options)
        return 0
    choice, all_commands = selection_of(keys, where), commands_of(keys.get("prepare"), where)
    commands = needed(all_commands, race_overrides(keys))
    for name in all_commands.keys() - commands.keys():
        log.info("race.prepare.%s is skipped, because no arm uses its data.", name)
    with open_workers(output, config.parallel, config.cluster, config.num_cpus, config.num_gpus) as pool:
        race = plan(keys, config.budget, config.seeds, output)
        if choice is not None and not config.quiet:
            tried, compared = sum(len(choice.values[label]) for label in race.arms), len(race.arms) * len(race.seeds)
            log.info(
                "%s to choose %s for %s, then %s to compare.",
                *(count_of(tried, "run"), choice.key, count_of(len(race.arms), "arm"), count_of(compared, "run")),
            )
        prepare(commands, options)
        race, failed = (
            (race, [])
            if choice is None
            else choose(choice, race, output, pool, config.quiet, options, keep_checkpoints=config.keep_checkpoints)
        )
        failed += train_all(
            race,
            output,
            pool,
            config.quiet,
            keep_checkpoints=config.keep_checkpoints,
            options=options,
            untrained=config.untrained,
        )
    runs = [str(Path(glob.escape(str(output))) / "runs" / "*")]
    status = write_comparison(config, runs, output, keys, race.budget_description(), choice and choice.score, failed)
    if any(not result.refused for result in failed):
        return 1
    return WRONG_INPUT if failed and choice is None else status  # a race that selects leaves refused arms out


def check_texts(race: DictConfig) -> None:
    """Check that the input files of a race's data commands exist, such as those in ``input=${race.texts}``.

    Raises:
        InputError: the key of the race is null, or there is no such file or directory.
    """
    for argument in re.findall(r"'input=\$\{race\.(\w+)\}'", str(OmegaConf.to_container(race, resolve=False))):
        key, value = f"race.{argument}", race.get(argument)
        if value is None:
            raise InputError(key=key, value=None, expected="a file or a directory of texts")
        texts = to_container(value)
        paths = texts if isinstance(texts, list) else [texts]
        list_files(list(map(str, paths)), key, documents="all")  # Hydra reads a folder 2024 as a number


def plain(race: DictConfig) -> dict[str, Any]:
    """Convert the config of a race to plain mappings and lists, with interpolations resolved.

    A race-specific key that is null, at any depth, becomes ``null`` in the arguments of runs, and paths in them are
    quoted if necessary.

    Raises:
        InputError: a key was renamed, or has no value, although the race uses it.
    """
    renamed = [new for new in RENAMED_KEYS["compare"].values() if new.startswith("race.")]
    for name in map(str, race):
        if error := renamed_key(f"race.{name}", None, renamed):
            raise error
    try:
        _write_null(race, [name for name in map(str, race) if name not in STRUCTURE])
        found: Any = OmegaConf.to_container(race, resolve=True)
    except InterpolationToMissingValueError as error:
        missing = re.search(r"Missing mandatory value: (race\.\S+)", str(error))
        if missing is None:  # it is not a key of the race
            raise
        raise InputError(
            key=missing[1],
            value=None,
            expected="a value, because the configuration of this race uses this key",
            hint=f"Set {missing[1]}=VALUE.",
        ) from error
    return {name: _readable(value) for name, value in found.items() if name != MEANINGS}


def _write_null(node: DictConfig, names: Sequence[str]) -> None:
    """Replace None by the string ``null`` in the values of the keys ``names`` and of all keys nested in them."""
    for name in names:
        if OmegaConf.is_missing(node, name):
            continue
        value = node[name]
        if value is None:
            node[name] = "null"
        elif isinstance(value, DictConfig) and not OmegaConf.is_interpolation(node, name):
            _write_null(value, [*map(str, value)])


def _readable(node: Any) -> Any:
    """Quote the overrides in the lists of a race's config where Hydra could not parse them otherwise."""
    if isinstance(node, dict):
        return {name: _readable(value) for name, value in node.items()}
    if isinstance(node, list):
        return [literal_override(one) if isinstance(one, str) and "=" in one else _readable(one) for one in node]
    return node


def write_comparison(
    config: CompareConfig,
    patterns: Sequence[str] | Mapping[str, str],
    output: Path,
    race: Mapping[str, Any] = MappingProxyType({}),
    budget: str = "",
    choosing: str | None = None,
    failed: "Sequence[JobResult]" = (),
) -> int:
    """Compare finished runs, write the report, and return the exit code. ``choosing`` is the score by which a race
    recommends an arm, and ``failed`` are its runs that failed.
    """
    from contrastive_encoders.comparison.arms import arms_of, select_runs
    from contrastive_encoders.comparison.baselines import BM25, TFIDF, bm25_arm, tfidf_arm
    from contrastive_encoders.comparison.collect import collect
    from contrastive_encoders.comparison.contrasts import choose_ranking_metric
    from contrastive_encoders.comparison.race import failed_runs
    from contrastive_encoders.comparison.report import build_comparison, sections, write_report
    from contrastive_encoders.comparison.vector_figures import best

    began = time.perf_counter()
    runs, left_out = collect(patterns)
    ranking_metric = config.ranking_metric or race.get("ranking_metric")
    runs, not_compared = select_runs(runs, ranking_metric)
    left_out += not_compared
    if not runs:
        expected = f"runs with scores, but none of {count_of(len(not_compared), 'run')} has any"
        raise InputError(key="runs", expected=expected, hint=left_out[-1].reason)
    if config.strict and left_out:
        raise InputError(
            key="strict", value=True, expected="false if some runs cannot be compared", hint=left_out[0].reason
        )
    for one in left_out:
        log.warning("left out: %s", one.reason)
    known = {one.path.absolute() for one in left_out}
    left_out += [one for one in failed_runs(failed) if one.path.absolute() not in known]
    arms = arms_of(runs)
    headline = choose_ranking_metric(arms, ranking_metric)
    sentences = sentences_of(config, arms)
    claim_output_directory("output", output, COMPARISON, ENTRIES)  # after all checks, so a refusal leaves no files
    if race and config.tfidf and all(arm.label != TFIDF for arm in arms):
        arms += [arm] if (arm := tfidf_arm(arms, headline)) else []
    task = task_of(arms, headline.scores[0]) if choosing is not None else None
    if task is not None and all(arm.label != BM25 for arm in arms):
        arms += [arm] if (arm := bm25_arm(arms, headline, bm25_of(task))) else []
    probes = probes_of(config, best(arms, headline), sentences)
    found = build_comparison(arms, headline, left_out, probes, budget=budget)
    if choosing is not None:
        found = with_recommendation(config, found, choosing, task, output, race["arms"])
    program = Path(sys.argv[0]).name
    started_by_script = program.endswith(".py") and program != "__main__.py"
    command = shlex.join([program if started_by_script else "contrastive-encoders", *sys.argv[1:]])
    written = write_report(found, output, command)
    if config.wandb:
        from contrastive_encoders.comparison.upload import upload

        upload(
            found,
            sections(found, output),
            written,
            config.wandb_project,
            config.wandb_name or output.name,
            config.wandb_offline,
        )
    if not config.quiet:
        show(found, output)
        log.info("Compared %s in %.1f s.", count_of(len(runs), "run"), time.perf_counter() - began)
    return 0


def task_of(arms: "list[Arm]", score: str) -> "RetrievalTask | None":
    """Return the custom retrieval task of a score, as configured in the first run; None if the score belongs to another
    type of task.
    """
    from contrastive_encoders.core.score_names import ScoreName
    from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
    from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask

    name = ScoreName.parse(score).full_task
    tasks = (arms[0].runs[0].results["recipe"].get("evaluation") or {}).get("custom_tasks")
    own = next((one for one in resolve_custom_tasks(tasks) if one.name == name), None)
    [task] = own.read(EvaluateConfig()) if own else [None]
    return task if isinstance(task, RetrievalTask) else None


def bm25_of(task: "RetrievalTask") -> Mapping[str, Any]:
    """Return the scores of BM25 on a retrieval task. If BM25's library is not installed, log this and return an empty
    mapping.
    """
    try:
        return task.bm25()
    except InputError as error:
        log.info("BM25 is not included as an arm. %s", error)
        return {}


def with_recommendation(
    config: CompareConfig,
    found: "Comparison",
    choosing: str,
    task: "RetrievalTask | None",
    output: Path,
    labels: Collection[str],
) -> "Comparison":
    """Return the comparison with the recommendation of an arm, and copy the encoder of this arm to ``output``/encoder.

    ``labels`` are all arms of the race; the recommendation names those that could not be compared.
    """
    from contrastive_encoders.comparison.outputs import SELECTION_FILE
    from contrastive_encoders.comparison.recommendation import before_and_after, keep_encoder, recommend, values_tried
    from contrastive_encoders.io.manifest import read_record

    one = recommend(found.arms, found.headline, found.contrasts, choosing, output, labels)
    keep_encoder(one, output)
    if one is None:
        reason = (
            "No arm can be recommended: either the initial encoder of all runs was not evaluated, or no other encoder "
            "was."
        )
        return found._replace(recommendation=reason)
    shown = task and before_and_after(one, task.texts_to_match, lambda arm, texts: embed(config, arm, texts))
    tables = [table for table in (shown, values_tried(read_record(output / SELECTION_FILE))) if table]
    return found._replace(recommendation=one.sentence, recommendation_tables=tables)


def probes_of(config: CompareConfig, arms: "list[Arm]", sentences: list[str]) -> "list[ProbeEmbeddings]":
    """Embed the probe sentences with each arm, represented by the encoder of its first run; arms without an encoder are
    omitted.
    """
    from contrastive_encoders.comparison.probe_sentences import probe

    if len(sentences) < 2:  # too few for a map and for neighbors
        return []
    embeddings = [(arm, embed(config, arm, sentences)) for arm in arms]
    return [probe(arm, sentences, vectors) for arm, vectors in embeddings if vectors is not None]


def sentences_of(config: CompareConfig, arms: "list[Arm]") -> list[str]:
    if config.sentences == 0:
        return []
    if config.sentences_from:
        path = Path(config.sentences_from).expanduser()
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                key="sentences_from",
                value=path,
                expected=f"a readable UTF-8 text file with one sentence per line ({error})",
            ) from error
        found = [line.strip() for line in lines if line.strip()]
    else:
        root = config.data_root or next((root for arm in arms if (root := _data_root(arm))), None)
        table = Path(root or "") / "STSBenchmark" / "dev.tsv"
        if root is None or not table.exists():
            log.info("No map of sentences: data_root contains no STSBenchmark/dev.tsv, and sentences_from is null.")
            return []
        from contrastive_encoders.evaluation.catalog import load_tasks

        task: Any = load_tasks(root, ["stsb-dev"], EvaluateConfig()).tasks[0]
        found = [text for pair in zip(task.pairs.left, task.pairs.right, strict=True) for text in pair]
    found = list(dict.fromkeys(found))
    step = max(1, len(found) // config.sentences)
    return found[::step][: config.sentences]


def _data_root(arm: "Arm") -> str | None:
    recipe = arm.runs[0].results["recipe"]
    return recipe.get("data_root") or (recipe.get("evaluation") or {}).get("data_root")


def embed(config: CompareConfig, arm: "Arm", sentences: list[str]) -> "np.ndarray | None":
    from contrastive_encoders import load_encoder

    first = arm.runs[0]
    name = str(first.path) if first.path.is_dir() else str(first.results["recipe"].get("encoder") or "")
    if not name or (first.path.is_dir() and not (first.path / "encoder").is_dir()):
        log.info("The map of sentences omits %s, which contains no encoder/.", first.path)
        return None
    try:
        encoder = load_encoder(name, device=device_of(config.device))
    except InputError as error:
        log.warning("No map of sentences: %s", error)
        return None
    return encoder.embed(sentences).numpy()


def show(found: "Comparison", output: Path) -> None:
    from rich.console import Console

    from contrastive_encoders.comparison import tables
    from contrastive_encoders.reports.tables import split_to_fit, to_terminal_table

    console = Console()
    if found.recommendation:
        console.print(found.recommendation, highlight=False, markup=False, soft_wrap=True)
    for one in found.skipped:
        console.print(f"left out: {one.reason}", highlight=False, markup=False, soft_wrap=True)
    board = tables.scores_by_family(found.arms, found.families, found.standings)
    for part in split_to_fit(board, console.width, tables.OPTIONAL):
        console.print(to_terminal_table(part, console.width))
    conclusions = tables.conclusions(found.arms, found.headline, found.standings, found.contrasts)
    console.print(tables.INTERVAL_NOTE, highlight=False, markup=False, soft_wrap=True)
    for standing, line in zip(found.standings, conclusions, strict=True):
        console.print(f"{found.arms[standing.arm].label}: {line}", highlight=False, markup=False, soft_wrap=True)
    for line in tables.notes(found.arms, found.headline):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"Wrote {output / 'report.html'}, report.md, table.tex, and table.csv.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


main = command_line("compare", run, CompareConfig)
