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
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contracts import InputError

# Two idle OpenMP threads that spin make everything 15 times slower as soon as something else wants their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What does not change the result, so that a run is found again on another machine, or with other loggers.
NOT_IDENTITY = (
    "hydra", "output_dir", "devices", "num_nodes", "logger", "trainer", "resume", "overwrite", "quiet", "callbacks"
)  # fmt: skip
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit status.

    Put around Hydra's ``main`` for what it refuses itself, and around its body, because Hydra prints about whatever
    leaves it.
    """
    verbose = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra prints and exits by itself
    try:
        yield
    except (InputError, HydraException, OmegaConfBaseException) as error:
        if verbose:
            traceback.print_exc()
        cause = _input_error(error) or error
        message = str(cause) if isinstance(cause, InputError) else _with_nearest_key(_first_paragraph(cause))
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {message}\n")
        _leave(2)
    except KeyboardInterrupt:
        _leave(130)
    finally:
        os.environ["HYDRA_FULL_ERROR"] = "1" if verbose else "0"


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def _input_error(error: BaseException | None) -> BaseException | None:
    """Hydra wraps what a constructor raised; the sentence meant for the user is further down."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def _first_paragraph(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if not re.match(r"(full_key|object_type|reference_type)\b", line)]
    if error.__cause__ is not None and "Error in call to target" in str(error):
        wanted.append(str(error.__cause__))
    return " ".join(wanted)


def _with_nearest_key(message: str) -> str:
    """Hydra says which key it does not know; add the known key that looks most like it."""
    override = re.search(r"Could not override '([^']+)'", message)
    group = re.search(r"In '[^']*': Could not find '([^']+)'|Could not find '([^']+)'", message)
    if override:
        key = override.group(1)
        near = difflib.get_close_matches(key, list(known_keys()), n=1, cutoff=0.5)
        advice = f"The nearest key is {near[0]}." if near else "python train.py --help lists the keys."
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
        near = difflib.get_close_matches(unknown_group.group(1), list(known_keys()), n=1, cutoff=0.4)
        return f"there is no key {unknown_group.group(1)!r}." + (f" The nearest key is {near[0]}." if near else "")
    return message


def known_keys() -> Iterator[str]:
    """All keys of the config that the group choices on the command line lead to, dotted."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    choices = [a for a in sys.argv[1:] if re.match(r"(model|data|trainer|logger|experiment|recipe)=", a)]
    with initialize_config_dir(str(Path(__file__).resolve().parent / "configs"), version_base="1.3"):
        config = compose("train", overrides=choices)
    yield from ("model", "data", "trainer", "logger", "experiment")
    yield from _dotted(config, "")


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for key in node:
            yield f"{prefix}{key}"
            yield from _dotted(node._get_node(key), f"{prefix}{key}.")


def identity(config: DictConfig) -> str:
    """Eight hex digits of what decides the result of a run."""
    copy = OmegaConf.create(OmegaConf.to_container(config, resolve=False))
    copy.output_dir = ""
    plain = OmegaConf.to_container(copy, resolve=False)
    kept = {key: copy[key] for key in plain if key not in NOT_IDENTITY}
    resolved = {
        key: OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
        for key, value in kept.items()
    }
    return hashlib.sha256(json.dumps(resolved, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _run_folder(*, _root_: DictConfig) -> str:
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else _root_.hydra.runtime.choices
    return f"outputs/{choices.get('model')}-{choices.get('data')}-{identity(_root_)}"


def _lightning_precision(name: str) -> str:
    if name not in PRECISIONS:
        raise InputError(f"precision={name} is unknown; choose {', '.join(PRECISIONS)}.")
    return PRECISIONS[name]


def _epoch_limit(max_epochs: int | None, max_steps: int) -> int:
    """One epoch unless told otherwise; as many as the steps take when only those are given."""
    if max_epochs is not None:
        return max_epochs
    return -1 if max_steps > 0 else 1


OmegaConf.register_new_resolver("run_folder", _run_folder, replace=True)
OmegaConf.register_new_resolver("lightning_precision", _lightning_precision, replace=True)
OmegaConf.register_new_resolver("epoch_limit", _epoch_limit, replace=True)
