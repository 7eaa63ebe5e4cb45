"""Who may import whom, and what the source must not hold. Change a table on purpose, never to make a red test green."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {  # of ours
    "contracts": set(),
    "prompts": {"contracts"},
    "files": {"contracts"},
    "command": {"contracts"},
    "losses": set(),
    "datamodules": {"contracts", "files", "prompts"},
    "encoders": {"contracts", "files", "losses", "prompts"},
    "evaluation": {"contracts", "files"},
    "export": {"contracts", "encoders", "files", "prompts"},
    "synthesis": {"command", "contracts", "encoders", "files", "prompts"},
    "comparison": {"command", "contracts", "files"},
    "preview": {"contracts", "datamodules", "files"},
    "training": {"command", "contracts", "encoders", "evaluation", "export", "files"},
    "train": {"command", "contracts", "encoders", "evaluation", "export", "files", "training"},
}
LIGHTNING = {"lightning", "pytorch_lightning"}
HYDRA = {"hydra", "omegaconf"}
MUST_NOT_KNOW = {
    "contracts": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "command": LIGHTNING | {"transformers", "wandb"},
    "files": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "losses": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "prompts": LIGHTNING | HYDRA | {"torch", "transformers", "wandb"},
    "datamodules": HYDRA | {"wandb"},
    "encoders": HYDRA | {"wandb"},
    "evaluation": HYDRA | {"wandb"},
    "export": HYDRA | {"wandb"},
    "synthesis": HYDRA | {"wandb"},
    "comparison": HYDRA | LIGHTNING | {"transformers"},
    "preview": HYDRA | {"wandb"},
    "training": {"wandb"},
}
# Command lines compose: they may use Hydra and print, evaluation's may load an encoder, and nobody imports them
COMMAND_LINES = {"__main__.py", "comparison/sweep.py", "export/embed.py", "train.py"}
# And these, each of them:
COMMAND_LINE_ALSO = {
    "evaluation": {"encoders"},
    "comparison": {"encoders", "evaluation", "training"},
    "export": {"training"},
    "synthesis": {"training"},
    "preview": {"encoders", "training"},  # the tokenizer that backbone=tiny would have; which stage is shown
}
FOR_COMMAND_LINES = {"command"}
NEVER = {"sentence_transformers", "tests", "benchmarks"}  # the first is the oracle of our export
# An optional extra: models that are more than a transformer and a pooling are scored by their own library
EXCEPT = {"encoders/library.py": {"sentence_transformers"}}

MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}

SOURCES = sorted(
    path for home in MAY_IMPORT for path in [*(ROOT / home).rglob("*.py"), ROOT / f"{home}.py"] if path.is_file()
)
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
EVERY_SOURCE = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))


def home_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def is_command_line(path: Path) -> bool:
    return bool({path.name, str(path.relative_to(ROOT))} & COMMAND_LINES)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of what is imported, inside functions too: ``a.b``, and ``a.b.c`` of ``from a.b import c``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_walk_finds_the_project():
    homes = {home_of(path) for path in SOURCES}
    assert homes >= {"contracts", "losses", "datamodules", "encoders", "evaluation", "export", "train", "training"}
    assert len(SOURCES) >= 40
    assert len(CONFIGS) >= 10


def test_every_folder_of_code_stands_in_the_table():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders - {"tests", "benchmarks", "configs"} <= set(MAY_IMPORT)


@EVERY_SOURCE
def test_imports_follow_the_arrows(path):
    home = home_of(path)
    allowed = {home} | MAY_IMPORT[home]
    if is_command_line(path):
        allowed |= FOR_COMMAND_LINES | COMMAND_LINE_ALSO.get(home, set())
    names = set(imported(parsed(path)))
    ours = {name.split(".")[0] for name in names} & set(MAY_IMPORT)
    assert ours <= allowed, f"{home} must not import {sorted(ours - allowed)}"
    commands = {".".join(Path(name).with_suffix("").parts) for name in COMMAND_LINES} - {"__main__"}
    called = {name for name in names if name.endswith("__main__") or name in commands}
    assert not called, f"nobody imports a command line, but this imports {sorted(called)}"


@EVERY_SOURCE
def test_packages_do_not_know_what_lies_outside_them(path):
    home = home_of(path)
    roots = {name.split(".")[0] for name in imported(parsed(path))}
    forbidden = NEVER | (MUST_NOT_KNOW.get(home, set()) - (HYDRA if is_command_line(path) else set()))
    forbidden = forbidden - EXCEPT.get(str(path.relative_to(ROOT)), set())
    assert not roots & forbidden, f"{home} must not import {sorted(roots & forbidden)}"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (
            r"find_unused_parameters[\"']?\s*[:=]\s*true|ddp_find_unused_parameters_true",
            "it hides weights without a gradient",
        ),
        (r"trust_remote_code[\"']?\s*[:=]\s*true", "a model folder must not run code"),
        (r"weights_only[\"']?\s*[:=]\s*false", "a checkpoint must not run code"),
    ],
)
def test_a_dangerous_switch_is_never_thrown(pattern, reason):
    for path in [*SOURCES, *CONFIGS]:
        found = re.search(pattern, path.read_text(encoding="utf-8"), flags=re.IGNORECASE)
        assert not found, f"{path.relative_to(ROOT)}: {found and found.group()}: {reason}"


@EVERY_SOURCE
def test_only_command_lines_print(path):
    if is_command_line(path):
        return
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    lines = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert not lines, f"print in lines {lines}; use a logger"


@EVERY_SOURCE
def test_the_world_size_multiplies_only_in_the_gather(path):
    """A gradient that is right on one process and wrong on two usually holds such a product.

    Data modules are free to: they count examples, and no gradient passes through them.
    """
    if path == ROOT / "losses" / "gather.py" or home_of(path) == "datamodules":
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Mult):
            sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.target, node.value]
            named = [re.search(r"world", ast.unparse(side)) for side in sides]
            assert not any(named), f"line {node.lineno}: {ast.unparse(node)}"


@EVERY_SOURCE
def test_a_file_is_one_idea(path):
    assert path.stem not in VAGUE_NAMES, "name what it is about"
    tree = parsed(path)
    assert ast.get_docstring(tree) or not tree.body, "the module docstring says the idea"
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{lines} lines"


@EVERY_SOURCE
def test_a_function_fits_on_a_screen(path):
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = {
        f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno - f.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    }
    assert not long, f"more than {MOST_LINES_OF_A_FUNCTION} lines: {long}"
