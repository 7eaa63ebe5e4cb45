"""What every command line shares: names in the configs, exit statuses, and messages instead of tracebacks.

0 done; 2 the command line, config or input is wrong; 1 failed while running; 130 and 143 interrupted. Hydra alone exits
with 1 on a typo and leaves a traceback, so it is made to raise and the outcome is mapped here.
"""

import contextlib
import difflib
import hashlib
import json
import os
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contracts import InputError

# Two idle OpenMP threads that spin make everything 15 times slower as soon as something else wants their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What does not change the result, so that a run is found again on another machine, or with other loggers.
NOT_IDENTITY = (
    "hydra", "output_dir", "devices", "num_nodes", "logger", "resume", "overwrite", "quiet", "next_steps",
    "data_licence", "stages", "only_stage",
)  # fmt: skip
NOT_IDENTITY_WITHIN = {
    "data": ("quiet", "cache_dir", "num_workers"),
    "trainer": ("accelerator", "devices", "num_nodes", "strategy", "default_root_dir", "enable_progress_bar"),
}
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
HELP_COLUMNS = 100
FOR_RANK_ZERO = 10.0  # seconds to say what is wrong
FULL_ERROR = "HYDRA_FULL_ERROR"
_USERS_FULL_ERROR = os.environ.get(FULL_ERROR, "0")


@contextlib.contextmanager
def exit_statuses(
    hydra: bool = False, failed: tuple[type[Exception], ...] = (), config: str = "train"
) -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status; ``failed`` are the errors of status 1.

    ``config`` is the command's file in ``configs/``, whose keys a typo is compared with.

    Put around Hydra's ``main`` (``hydra=True``: it must raise instead of printing) for what it refuses itself, and
    around its body, because Hydra prints about whatever leaves it.
    """
    before = os.environ.get(FULL_ERROR, "0")
    os.environ[FULL_ERROR] = "1" if hydra else _USERS_FULL_ERROR  # the body starts processes, which inherit it
    try:
        yield
    except (InputError, HydraException, OmegaConfBaseException) as error:
        cause = input_error(error) or error
        _let_rank_zero_tell()
        _leave(2, str(cause) if isinstance(cause, InputError) else _with_nearest_key(_first_paragraph(cause), config))
    except failed as error:
        _leave(1, str(error))
    except KeyboardInterrupt:
        _leave(130)
    finally:
        os.environ[FULL_ERROR] = before


def _let_rank_zero_tell() -> None:
    """What is wrong with the words or the data is wrong on every process that torchrun started, and is told by one.

    As soon as a process ends with an error, torchrun ends the others. So all but rank 0 stay a while, and what is
    wrong here alone is told nevertheless. Later ranks stay longer, so that one tells it in that case too.
    """
    rank = int(os.environ.get("RANK", "0"))
    if rank > 0 and "TORCHELASTIC_RUN_ID" in os.environ:
        time.sleep(FOR_RANK_ZERO + rank)


def _leave(status: int, message: str = "") -> NoReturn:
    if message and _USERS_FULL_ERROR == "1":
        traceback.print_exc()
    if message:
        sys.stderr.write(f"{_program()}: {' '.join(message.split())}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def _program() -> str:
    path = Path(sys.argv[0])
    return path.parent.name if path.stem == "__main__" else path.name


def input_error(error: BaseException | None) -> BaseException | None:
    """Hydra wraps what a constructor raised; the sentence meant for the user is further down."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def _first_paragraph(error: BaseException) -> str:
    if error.__cause__ is not None and "Error in call to target" in str(error):
        place = re.search(r"^full_key: (.*)$", str(error), flags=re.MULTILINE)
        return f"{place.group(1) if place else 'config'}: {error.__cause__} (HYDRA_FULL_ERROR=1 shows where.)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines if not re.match(r"(full_key|object_type|reference_type)\b", line))


def explained(error: BaseException, config: str, words: Sequence[str]) -> str:
    """In one sentence, what a config that is composed from these words lacks."""
    cause = input_error(error)
    return str(cause) if cause else _with_nearest_key(_first_paragraph(error), config, words)


def _with_nearest_key(message: str, config: str, words: Sequence[str] | None = None) -> str:
    """Hydra says which key it does not know; add the known key that looks most like it."""
    override = re.search(r"Could not override '([^']+)'", message)
    group = re.search(r"In '[^']*': Could not find '([^']+)'|Could not find '([^']+)'", message)
    if override:
        key = override.group(1)
        near = difflib.get_close_matches(key, list(known_keys(config, words)), n=1, cutoff=0.5)
        advice = f"The nearest key is {near[0]}." if near else f"{_command(config)} --help lists the keys."
        return f"there is no key {key!r}. {advice}"
    if group:
        wanted = next(found for found in group.groups() if found)
        name, _, choice = wanted.rpartition("/")
        options = re.search(r"Available options in '[^']*':\s*(.*?)(?: Config search path| Set the env|$)", message)
        choices = options.group(1).split() if options else []
        near = difflib.get_close_matches(choice, choices, n=1, cutoff=0.4)
        return f"{name}={choice} does not exist; choose {', '.join(choices) or 'another'}." + (
            f" The nearest is {near[0]}." if near else ""
        )
    unknown_group = re.search(r"Could not override '?([\w/]+)'?\.?\s*No match in the defaults list", message)
    if unknown_group:
        near = difflib.get_close_matches(unknown_group.group(1), list(known_keys(config, words)), n=1, cutoff=0.4)
        return f"there is no key {unknown_group.group(1)!r}." + (f" The nearest key is {near[0]}." if near else "")
    return message


def _command(config: str) -> str:
    return "python train.py" if config == "train" else f"python -m {config}"


def known_keys(config: str = "train", words: Sequence[str] | None = None) -> Iterator[str]:
    """All keys of the config that the group choices among the words (of the command line) lead to, dotted."""
    from hydra import compose, initialize_config_dir

    GlobalHydra.instance().clear()
    given = sys.argv[1:] if words is None else words
    groups = {"train": "model|data|trainer|logger|experiment", "synthesis": "recipe"}.get(config, "race")
    choices = [word for word in given if re.match(rf"({groups})=", word)]
    with initialize_config_dir(str(Path(__file__).resolve().parents[1] / "configs"), version_base="1.3"):
        composed = compose(config, overrides=choices)
    yield from ("model", "data", "trainer", "logger", "experiment") if config == "train" else ()
    yield from _dotted(composed, "")


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for key in map(str, node):
            yield f"{prefix}{key}"
            yield from _dotted(node._get_node(key), f"{prefix}{key}.")


def identity(config: DictConfig) -> str:
    """Eight hex digits of what decides the result of a run."""
    copy: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=False))
    copy.output_dir = ""  # its default is made of what is computed here
    kept = {}
    for key in map(str, copy):
        if key not in NOT_IDENTITY and not OmegaConf.is_missing(copy, key):
            value = copy[key]
            plain = OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
            if key in NOT_IDENTITY_WITHIN and isinstance(plain, dict):
                plain = {name: part for name, part in plain.items() if name not in NOT_IDENTITY_WITHIN[key]}
            kept[key] = plain
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _lightning_precision(name: str) -> str:
    if name not in PRECISIONS:
        raise InputError(f"precision={name} is unknown; choose {', '.join(PRECISIONS)}.")
    return PRECISIONS[name]


def _epoch_limit(max_epochs: int | None, max_steps: int) -> int:
    """One epoch unless told otherwise; as many as the steps take when only those are given."""
    if max_epochs is not None:
        return max_epochs
    return -1 if isinstance(max_steps, int) and max_steps > 0 else 1


def _usable(folder: str) -> str:
    """Hydra makes this folder before anybody could say in words why that cannot be done."""
    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise InputError(f"output_dir={folder}: wanted a folder, but {there} is a file. Choose another output_dir.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"output_dir={folder}: {there} cannot be written to. Choose another output_dir.")
    return folder


def _choices_of(*groups: str) -> str:
    """What ``--help`` lists; Hydra's own list of the groups has a line of any length for each, and of all commands."""
    loader = GlobalHydra.instance().config_loader()
    lines = [f"{group}: {', '.join(sorted(loader.get_group_options(group)))}" for group in groups]
    return "\n".join(
        textwrap.fill(line, HELP_COLUMNS, subsequent_indent="    ", break_on_hyphens=False) for line in lines
    )


OmegaConf.register_new_resolver("choices_of", _choices_of, replace=True)
OmegaConf.register_new_resolver("lightning_precision", _lightning_precision, replace=True)
OmegaConf.register_new_resolver("epoch_limit", _epoch_limit, replace=True)
OmegaConf.register_new_resolver("usable", _usable, replace=True)
