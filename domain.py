"""In-domain sentences become triplets before a run in stages begins: synthesis is started as the command that it is.

What is to be scored is left out of the texts: the sentences of the run's tasks go to synthesis as a file, which counts
those that it meets. Everything lies in ``domain.folder``; the command goes on where it was.
"""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TypedDict, get_type_hints

from omegaconf import DictConfig, OmegaConf

from checks import names_of
from contracts import InputError
from key_types import check_types
from stages import as_value, as_words

ROOT = Path(__file__).resolve().parent
HELD_OUT, TRIPLETS = "held_out.txt", "triplets"
# A process that was started by torchrun or srun must not take synthesis for one of several
OF_A_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")

log = logging.getLogger(__name__)


class DomainKeys(TypedDict):
    """What ``configs/experiment/gense_domain.yaml`` has under ``domain``."""

    path: str | None
    generator: str | None
    folder: str


def domain_words(cfg: DictConfig) -> list[str]:
    """Where the stage ``domain`` finds its triplets, as a word of the command line; none where the user says so."""
    domain = cfg.get("domain")
    if domain is None:
        return []
    check_types(domain, get_type_hints(DomainKeys), "domain.")
    if domain.path is None:
        return []
    return [f"stages.domain.data.path={as_value(str(Path(domain.folder).absolute() / TRIPLETS))}"]


def synthesise_domain(cfg: DictConfig) -> int:
    """Write the triplets, unless they are there; the exit status of synthesis, which says itself what is wrong."""
    domain = cfg.get("domain")
    done = (Path(cfg.output_dir) / "results.json").is_file() and not cfg.overwrite
    if domain is None or domain.path is None or done:
        return 0
    for key, wanted in (("path", "in-domain sentences"), ("generator", "a run of model=gense_generator, or a hub id")):
        if domain[key] is None or (key == "path" and not Path(domain[key]).is_file()):
            raise InputError(f"domain.{key}={domain[key]}: wanted {wanted}. Say domain.{key}=...")
    folder = Path(domain.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    number = write_held_out(cfg, folder / HELD_OUT)
    log.info("domain: writing triplets for %s; %d sentences of what is scored are left out", domain.path, number)
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_LAUNCHER}
    command = [sys.executable, "-m", "synthesis", *synthesis_words(cfg, folder)]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if status == 0:
        log.info("domain: %s", told(folder / TRIPLETS))
    return 128 - status if status < 0 else status  # -9: killed


def synthesis_words(cfg: DictConfig, folder: Path) -> list[str]:
    """The command line of the synthesis; what the user says about it comes last."""
    domain = cfg.domain
    own = OmegaConf.to_container(domain.synthesis, resolve=True) if OmegaConf.is_dict(domain.synthesis) else None
    if not isinstance(own, dict):
        raise InputError(
            f"domain.synthesis={domain.synthesis}: wanted keys of python -m synthesis, such as "
            "+domain.synthesis.rules.threshold=0.8."
        )
    ours = {
        "recipe": "gense",
        "generator": _absolute(domain.generator),
        "input": _absolute(domain.path),
        "output": str(folder / TRIPLETS),
        "sentences": {"without": str(folder / HELD_OUT)},
        "quiet": bool(cfg.quiet),
    }
    return [*as_words(ours, "domain"), *as_words({str(key): value for key, value in own.items()}, "domain")]


def write_held_out(cfg: DictConfig, path: Path) -> int:
    """The distinct sentences of the tasks that the run is scored on, one per line; how many."""
    from evaluation.catalogue import load_tasks
    from evaluation.suite import Suite

    scoring = cfg.evaluation
    if scoring.data_root is None:
        log.warning("domain: evaluation.data_root is not set, so no test sentences are known that could be left out.")
        sentences = set[str]()
    else:
        names = dict.fromkeys([*names_of(scoring.suite), *names_of(scoring.during)])
        suite = Suite(load_tasks(scoring.data_root, list(names), prefix="evaluation.").tasks)
        sentences = {" ".join(text.split()) for texts in suite.sentences().values() for text in texts}
    path.write_text("".join(f"{one}\n" for one in sorted(sentences)), encoding="utf-8")
    return len(sentences)


def told(triplets: Path) -> str:
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
