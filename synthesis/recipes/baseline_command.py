"""The recipes gense_retrieval, gense_back_translation and gense_dino: from the command line to triplets on disk.

As of recipe=gense, ``OUTPUT/scored`` gets all candidates and their probabilities, and the triplets are taken from it.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contracts import InputError
from prompts import DIRECTIONS, Direction
from synthesis.recipes.gense_command import check_judged, read_rules, take_triplets, write_claimed
from synthesis.recipes.gense_filter import SCORED
from synthesis.recipes.gense_source import NamedGenerator, name_generator
from synthesis.recipes.unused_keys import refuse_unknown, settings
from synthesis.shards.store import read_manifest

if TYPE_CHECKING:
    from command.processes import Ranks
    from synthesis.recipes.baselines import BaselineStage, Score, Source

RETRIEVAL, BACK_TRANSLATION, DINO = "gense_retrieval", "gense_back_translation", "gense_dino"
BASELINES = (RETRIEVAL, BACK_TRANSLATION, DINO)

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """What is needed to work."""

    number: int
    counts: dict[str, Any]  # of the sentences
    source: "Source"


class Method(NamedTuple):
    """What one baseline is."""

    identity: dict[str, Any]  # what decides its candidates
    open: Callable[[], Opened]  # loads what it works with


def run_baseline(cfg: Any, folder: Path, recipe: str) -> int:
    """Write what is missing."""
    rules = read_rules(cfg)
    for name, least in (("shard_size", 1), ("devices", 1), ("max_pair_tokens", 1)):
        if cfg[name] < least:
            raise InputError(f"{name}={cfg[name]}: wanted at least {least}.")
    if cfg.input is None:
        what = "the folder of a finished data set of DINO's pairs" if recipe == DINO else "sentences, or documents"
        raise InputError(f"input is not set: {what}. Say input=...")
    if recipe == RETRIEVAL and cfg.generator is None:
        raise InputError(
            "generator is not set: the folder or hub id of a GenSE generator, which tells what follows from a sentence "
            "among what is retrieved for it. Say generator=..."
        )
    judge = name_generator(cfg) if cfg.generator is not None else None  # None: nothing is judged
    check_judged(judge, rules)
    method = {RETRIEVAL: read_retrieval, BACK_TRANSLATION: read_back_translation, DINO: read_dino}[recipe](cfg, folder)
    identity = {
        "kind": SCORED,
        "method": recipe,
        "generator": judge and judge.weights,
        "prompts": judge and judge.prompts.to_json(),
        "precision": cfg.precision,
        "max_pair_tokens": cfg.max_pair_tokens,
        "shard_size": cfg.shard_size,
        **method.identity,
    }

    def write(ranks: "Ranks") -> None:
        stage = open_stage(cfg, folder / SCORED, recipe, identity, method, judge)
        write_scored(stage, ranks)
        if stage.is_complete():
            take_triplets(stage.folder, folder, rules, cfg.workers)

    return write_claimed(cfg, folder, identity, rules, write)


def open_stage(
    cfg: Any, folder: Path, recipe: str, identity: dict[str, Any], method: Method, judge: NamedGenerator | None
) -> "BaselineStage":
    from synthesis.recipes.baselines import NOT_DECODED, BaselineStage
    from synthesis.shards.provenance import versions

    score = load_score(cfg, judge) if judge else None
    opened = method.open()
    about = {
        "generator": {"name": judge and judge.name, "weights": judge and judge.weights},
        "versions": versions(),
        "sentences": opened.counts,
    }
    size = cfg.shard_size
    return BaselineStage(folder, recipe, NOT_DECODED, opened.number, size, identity, about, opened.source, score)


def write_scored(stage: "BaselineStage", ranks: "Ranks") -> None:
    """Shards and manifest. Cut short, it leaves the shards that are whole: the same command goes on."""
    from synthesis.shards.stage import close_stage

    def close(_: Any) -> None:
        stage.store.write_manifest(stage.manifest(complete=True))

    try:
        stage.write(ranks)
        close_stage(stage, close)
    except (KeyboardInterrupt, SystemExit):
        if ranks.rank == 0:
            log.info("%s: interrupted. What is whole is there; the same command goes on.", stage.folder)
        raise


def load_score(cfg: Any, judge: NamedGenerator) -> "Score":
    from command.devices import device_of
    from prompts import PromptIds
    from synthesis.decoding.encoder_decoder import load_encoder_decoder
    from synthesis.recipes.gense import Discriminator

    generator = load_encoder_decoder(
        judge.source, precision=cfg.precision, device=device_of(cfg.device), revision=cfg.revision
    )
    try:
        return Discriminator(generator, PromptIds(judge.prompts, generator.tokenizer), cfg.max_pair_tokens)
    except InputError as error:
        raise InputError(f"generator={generator.name}: {error}") from None


def read_retrieval(cfg: Any, folder: Path) -> Method:
    from synthesis.recipes.baselines import Retrieved
    from synthesis.recipes.retrieval import Bm25

    how = settings(Bm25, cfg.bm25, "bm25")
    how.check()
    return from_sentences(cfg, folder, {"bm25": how._asdict()}, lambda sentences: Retrieved(sentences, how))


def read_back_translation(cfg: Any, folder: Path) -> Method:
    from command.devices import device_of
    from synthesis.recipes.back_translation import Language, Search, Translator
    from synthesis.recipes.baselines import Translated
    from synthesis.shards.provenance import identify_generator

    search = settings(Search, cfg.search, "search")
    search.check()
    ways: dict[str, Language] = {}
    identity: dict[str, Any] = {"search": search._asdict()}
    for where in ("there", "back"):
        if cfg[where].model is None:
            raise InputError(
                f"{where}.model is not set: folder or hub id of a translation model. Say {where}.model=..."
            )
        ways[where] = settings(Language, cfg[where], where)
        weights = identify_generator(ways[where].model, None, f"{where}.model")
        identity[where] = {**ways[where]._asdict(), "model": weights}

    def open_(sentences: list[str]) -> "Source":
        models: list[Translator] = [
            Translator(where, ways[where], search, precision=cfg.precision, device=device_of(cfg.device))
            for where in ways
        ]
        return Translated(sentences, *models)

    return from_sentences(cfg, folder, identity, open_)


def from_sentences(cfg: Any, folder: Path, identity: dict[str, Any], source: Callable[[list[str]], "Source"]) -> Method:
    """A method that works on the sentences of a file."""
    from synthesis.sentences.inputs import open_inputs
    from synthesis.sentences.preparation import identify, prepare, read_preparation

    preparation = read_preparation(cfg)
    inputs = open_inputs(cfg.input, cfg.input_type, cfg.input_column, output=folder)
    given = identify(inputs, preparation)

    def open_() -> Opened:
        prepared = prepare(inputs, preparation, folder / SCORED, given)
        return Opened(prepared.number, prepared.counts, source(list(prepared)))

    return Method({**identity, "input": given}, open_)


def read_dino(cfg: Any, folder: Path) -> Method:
    from synthesis.recipes.baselines import FromDino

    if not isinstance(cfg.input, str) or not Path(cfg.input).is_dir():
        raise InputError(f"input={cfg.input}: wanted the output folder of recipe=dino_x2, which writes DINO's pairs.")
    given = Path(cfg.input)
    try:
        manifest = read_manifest(given)
    except InputError as error:
        message = str(error).replace("output=", "input=", 1)
        raise InputError(f"{message} recipe=gense_dino reads what recipe=dino_x2 wrote.") from None
    about = manifest["identity"]
    if about.get("kind") != "x2":
        raise InputError(
            f"input={given}: wanted DINO's pairs (recipe=dino_x2 or dino_x1x2); this is a data set of kind "
            f"{about.get('kind')}."
        )
    if not manifest["complete"]:
        raise InputError(f"input={given}: it is not finished. Finish it first: the command that began it goes on.")
    if folder.resolve() == given.resolve():
        raise InputError(f"output={folder} holds the pairs themselves. Choose another output.")
    refuse_unknown(map(str, cfg.labels), DIRECTIONS, "labels.")
    labels: dict[Direction, str] = {direction: str(cfg.labels[direction]) for direction in DIRECTIONS}
    known = list(about["spec"]["labels"])
    for direction, label in labels.items():
        if label not in known:
            raise InputError(f"labels.{direction}={label!r}: {given} has the labels {', '.join(map(repr, known))}.")

    def open_() -> Opened:
        source = FromDino(given, labels)
        number = len(source.rows)
        if not number:
            raise InputError(f"input={given}: it holds no pair. Its report.md says why.")
        inputs = int(manifest["counts"]["inputs"])
        left_out = {"without any accepted text": inputs - number} if inputs > number else {}
        counts = {"texts": inputs, "sentences": inputs, "kept": number, "left_out": left_out}
        return Opened(number, counts, source)

    shards = [one["sha256"] for one in manifest["shards"]]
    return Method({"input": {"identity": about, "shards": shards}, "labels": dict(labels)}, open_)
