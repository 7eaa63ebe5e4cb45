"""In-domain sentences become triplets before a run in stages begins: synthesis is started as the command that it is.

What is to be scored is left out of the texts: the sentences of the run's tasks go to synthesis as a file, which counts
those that it meets. Everything lies in ``domain.folder``; the command goes on where it was.
"""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from omegaconf import DictConfig, OmegaConf

from command.children import lone_environment, run_child
from command.config_files import ROOT
from command.keys import check_types, declared, of_defaults
from contracts import InputError, is_address
from evaluation.catalogue import load_tasks
from evaluation.suite import Suite
from evaluation.task import Options
from files.listing import list_files
from training.checks import names_of
from training.parts import data_of, make_data
from training.scoring import in_form_that_is_there, own_suite
from training.stages import Stage, as_value, as_words

HELD_OUT, TRIPLETS = "held_out.txt", "triplets"
WRONG = 2  # exit status

log = logging.getLogger(__name__)


class DomainKeys(TypedDict):
    """What ``configs/experiment/gense_domain.yaml`` has under ``domain``."""

    path: str | Sequence[str] | None
    generator: str | None
    folder: str


def domain_words(cfg: DictConfig) -> list[str]:
    """Where the stage ``domain`` finds its triplets, as a word of the command line; none where the user says so."""
    domain = cfg.get("domain")
    if domain is None:
        return []
    check_types(domain, declared(DomainKeys), "domain.")
    if domain.path is None:
        return []
    return [f"stages.domain.data.path={as_value(str(triplets_of(domain)))}"]


def triplets_of(domain: DictConfig) -> Path:
    return Path(domain.folder).absolute() / TRIPLETS


def synthesise_domain(cfg: DictConfig, selected: Sequence[Stage]) -> int:
    """Write the triplets, unless they are there or no stage that is ``selected`` reads them; the exit status of
    synthesis, which says itself what is wrong.

    Raises:
        InputError: something is wrong with what is given, the data of the other stages too: hours may go by until their
            turn comes.
    """
    domain = cfg.get("domain")
    done = (Path(cfg.output_dir) / "results.json").is_file() and not cfg.overwrite
    if domain is None or domain.path is None or done:
        return 0
    wanted = str(triplets_of(domain))
    readers = [stage for stage in selected if wanted in (one.get("path") for one in data_of(stage.cfg).values())]
    if not readers and cfg.backbone != "tiny":  # whose vocabulary is of all stages
        return 0
    _check(domain)
    for stage in selected:
        if stage not in readers:
            with stage.named_in_errors():
                make_data(stage.cfg)  # it looks at its files
    folder = Path(domain.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    number = write_held_out(cfg, folder / HELD_OUT)
    log.info("domain: writing triplets for %s; %d sentences of what is scored are left out", domain.path, number)
    status = run_child([sys.executable, "-m", "synthesis", *synthesis_words(cfg, folder)], ROOT, lone_environment())
    if status == 0:
        log.info("domain: %s", outcome(folder / TRIPLETS))
    elif status == WRONG:
        log.warning(
            "domain: that came from python -m synthesis, whose input, generator and output are domain.path, "
            "domain.generator and domain.folder here; its other keys are +domain.synthesis.KEY=VALUE."
        )
    return status


def _check(domain: DictConfig) -> None:
    list_files(paths_of(domain), "domain.path", any_name=True)
    if domain.generator is None:
        raise InputError("domain.generator=null: wanted a run of model=gense_generator, or a hub id. Name one.")


def paths_of(domain: DictConfig) -> list[str]:
    return [domain.path] if isinstance(domain.path, str) else list(domain.path)


def synthesis_words(cfg: DictConfig, folder: Path) -> list[str]:
    """The command line of the synthesis; what the user says about it comes last."""
    domain = cfg.domain
    own = OmegaConf.to_container(domain.synthesis, resolve=True) if OmegaConf.is_dict(domain.synthesis) else None
    if not isinstance(own, dict):
        raise InputError(
            f"domain.synthesis={domain.synthesis}: wanted keys of python -m synthesis, such as "
            "+domain.synthesis.rules.threshold=0.8."
        )
    given = {
        "recipe": "gense",
        "generator": _absolute(domain.generator),
        "input": [one if is_address(one) else str(Path(one).absolute()) for one in paths_of(domain)],  # patterns too
        "output": str(folder / TRIPLETS),
        "sentences": {"without": str(folder / HELD_OUT)},
        "quiet": bool(cfg.quiet),
    }
    return [*as_words(given), *as_words({str(key): value for key, value in own.items()})]


def write_held_out(cfg: DictConfig, path: Path) -> int:
    """The distinct texts of the tasks that are scored, and the lines of longer ones, one per line; how many."""
    scoring, options = cfg.evaluation, of_defaults(Options, "evaluation")
    tasks = own_suite(cfg, options)
    if scoring.data_root is None:
        log.warning("domain: evaluation.data_root is not set, so no sentences of its suite could be left out.")
    else:
        during = [in_form_that_is_there(scoring.data_root, name) for name in names_of(scoring.during)]
        names = dict.fromkeys([*names_of(scoring.suite), *during])
        tasks += load_tasks(scoring.data_root, list(names), options, prefix="evaluation.").tasks
    whole = {text for texts in Suite(tasks).sentences().values() for text in texts}
    sentences = {" ".join(part.split()) for text in whole for part in (text, *text.splitlines())} - {""}
    path.write_text("".join(f"{one}\n" for one in sorted(sentences)), encoding="utf-8")
    return len(sentences)


def outcome(triplets: Path) -> str:
    """What came out, by the manifest of the synthesis."""
    found = json.loads((triplets / "manifest.json").read_text(encoding="utf-8"))
    sentences, left_out = found["sentences"]["sentences"], found["sentences"]["left_out"].get("held out", 0)
    return (
        f"{left_out:,} of its {sentences:,} sentences are among those that are scored, and were left out; "
        f"{found['counts']['accepted']:,} triplets in {triplets}"
    )


def _absolute(name: str) -> str:
    """Of a file or folder; ids of the hub stay."""
    return str(Path(name).absolute()) if Path(name).exists() else name
