"""Import rules, and forbidden content of the source. Change a table on purpose, never to make a red test green."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {  # packages of contrastive_encoders
    "core": set(),
    "io": {"core"},
    "losses": set(),
    "reports": {"core"},
    "statistics": {"core"},
    "datamodules": {"core", "io"},
    "encoders": {"core", "io", "losses"},
    "evaluation": {"core", "encoders", "io", "reports", "statistics"},
    "export": {"core", "encoders", "io", "reports"},
    "synthesis": {"core", "datamodules", "encoders", "io", "reports"},
    "comparison": {"core", "io", "reports", "statistics"},
    "training": {
        "core",
        "datamodules",
        "encoders",
        "evaluation",
        "export",
        "io",
        "reports",
        "statistics",
        "synthesis",
    },
    "cli": {
        "comparison",
        "core",
        "datamodules",
        "evaluation",
        "export",
        "io",
        "reports",
        "synthesis",
        "training",
    },
}
LIGHTNING = {"lightning", "pytorch_lightning"}
HYDRA = {"hydra", "omegaconf"}
MUST_NOT_KNOW = {
    "core": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "io": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "reports": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "statistics": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "losses": LIGHTNING | HYDRA | {"transformers", "wandb"},
    "datamodules": HYDRA | {"wandb"},
    "encoders": HYDRA | {"wandb"},
    "evaluation": HYDRA | {"wandb"},
    "export": HYDRA | {"wandb"},
    "synthesis": HYDRA | {"wandb"},
    "comparison": HYDRA | LIGHTNING | {"transformers"},
    "training": {"wandb"},
    "training/composition": LIGHTNING | {"transformers", "wandb"},
    "cli": LIGHTNING | {"wandb"},
}
NEVER = {"sentence_transformers", "tests", "benchmarks"}  # the first import takes seconds
# The library runs models that are more than a transformer and a pooling, mines negatives, and writes its folders
USERS = (
    "encoders/loading/sentence_transformers_fallback.py",
    "export/sentence_transformers.py",
    "synthesis/mining/cached_reranker.py",
    "synthesis/mining/mine.py",
)
EXCEPT = {path: {"sentence_transformers"} for path in USERS}
DANGEROUS = {
    r"find_unused_parameters[\"']?\s*[:=]\s*true|ddp_find_unused_parameters_true": "it hides idle weights",
    r"trust_remote_code[\"']?\s*[:=]\s*true": "a model folder must not run code",
    r"weights_only[\"']?\s*[:=]\s*false": "a checkpoint must not run code",
}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}

NAME = "contrastive_encoders"
PACKAGE = ROOT / NAME
SOURCES = {
    str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
    for home in MAY_IMPORT
    for path in sorted((PACKAGE / home).rglob("*.py"))
}
OTHERS = {  # they import the package, and are not part of it
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for pattern in ("*.py", "tests/**/*.py", "benchmarks/**/*.py", "docs/**/*.py", "examples/**/*.py", f"{NAME}/*.py")
    for path in sorted(ROOT.glob(pattern))
}


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((SOURCES | OTHERS)[path], filename=path)


def home_of(path: str) -> str:
    return path.split("/")[0]


def imported(path: str) -> set[str]:
    """Return full names of imports, inside functions too: ``a.b``, and ``a.b.c`` of ``from a.b import c``."""
    found = set[str]()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def roots(path: str) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def homes(path: str) -> set[str]:
    """Return the packages of this project that a file imports."""
    return {name.split(".")[1] for name in imported(path) if name.startswith(f"{NAME}.")}


def nodes(path: str, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, kinds))


def test_the_table_has_every_package():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(MAY_IMPORT)
    assert len(SOURCES) >= 40


def test_imports_follow_the_arrows():
    wrong = list[str]()
    for path in SOURCES:
        home = home_of(path)
        others = homes(path) & set(MAY_IMPORT) - {home} - MAY_IMPORT[home]
        wrong += [f"{path} imports {name}" for name in sorted(others)]
    assert wrong == []


def test_every_arrow_of_the_table_is_drawn():
    drawn = {(home_of(path), home) for path in SOURCES for home in homes(path)}
    tabled = {(home, other) for home, others in MAY_IMPORT.items() for other in others}
    assert sorted(tabled - drawn) == []


def test_first_party_imports_name_the_package():
    """A module that is also imported as ``encoders.pooling`` is loaded twice, with two classes of each name."""
    bare = set(MAY_IMPORT) - set(sys.stdlib_module_names)
    wrong = list[str]()
    for path in (*SOURCES, *OTHERS):
        wrong += [f"{path} imports {name}" for name in sorted(roots(path) & bare)]
        wrong += [f"{path}:{node.lineno}: a relative import" for node in nodes(path, ast.ImportFrom) if node.level]
    assert wrong == []


def test_packages_have_no_paths_outside_them():
    wrong = list[str]()
    for path in SOURCES:
        unknown = (names for folder, names in MUST_NOT_KNOW.items() if path.startswith(f"{folder}/"))
        forbidden = NEVER.union(*unknown) - EXCEPT.get(path, set())
        wrong += [f"{path} imports {name}" for name in sorted(roots(path) & forbidden)]
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


def test_only_commands_print():
    assert [
        f"{path}:{call.lineno}: print; use a logger"
        for path in SOURCES
        if home_of(path) != "cli"
        for call in nodes(path, ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ] == []


def test_the_world_size_multiplies_only_in_the_gather():
    """A gradient that is right on one process and wrong on two usually contains such a product.

    Data modules may use it: they count examples, and no gradient passes through them.
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
