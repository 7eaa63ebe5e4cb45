"""The recipes gense and gense_filter: from the values of the command line to triplets on disk.

``OUTPUT/scored`` gets what was written and judged, by as many processes as there are; when its last shard is there, the
process that sees it takes the triplets out of it into ``OUTPUT``. gense_filter does only that, from a scored data set.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock

from command.processes import Ranks, exit_on_sigterm, find_ranks, from_rank_zero, run_child, several
from contracts import InputError
from synthesis.recipes.gense_claim import claim_triplets, free_again
from synthesis.recipes.gense_filter import SCORED, filter_identity, filter_manifest, filter_shards, find_scored
from synthesis.recipes.gense_source import NamedGenerator, name_generator
from synthesis.recipes.unused_keys import settings
from synthesis.report.gense_card import method_of
from synthesis.report.gense_report import write_triplet_report
from synthesis.rules.triplet_rules import Rules
from synthesis.shards.store import ABOUT, MANIFEST, Heartbeat, ShardStore, read_manifest

if TYPE_CHECKING:
    from synthesis.decoding.continuations import Decoding
    from synthesis.recipes.gense import Plan
    from synthesis.sentences.inputs import Inputs
    from synthesis.sentences.preparation import Preparation
    from synthesis.shards.stage import Stage

WRITES, FILTERS = "gense", "gense_filter"
RECIPES = (WRITES, FILTERS)

log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """All that decides the triplets."""

    folder: Path
    generator: NamedGenerator
    inputs: "Inputs"
    preparation: "Preparation"
    plan: "Plan"
    how: "Decoding"
    rules: Rules
    identity: dict[str, Any]  # of the scored rows


def read_wanted(cfg: Any, folder: Path) -> Wanted:
    """Check everything that can be checked before a model is loaded.

    Raises:
        InputError: a value, the input or the generator's folder is wrong.
    """
    from synthesis.decoding.continuations import Decoding
    from synthesis.recipes.gense import Plan
    from synthesis.sentences.inputs import open_inputs
    from synthesis.sentences.preparation import identify, read_preparation

    rules = read_rules(cfg)
    for key, why in (
        ("generator", "the folder or hub id of a GenSE generator. Say generator=..."),
        ("input", "sentences, or documents with input_kind=documents. Say input=FILE"),
    ):
        if cfg[key] is None:
            raise InputError(f"{key} is not set: {why}.")
    for name, least in (("shard_size", 1), ("devices", 1)):
        if cfg[name] < least:
            raise InputError(f"{name}={cfg[name]}: wanted at least {least}.")
    names = ("max_new_tokens", "top_p", "top_k", "temperature", "seed", "rows", "token_budget")
    how = Decoding(**{name: cfg[name] for name in names})
    how.check()
    plan = Plan(cfg.candidates, cfg.max_source_tokens, cfg.max_pair_tokens)
    plan.check()
    preparation = read_preparation(cfg)
    inputs = open_inputs(cfg.input, cfg.input_type, cfg.input_column, output=folder)
    generator = name_generator(cfg)
    drawn = {name: getattr(how, name) for name in ("max_new_tokens", "top_p", "top_k", "temperature", "seed")}
    identity = {
        "kind": SCORED,
        "prompts": generator.prompts.to_json(),
        "generator": generator.weights,
        "precision": cfg.precision,
        "decoding": drawn,
        "plan": plan._asdict(),
        "input": identify(inputs, preparation),
        "shard_size": cfg.shard_size,
    }
    return Wanted(folder, generator, inputs, preparation, plan, how, rules, identity)


def read_rules(cfg: Any) -> Rules:
    rules = settings(Rules, cfg.rules, "rules")
    rules.check()
    return rules


def check_judged(generator: object, rules: Rules) -> None:
    """InputError for rules that ask a discriminator where there was none."""
    if generator is None and rules.asks():
        raise InputError(
            "rules.agree and rules.threshold ask what a discriminator said, but nothing was judged. Say "
            "rules.agree=false rules.threshold=null; or write the data set with generator=..., a GenSE generator."
        )


def run_gense(cfg: Any, folder: Path, write_stage: Callable[..., None]) -> int:
    """Write what is missing. ``write_stage`` is the command line's."""
    wanted = read_wanted(cfg, folder)
    return write_claimed(
        cfg, folder, wanted.identity, wanted.rules, lambda ranks: _write(cfg, wanted, ranks, write_stage)
    )


def write_claimed(
    cfg: Any,
    folder: Path,
    identity: Mapping[str, Any],
    rules: Rules,
    write: Callable[[Ranks], None],
) -> int:
    """The exit status. ``write`` writes what is missing as this process among all: where there are to be others that
    nobody has started, they are, and come here themselves."""

    ranks = find_ranks()

    def claim(writer: bool) -> list[bool]:
        return [claim_triplets(folder, identity, rules, overwrite=cfg.overwrite, writer=writer)]

    with free_again(folder, overwrite=cfg.overwrite, alone=ranks.world == 1) as ended:
        if from_rank_zero(claim)[0]:
            log.info("%s is finished. overwrite=true writes it again.", folder)
            return 0
        if cfg.devices > 1 and ranks.world == 1:
            return ended(run_child(several("synthesis", cfg.devices)))
        exit_on_sigterm()
        with Heartbeat(folder / SCORED, *ranks):
            write(ranks)
        return 0


def _write(cfg: Any, wanted: Wanted, ranks: "Ranks", write_stage: Callable[..., None]) -> None:
    from command.devices import device_of
    from synthesis.decoding.encoder_decoder import load_encoder_decoder
    from synthesis.recipes.gense_stage import GenseStage
    from synthesis.sentences.preparation import prepare
    from synthesis.shards.provenance import versions

    generator = load_encoder_decoder(
        wanted.generator.source, precision=cfg.precision, device=device_of(cfg.device), revision=cfg.revision
    )
    sentences = prepare(wanted.inputs, wanted.preparation, wanted.folder / SCORED, wanted.identity["input"])
    about = {
        "generator": {"name": wanted.generator.name, "weights": wanted.generator.weights},
        "versions": versions(),
        "sentences": sentences.counts,
    }
    stage = GenseStage(
        wanted.folder / SCORED,
        WRITES,
        wanted.how,
        sentences.number,
        cfg.shard_size,
        wanted.identity,
        about,
        wanted.plan,
        wanted.generator.prompts,
        sentences,
    )
    with generator.at_work():
        write_stage(stage, generator, ranks, close=_close)
    if stage.is_complete():
        take_triplets(stage.folder, wanted.folder, wanted.rules, cfg.workers)


def _close(stage: "Stage") -> None:
    stage.store.write_manifest(stage.manifest(complete=True))


def run_filter(cfg: Any, folder: Path) -> int:
    """Triplets from a scored data set."""
    rules = read_rules(cfg)
    if cfg.generator is not None:
        raise InputError(f"generator={cfg.generator}: recipe=gense_filter writes no text. Leave generator out.")
    if cfg.input is None:
        raise InputError("input is not set: the output folder of recipe=gense. Say input=FOLDER.")
    if not isinstance(cfg.input, str):
        raise InputError(f"input={list(cfg.input)}: wanted one output folder of recipe=gense. Say input=FOLDER.")
    source = find_scored(Path(cfg.input))
    check_judged(read_manifest(source)["identity"]["generator"], rules)
    if (folder / SCORED).exists() or folder.resolve() == source.resolve():
        raise InputError(f"output={folder} holds what triplets are taken from. Choose another output.")
    store = ShardStore(folder)
    identity = filter_identity(read_manifest(source)["identity"], rules)
    if store.claim(identity, overwrite=cfg.overwrite):
        log.info("%s is finished. overwrite=true writes it again.", folder)
        return 0
    take_triplets(source, folder, rules, cfg.workers)
    return 0


def take_triplets(source: Path, folder: Path, rules: Rules, workers: int | None) -> None:
    """Shards, report and manifest, where they are not there yet; one process at a time."""
    scored = read_manifest(source)
    shards = int(scored["shards_planned"])
    header = {
        "identity": filter_identity(scored["identity"], rules),
        **{key: scored[key] for key in ("generator", "versions", "sentences")},
    }
    store = ShardStore(folder)
    (folder / ABOUT).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ABOUT / "lock"):
        there = read_manifest(folder) if (folder / MANIFEST).is_file() else {}
        if there.get("complete") and all(store.is_done(number) for number in range(shards)):
            return
        store.write_manifest(filter_manifest(folder, header, shards, complete=False))
        filter_shards(source, folder, rules, range(shards), workers)
        os.sync()  # once for all: before this nothing is trusted, and all is filtered anew
        manifest = filter_manifest(folder, header, shards, complete=True)
        store.write_manifest({**manifest, **write_triplet_report(folder, manifest)})
    counts, rows = manifest["counts"], method_of(scored["identity"]).rows
    log.info(
        "%s: %s %s from %s sentences (%.1f %%); report.html says how good they are.",
        folder, f"{counts['accepted']:,}", rows, f"{counts['samples']:,}", 100 * counts["yield"],
    )  # fmt: skip
    if not counts["accepted"]:
        log.warning("%s: nothing was accepted. report.md says which rules they broke.", folder)
