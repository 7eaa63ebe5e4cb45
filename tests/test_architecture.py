"""Who may import whom, and what the source must not hold. Change a table on purpose, never to make a red test green."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {  # of ours
    "contracts": set(),
    "prompts": {"contracts"},
    "storage": {"contracts"},
    "readers": {"contracts", "storage"},
    "reports": {"contracts"},
    "cli": {"contracts"},
    "losses": set(),
    "workers": {"cli", "contracts"},
    "datamodules": {"contracts", "readers", "reports", "storage", "prompts", "workers"},
    "encoders": {"contracts", "readers", "reports", "storage", "losses", "prompts"},
    "evaluation": {"cli", "contracts", "readers", "reports", "storage"},
    "export": {"contracts", "encoders", "readers", "reports", "storage", "prompts"},
    "synthesis": {
        "cli",
        "contracts",
        "datamodules",
        "encoders",
        "readers",
        "reports",
        "storage",
        "prompts",
        "workers",
    },
    "comparison": {"cli", "contracts", "reports", "storage", "losses", "workers"},
    "preview": {"cli", "training"},
    "training": {
        "cli",
        "contracts",
        "datamodules",
        "encoders",
        "evaluation",
        "export",
        "losses",
        "readers",
        "reports",
        "storage",
        "synthesis",
    },
    "train": {"cli", "training"},
}
LIGHTNING = {"lightning", "pytorch_lightning"}
HYDRA = {"hydra", "omegaconf"}
MUST_NOT_KNOW = {
    "contracts": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "cli": LIGHTNING | {"transformers", "wandb"},
    "readers": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "reports": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "storage": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "losses": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "prompts": LIGHTNING | HYDRA | {"torch", "transformers", "wandb"},
    "datamodules": HYDRA | {"wandb"},
    "encoders": HYDRA | {"wandb"},
    "evaluation": HYDRA | {"wandb"},
    "export": HYDRA | {"wandb"},
    "synthesis": HYDRA | {"wandb"},
    "comparison": HYDRA | LIGHTNING | {"transformers"},
    "training": {"wandb"},
}
# Command lines compose: they may use Hydra and print, evaluation's may load an encoder, and nobody imports them
COMMAND_LINES = {
    "__main__.py",
    "contrastive_encoders/cli/sweep.py",
    "contrastive_encoders/cli/mine_negatives.py",
    "contrastive_encoders/cli/download_data.py",
    "contrastive_encoders/cli/embed.py",
    "train.py",
    "contrastive_encoders/cli/preview.py",
    "preview.py",
}
# And these, each of them:
COMMAND_LINE_ALSO = {
    "datamodules": {"cli", "encoders"},  # mining loads an encoder
    "evaluation": {"encoders"},
    "comparison": {"encoders", "evaluation", "training"},
    "export": {"cli", "workers"},
    "training": {"datamodules"},  # a preview draws batches
}
NEVER = {"sentence_transformers", "tests", "benchmarks"}  # the first takes seconds to import
# The library runs models that are more than a transformer and a pooling, mines negatives, and writes its folders
USERS = (
    "contrastive_encoders/cli/mine_negatives.py",
    "encoders/loading/sentence_transformers_fallback.py",
    "contrastive_encoders/export/sentence_transformers.py",
)
EXCEPT = {path: {"sentence_transformers"} for path in USERS}
DANGEROUS = {
    r"find_unused_parameters[\"']?\s*[:=]\s*true|ddp_find_unused_parameters_true": "it hides idle weights",
    r"trust_remote_code[\"']?\s*[:=]\s*true": "a model folder must not run code",
    r"weights_only[\"']?\s*[:=]\s*false": "a checkpoint must not run code",
}
MOST_NAMES = 17  # that an installation adds to what can be imported
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for home in MAY_IMPORT
    for path in sorted([*(ROOT / home).rglob("*.py"), *ROOT.glob(f"{home}.py")])
}


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse(SOURCES[path], filename=path)


def home_of(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def is_command_line(path: str) -> bool:
    return bool({path, path.split("/")[-1]} & COMMAND_LINES)


def imported(path: str) -> set[str]:
    """Full names of what is imported, inside functions too: ``a.b``, and ``a.b.c`` of ``from a.b import c``."""
    found = set[str]()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def roots(path: str) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def nodes(path: str, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, kinds))


def test_the_tables_have_every_package_and_no_more_names_than_agreed():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    modules = {path.stem for path in ROOT.glob("*.py")}
    assert packages | modules == set(MAY_IMPORT)
    assert len(MAY_IMPORT) <= MOST_NAMES
    assert len(SOURCES) >= 40


def test_imports_follow_the_arrows():
    wrong = list[str]()
    commands = {name.removesuffix(".py").replace("/", ".") for name in COMMAND_LINES} - {"__main__"}
    for path in SOURCES:
        home, names = home_of(path), imported(path)
        allowed = {home} | MAY_IMPORT[home] | (COMMAND_LINE_ALSO.get(home, set()) if is_command_line(path) else set())
        wrong += [f"{path} imports {name}" for name in sorted(roots(path) & set(MAY_IMPORT) - allowed)]
        called = sorted(name for name in names if name.endswith("__main__") or name in commands)
        wrong += [f"{path} imports the command line {name}" for name in called if path != "preview.py"]
    assert wrong == []


def test_every_arrow_of_the_table_is_drawn():
    drawn = {(home_of(path), root) for path in SOURCES if not is_command_line(path) for root in roots(path)}
    drawn |= {(home, root) for home in ("train", "preview") for root in roots(f"{home}.py")}
    tabled = {(home, other) for home, others in MAY_IMPORT.items() for other in others}
    assert sorted(tabled - drawn) == []


def test_packages_do_not_know_what_lies_outside_them():
    wrong = list[str]()
    for path in SOURCES:
        forbidden = NEVER | (MUST_NOT_KNOW.get(home_of(path), set()) - (HYDRA if is_command_line(path) else set()))
        wrong += [f"{path} imports {name}" for name in sorted(roots(path) & (forbidden - EXCEPT.get(path, set())))]
    assert wrong == []


def test_a_dangerous_switch_is_never_thrown():
    configs = {str(path): path.read_text(encoding="utf-8") for path in (ROOT / "configs").rglob("*.yaml")}
    assert len(configs) >= 10
    assert [
        f"{path}: {found.group()}: {reason}"
        for path, text in (SOURCES | configs).items()
        for pattern, reason in DANGEROUS.items()
        if (found := re.search(pattern, text, flags=re.IGNORECASE))
    ] == []


def test_only_command_lines_print():
    assert [
        f"{path}:{call.lineno}: print; use a logger"
        for path in SOURCES
        if not is_command_line(path)
        for call in nodes(path, ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ] == []


def test_the_world_size_multiplies_only_in_the_gather():
    """A gradient that is right on one process and wrong on two usually holds such a product.

    Data modules are free to: they count examples, and no gradient passes through them.
    """
    assert [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if path != "losses/gather.py" and home_of(path) != "datamodules"
        for node in nodes(path, ast.BinOp, ast.AugAssign)
        if isinstance(node.op, ast.Mult) and "world" in ast.unparse(node)
    ] == []


def test_a_file_has_a_name_and_a_docstring_that_say_its_idea():
    wrong = list[str]()
    for path in SOURCES:
        if Path(path).stem in VAGUE_NAMES:
            wrong.append(f"{path}: name what it is about")
        if parsed(path).body and not ast.get_docstring(parsed(path)):
            wrong.append(f"{path}: the module docstring says the idea")
    assert wrong == []
