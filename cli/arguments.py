"""Checks of the command line arguments before Hydra composes the config."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from cli.config_files import choices
from cli.keys import GROUPS
from contracts import InputError, check_local_input, check_local_output
from contracts.settings import cut

# What Hydra builds of its own config, whoever names the class; what stands for something else may be one
BUILT = re.compile(r"hydra(\.(callbacks|job_logging|hydra_logging)(\..*)?|\.launcher|\.sweeper)?")
# What other libraries call a batch that is learnt from in parts
ACCUMULATED = re.compile(r"([\w-]+\.)*(accumulat\w*|(grad|gradient)_accum\w*|n_accum\w*)")
# Last names of the keys under which a command writes, of whatever group of keys
WRITTEN = ("output", "output_dir", "cache_dir", "publish", "save_dir", "dirpath", "default_root_dir")
# and of those that name what is read from this machine alone: models, runs, tables and records
HERE = ("backbone", "encoder", "run", "runs", "data_root", "resume", "ranges", "annotations", "sentences_from")
HYDRAS = ("hydra.run.dir", "hydra.sweep.dir")
OF_A_LIST = re.compile(r"(\.\d+)+$")  # the place of a value in its list
NAMED = re.compile(r"hydra\.(.*_target_|(launcher|sweeper)\..*\$\{)", flags=re.DOTALL)


def check_words(config: str, words: Sequence[str]) -> None:
    """Each group of keys is given the name of a choice, nothing names code for Hydra itself to run, nobody wants
    accumulated gradients, and no address stands where a path on this machine is wanted.

    Raises:
        InputError: one is not, or does.
    """
    for word in words:
        said = word.lstrip("+~")
        key, _, value = said.partition("=")
        _check_path(key, value.strip("[]'\""))  # Hydra makes folders before the command begins
        if BUILT.fullmatch(key) or NAMED.match(said):
            raise InputError(
                f"{cut(word)}: Hydra would build what it names before the command begins, and its code is not run. "
                "Choose a file of Hydra's (hydra/launcher=NAME); callbacks of Lightning's are callbacks.NAME."
            )
        if config == "train" and ACCUMULATED.fullmatch(key):
            raise InputError(
                f"{cut(word)}: gradients need no accumulating: set batch_size to all that a step learns from (your "
                "batch times the number that you accumulate), and token_budget to the tokens that fit the memory; the "
                "batch is cut into chunks, has the gradient of the whole, and all of it gives negatives, which "
                "accumulated batches would not."
            )
        if key in GROUPS.get(config, ()):
            _check_group(key, word)


def check_paths(cfg: DictConfig) -> None:
    """
    Raises:
        InputError: something would be written to an address, which can stand in a YAML file, too; or read from one,
            and is no text.
    """
    for key, value in _texts(OmegaConf.to_container(cfg, resolve=False), ""):
        _check_path(OF_A_LIST.sub("", key), value)


def _check_path(key: str, value: str) -> None:
    name = key.rpartition(".")[2]
    if name in WRITTEN or key in HYDRAS:
        check_local_output(key, value)
    elif name in HERE:
        check_local_input(key, value)


def _texts(node: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, dict | list):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _texts(value, f"{key}.{name}" if key else str(name))


def _check_group(group: str, word: str) -> None:
    try:
        found = OverridesParser.create().parse_override(word)
    except HydraException:
        return  # which says it better
    value = found.value()
    names = value if group == "experiment" and isinstance(value, list) else [value]  # several, one over the other
    if not found.is_sweep_override() and not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{cut(word)}: wanted the name of one of its choices: {', '.join(choices(group))}.")
