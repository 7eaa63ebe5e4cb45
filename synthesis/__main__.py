"""Make a data set by instructing a language model: ``python -m synthesis recipe=... generator=... output=...``."""

import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from command.keys import check_types, declared
from command.line import command_line
from command.processes import exit_on_sigterm, find_ranks, from_rank_zero, run_child, several
from contracts import InputError
from synthesis.recipes.keys import GENSE_GROUPS, FilterKeys, GenseKeys, Keys
from synthesis.recipes.unused_keys import UNUSED, refuse_unused
from synthesis.report.afterwards import Afterwards
from synthesis.shards.store import Heartbeat, SynthesisFailed, disk_errors

if TYPE_CHECKING:  # torch takes seconds to import: not before --help has been answered
    from command.processes import Ranks
    from synthesis.decoding.generator import Generator
    from synthesis.recipes.tasks import Tasks, Texts, Values
    from synthesis.shards.stage import Stage, Watch

log = logging.getLogger("synthesis")


def run(cfg: DictConfig) -> int:
    with disk_errors():
        return do(cfg)


def do(cfg: DictConfig) -> int:
    check_types(cfg.filters, declared(FilterKeys), "filters.")
    if cfg.output is None:
        raise InputError("output is not set: the folder of the data set. Say output=FOLDER.")
    folder = Path(cfg.output)
    afterwards = Afterwards(cfg.annotate, cfg.annotations, cfg.publish)
    afterwards.check(folder, overwrite=cfg.overwrite)
    if (name := str((cfg.get("recipe") or {}).get("name"))) in UNUSED:
        return gense(cfg, folder, name, afterwards.asked())
    finished = afterwards.asked() and not any(cfg.get(key) for key in ("generator", "recipe", "spec"))
    status = 0 if finished else write(cfg, folder, afterwards.asked())
    if status == 0 and (shown := afterwards.do(folder, seed=cfg.seed, overwrite=cfg.overwrite)):
        print(shown)
    return status


def gense(cfg: DictConfig, folder: Path, recipe: str, afterwards: Sequence[str]) -> int:
    """Triplets, or other ones from what there is for them."""
    from synthesis.recipes.baseline_command import BASELINES, run_baseline
    from synthesis.recipes.gense_command import FILTERS, run_filter, run_gense

    check_types(cfg, declared(GenseKeys))
    for group, keys in GENSE_GROUPS.items():
        check_types(cfg.get(group, {}), declared(keys), f"{group}.")
    if afterwards:
        raise InputError(
            f"{afterwards[0]} does not go with recipe={recipe}. Leave it out; Parquet can be had afterwards: python -m "
            f"synthesis output={folder} publish=..."
        )
    refuse_unused(cfg, recipe)
    if recipe in BASELINES:
        return run_baseline(cfg, folder, recipe)
    return run_filter(cfg, folder) if recipe == FILTERS else run_gense(cfg, folder, partial(write_stage, cfg))


def write(cfg: DictConfig, folder: Path, afterwards: Sequence[str]) -> int:
    """Check everything, then write what is missing."""
    from synthesis.recipes.tasks import choose_tasks

    recipe = OmegaConf.to_container(cfg.recipe, resolve=True) if cfg.get("recipe") else None
    tasks = choose_tasks(recipe, cfg.spec)  # type: ignore[arg-type]
    check_values(cfg, tasks)
    values = read_values(cfg)
    given = read_input(cfg, values) if tasks.x1 is None else None
    ranks = find_ranks()
    if afterwards and ranks.world > 1:
        raise InputError(
            f"{afterwards[0]} is for one process. Say it afterwards: python -m synthesis output={folder} ..."
        )
    if from_rank_zero(lambda writer: [claim(cfg, folder, tasks, values, given, writer)])[0]:
        log.info("%s is finished. overwrite=true writes it again.", folder)
        return 0
    if cfg.devices > 1 and ranks.world == 1:
        return run_child(several("synthesis", cfg.devices, once=Afterwards._fields))
    exit_on_sigterm()
    with Heartbeat(folder, *ranks) as heart:
        write_stages(cfg, folder, tasks, values, given, ranks, heart)
    return 0


def write_stages(
    cfg: DictConfig,
    folder: Path,
    tasks: "Tasks",
    values: "Values",
    given: "Given | None",
    ranks: "Ranks",
    heart: Heartbeat,
) -> None:
    from command.devices import device_of
    from synthesis.decoding.generator import load_generator

    generator = load_generator(
        cfg.generator,
        precision=cfg.precision,
        device=device_of(cfg.device),
        revision=cfg.revision,
        chat_template=cfg.chat_template,
    )
    x1 = None
    if tasks.x1 is not None:
        x1 = first_stage(cfg, folder, tasks, values)
        if tasks.x2 is not None and ranks.rank == 0:  # cut short now, the folder says already what it will be
            pairs = second_stage(folder, tasks, values, None, x1)
            pairs.store.write_manifest(pairs.manifest(complete=False))
        write_stage(cfg, x1, generator, ranks, heart.watch if tasks.x2 is not None else None)
    if tasks.x2 is not None:
        write_stage(cfg, second_stage(folder, tasks, values, given, x1), generator, ranks)


def check_values(cfg: DictConfig, tasks: "Tasks") -> None:
    """InputError for keys that do not fit the tasks, or mean nothing."""
    if cfg.generator is None:
        raise InputError("generator is not set: the hub id or folder of a causal language model. Say generator=...")
    if tasks.x1 is not None and cfg.input is not None:
        raise InputError(
            f"input={cfg.input}: first sentences are written here, not read. Leave input out, or take recipe=dino_x2, "
            "which writes second sentences for them."
        )
    if tasks.x1 is None and cfg.input is None:
        raise InputError(
            "input is not set: the instructions hold <X1>, in which the sentences of a file are put. Say input=FILE, "
            "or take recipe=dino_x1x2, which writes first sentences too."
        )
    labels = len(tasks.x1.labels) if tasks.x1 else 1
    for name, least in (("num_x1", labels), ("shard_size", 1), ("devices", 1)):
        if cfg[name] < least:
            raise InputError(f"{name}={cfg[name]}: wanted at least {least}.")
    if tasks.x2 is None and cfg.per_label is not None:
        raise InputError(
            f"per_label={cfg.per_label}: that is second sentences per first one, and none are written here. Leave it "
            "out; num_x1 says how many first sentences there are over all labels."
        )


def read_values(cfg: DictConfig) -> "Values":
    from synthesis.decoding.continuations import Decoding
    from synthesis.recipes.dino import Plan
    from synthesis.recipes.spec import STOP
    from synthesis.recipes.tasks import PER_LABEL, Values
    from synthesis.rules.filters import Filters
    from synthesis.shards.provenance import identify_generator, versions

    names = ("max_new_tokens", "top_p", "temperature", "ban_eos", "seed", "rows", "token_budget")
    how = Decoding(**{name: cfg[name] for name in names}, top_k=cfg.top_k, stop=STOP)
    how.check()
    plan = Plan(
        cfg.strategy,
        PER_LABEL[cfg.strategy] if cfg.per_label is None else cfg.per_label,
        cfg.max_tries,
        float(cfg.decay),
        float(cfg.epsilon),
        Filters(**cfg.filters),
    )
    plan.check()
    name = Path(cfg.generator).resolve().name if Path(cfg.generator).is_dir() else cfg.generator
    generator = {"name": name, "weights": identify_generator(cfg.generator, cfg.revision)}
    return Values(
        generator, cfg.precision, cfg.chat_template, how, plan, cfg.shard_size, versions()
    )  # fmt: skip


Given = tuple["Texts", int, dict[str, Any]]


def read_input(cfg: DictConfig, values: "Values") -> Given:
    from synthesis.recipes.tasks import from_file
    from synthesis.sentences.inputs import open_inputs

    inputs = open_inputs(cfg.input, cfg.input_type, cfg.input_column, output=Path(cfg.output))
    summary = inputs.summary()
    if summary.blank and not cfg.quiet:
        log.info("%s: %d blank lines are left out.", cfg.input, summary.blank)
    return from_file(inputs, summary, values.plan)


def first_stage(cfg: DictConfig, folder: Path, tasks: "Tasks", values: "Values") -> "Stage":
    from synthesis.recipes.tasks import x1_stage
    from synthesis.shards.store import X1

    assert tasks.x1 is not None
    return x1_stage(folder / X1 if tasks.x2 is not None else folder, tasks.x1, cfg.num_x1, values)


def second_stage(folder: Path, tasks: "Tasks", values: "Values", given: Given | None, x1: "Stage | None") -> "Stage":
    from synthesis.recipes.tasks import from_stage, x2_stage

    assert tasks.x2 is not None
    texts, number, identity = given or from_stage(x1)  # type: ignore[arg-type]
    return x2_stage(folder, tasks.x2, texts, number, identity, values)


def claim(cfg: DictConfig, folder: Path, tasks: "Tasks", values: "Values", given: Given | None, writer: bool) -> bool:
    """Whether all is there already; InputError where the folder is another data set's."""
    x1 = first_stage(cfg, folder, tasks, values) if tasks.x1 else None
    if tasks.x2 is None:
        assert x1 is not None
        return x1.store.claim(x1.identity, overwrite=cfg.overwrite, writer=writer)
    if x1 is not None and not cfg.overwrite:  # it can name what differs; the pairs know only a hash of it
        x1.store.claim(x1.identity, overwrite=False)
    x2 = second_stage(folder, tasks, values, given, x1)
    finished = x2.store.claim(x2.identity, overwrite=cfg.overwrite, writer=writer)
    if x1 is not None:
        finished = x1.store.claim(x1.identity, overwrite=False) and finished
    return finished


def write_stage(
    cfg: DictConfig,
    stage: "Stage",
    generator: "Generator",
    ranks: "Ranks",
    watch: "Watch | None" = None,
    close: "Callable[[Stage], None] | None" = None,
) -> None:
    """Shards, manifest and report; with ``watch`` it returns when the other processes have done their part too.

    Cut short, it leaves the shards that are whole, and a manifest that says so.
    """
    from synthesis.shards.progress import choose_progress
    from synthesis.shards.stage import close_stage, finish, leave_unfinished, run_stage

    try:
        spent = run_stage(stage, generator, ranks, choose_progress(ranks, quiet=cfg.quiet))
        close_stage(stage, close or finish, watch=watch)
    except (KeyboardInterrupt, SystemExit):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        leave_unfinished(stage)
        if ranks.rank == 0:
            log.info("%s: interrupted. What is whole is there; the same command goes on.", stage.folder)
        raise
    if spent.row_steps:
        log.info("%.1f %% of the rows decoded were finished ones", 100 * spent.wasted_row_steps / spent.row_steps)


main = command_line("synthesis", run, Keys, failed=(SynthesisFailed,))

if __name__ == "__main__":
    main()
