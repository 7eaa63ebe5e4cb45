"""The commands in README.md and docs/, for every test that composes or runs them."""

import re
import shlex
from pathlib import Path

import contrastive_encoders.cli.compare
import contrastive_encoders.cli.embed
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.export
import contrastive_encoders.cli.mine_negatives  # noqa: F401  they register the config classes
from contrastive_encoders.cli.download_data import read_arguments as read_corpora
from contrastive_encoders.cli.generate import kind_of
from contrastive_encoders.cli.hydra_main import config_of
from contrastive_encoders.cli.main import adapt_arguments, improve_arguments, race_arguments
from contrastive_encoders.cli.preview import read_arguments as read_preview
from contrastive_encoders.cli.sweep import read_arguments as read_sweep
from contrastive_encoders.comparison.compare_config import CompareConfig
from contrastive_encoders.comparison.sweep_file import format_overrides
from contrastive_encoders.encoders.pooling import POOLERS
from contrastive_encoders.evaluation.catalog import ENTRIES, SUITES
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.export.embed_config import EmbedConfig
from contrastive_encoders.export.export_config import ExportConfig
from contrastive_encoders.synthesis.mining.mine_config import MineConfig
from contrastive_encoders.training.checks import check_model_and_data, check_values
from contrastive_encoders.training.compose import compose as compose_run
from contrastive_encoders.training.composition.config_store import compose_config
from contrastive_encoders.training.resolve import resolve

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (
    "README",
    *(
        f"docs/{name}"
        for name in """start improve data public-datasets train stages-and-mixtures backbones negatives synthetic-data
    evaluate comparison export distributed speed-and-memory""".split()
    ),
)
PAPERS = ("docs/papers", "docs/papers-dino", "docs/papers-declutr", "docs/papers-gense")
REFERENCE = (*PAPERS, "docs/recipes", "docs/gense", "docs/evaluation-protocols")
RECORDS = tuple(
    f"docs/{name}"
    for name in """results results/claims results/dino/README results/head_to_head/README
    results/real/README results/tau_ap/README""".split()
)
LAUNCHED = re.compile(
    r"(?:(?:torchrun --nproc-per-node \d+(?: --max-restarts=\d+)?|srun python|python) (?:-m contrastive_encoders )?"
    r"|contrastive-encoders )(?P<target>[\w.-]+)(?P<arguments>.*)"
)


def text_of(page: str) -> str:
    return (ROOT / f"{page}.md").read_text(encoding="utf-8")


def in_blocks(page: str) -> list[str]:
    """Return the lines of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def in_lines(page: str) -> list[str]:
    """Return complete commands in a sentence or a table; ``contrastive-encoders export`` alone is a command's name."""
    found = re.findall(r"`((?:python|torchrun|srun|contrastive-encoders) [^`]+)`", text_of(page))
    return [one for one in found if page not in RECORDS and "=" in one]


def commands_of(*pages: str) -> list[str]:
    """Return every command of the pages, once."""
    return list(dict.fromkeys(line for page in pages for line in [*in_blocks(page), *in_lines(page)]))


def parts_of(command: str) -> tuple[str, list[str]]:
    """Return the command's name and its arguments."""
    match = LAUNCHED.fullmatch(command)
    assert match, f"{command}: no command that is known"
    return match["target"].removesuffix(".py"), shlex.split(match["arguments"])


def check_command(command: str) -> None:
    """Compose the config of a command, and check what is possible before data is read.

    Raises an error if a key or value is wrong.
    """
    target, arguments = parts_of(command)
    if "--cfg" in arguments:
        compose_config("train", arguments[: arguments.index("--cfg")])
    elif "--help" not in arguments:
        CHECKS[target](arguments)


def _check_train(arguments: list[str]) -> None:
    for run in resolve(compose_run(arguments)).trainings:
        check_model_and_data(run)
        check_values(run)
        _check_suite(run.evaluation.suite)


def _check_suite(suite: str | list[str]) -> None:
    for name in [suite] if isinstance(suite, str) else suite:
        assert name.removesuffix("@senteval") in {*SUITES, *ENTRIES, "mteb"}


def _check_evaluation(arguments: list[str]) -> None:
    cfg = compose_config("evaluate", arguments)
    config_of(cfg, EvaluateConfig)
    _check_suite(cfg.suite)
    assert cfg.pooling in {None, "first_decoder", *POOLERS}
    assert (cfg.encoder is None) == (cfg.action != "score")


def _check_synthesis(arguments: list[str]) -> None:
    cfg = compose_config("generate", arguments)
    config_of(cfg, kind_of(cfg))


def _check_comparison(arguments: list[str]) -> None:
    cfg = compose_config("compare", arguments)
    config_of(cfg, CompareConfig, without="race")
    assert cfg.runs or cfg.race


def _check_sweep(arguments: list[str]) -> None:
    """Check the first and the last trial; tests of sweeps compose all."""
    asked = read_sweep(
        [str(ROOT / argument) if argument.startswith("configs/") else argument for argument in arguments]
    )
    for values in (asked.sweep.grid()[0], asked.sweep.grid()[-1]):
        check_values(resolve(compose_run([*asked.sweep.overrides, *format_overrides(values), *asked.overrides])))


CHECKS = {
    "train": _check_train,
    "improve": lambda arguments: _check_train(_without_help(improve_arguments(arguments))),
    "adapt": lambda arguments: _check_comparison(_without_help(adapt_arguments(arguments))),
    "evaluate": _check_evaluation,
    "generate": _check_synthesis,
    "compare": _check_comparison,
    "race": lambda arguments: _check_comparison(_without_help(race_arguments(arguments))),
    "sweep": _check_sweep,
    "preview": read_preview,
    "download-data": read_corpora,
    "mine-negatives": lambda arguments: config_of(compose_config("mine-negatives", arguments), MineConfig),
    "export": lambda arguments: config_of(compose_config("export", arguments), ExportConfig),
    "embed": lambda arguments: config_of(compose_config("embed", arguments), EmbedConfig),
}


def _without_help(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if not argument.startswith("hydra/help=")]
