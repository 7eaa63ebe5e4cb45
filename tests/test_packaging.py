"""The promises of pyproject.toml, constraints.txt and the Makefile, compared with the source that they package."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import find_packages

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT_TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads(PYPROJECT_TEXT)
CORE = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
PACKAGES = [name for name in PYPROJECT["tool"]["setuptools"]["packages"] if not name.endswith(".configs")]
# If it is not the name of the distribution
IMPORT_NAMES = {
    "faiss-cpu": "faiss",
    "hydra-core": "hydra",
    "markdown-it-py": "markdown_it",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "vl-convert-python": "vl_convert",
}
NEEDED_BY = {
    "pytorch_lightning.loggers.WandbLogger": "wandb",  # Lightning imports it when the logger is made
    "wandb": "pillow",  # wandb.Image does, and W&B has it in an extra with unneeded packages
}
OPTIONAL = (
    "quantization",
    "documents",
    "onnx",
    "cluster",
    "faiss",
    "mteb",
    "lora",
    "retrieval",
    "server",
    "sweep",
)  # extras whose import fails with advice
COMES_WITH = {  # two packages in one distribution; a requirement of wandb itself
    "lightning_fabric": "pytorch_lightning",
    "google": "wandb",
}
SOURCES = [path for package in PACKAGES for path in (ROOT / package.replace(".", "/")).glob("*.py")]

checkout = pytest.mark.skipif(
    not (ROOT / "contrastive_encoders" / "losses").is_dir(), reason="an sdist has no symbolic links"
)


def import_name(requirement: Requirement) -> str:
    return IMPORT_NAMES.get(requirement.name, requirement.name.replace("-", "_"))


def imported_names() -> set[str]:
    """Return ``a.b`` of ``import a.b``, and ``a.b.c`` of ``from a.b import c``."""
    names: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_roots() -> set[str]:
    roots = {name.split(".")[0] for name in imported_names()}
    return {COMES_WITH.get(root, root) for root in roots}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(re.fullmatch(r"([\w.-]+)==(\S+)", line).groups() for line in lines if line and line[0] != "#")


@checkout
def test_every_package_and_module_is_packaged():
    """The symbolic links are followed."""
    assert sorted(find_packages(str(ROOT), include=["contrastive_encoders*"])) == sorted(PACKAGES)
    assert len(SOURCES) >= 40


def test_every_import_is_a_declared_dependency():
    optional = {Requirement(line) for name in OPTIONAL for line in EXTRAS[name]}
    undeclared = (
        imported_roots()
        - {"contrastive_encoders"}
        - set(sys.stdlib_module_names)
        - {import_name(r) for r in {*CORE, *optional}}
    )
    assert not undeclared, f"pyproject.toml does not have {sorted(undeclared)}"


@checkout
def test_the_extras_that_dev_and_others_name_exist():
    """pip only warns about an extra that does not exist, and installs nothing."""
    requirements = [Requirement(line) for lines in EXTRAS.values() for line in lines]
    own = [requirement for requirement in requirements if requirement.name == PYPROJECT["project"]["name"]]
    assert own
    for requirement in own:
        assert requirement.extras <= set(EXTRAS), requirement.extras - set(EXTRAS)


def test_every_dependency_does_some_work():
    """It is imported, or a config names it as a target, or a class that needs it is imported."""
    configs = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "configs").rglob("*.yaml"))
    used = imported_roots() | set(re.findall(r"_target_:\s*(\w+)", configs))
    used |= {needed for name, needed in NEEDED_BY.items() if name in imported_names()}
    idle = {import_name(requirement) for requirement in CORE} - used
    assert not idle, f"nothing uses {sorted(idle)}"


def test_the_constraints_pin_every_dependency_inside_its_range():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    wanted = CORE + [Requirement(line) for lines in EXTRAS.values() for line in lines]
    for requirement in wanted:
        if requirement.name == PYPROJECT["project"]["name"]:
            continue  # an extra that includes another
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} does not admit {version}"


def test_the_constraints_hold_on_any_machine():
    local = {
        name: version for name, version in pins().items() if "+" in version or name.startswith(("nvidia-", "cuda-"))
    }
    assert not local, f"builds of one machine: {local}"


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version and the hashes of each package in a file of ``make lock``."""
    text = (ROOT / name).read_text(encoding="utf-8")
    packages = re.findall(r"^([\w.-]+)==([^\s;]+)(.*(?:\n +.*)*)", text, re.M)
    assert len(packages) == len(re.findall(r"^[^#\s]", text, re.M))
    return {
        canonicalize_name(package): (version, re.findall(r"--hash=(\S+)", rest)) for package, version, rest in packages
    }


def test_the_locks_have_the_versions_of_the_constraints_and_hashes():
    """``make lock`` follows every change of constraints.txt."""
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    requirements, torch = locked("requirements.lock"), locked("torch.lock")
    optional = {"gcsfs", "umap-learn"}  # no extra of dev needs them
    assert {name: version for name, (version, _) in requirements.items()} == {
        name: version for name, version in pinned.items() if name not in optional
    }
    assert {"torch", "setuptools"} <= set(torch)
    for name in set(torch) & set(pinned):
        assert torch[name] == requirements[name], name
    for name, (_, hashes) in (requirements | torch).items():
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), name


def test_ci_runs_make_test_and_keeps_its_status(tmp_path):
    """A copy of the script runs next to a Makefile whose tests fail."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    (tmp_path / ".ci").mkdir()
    shutil.copy(script, tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text("test:\n\techo tests ran; exit 3\nlint types:\n\ttrue\n")
    done = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, text=True, check=False, timeout=60)
    assert "tests ran" in done.stdout
    assert done.returncode != 0


def test_the_workflow_makes_what_ci_makes_with_every_declared_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["make"]["strategy"]["matrix"]
    targets = {*matrix["target"], *(entry["target"] for entry in matrix["include"])}
    assert targets >= set(re.findall("^make (.+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))
    known = re.findall("^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {word for target in targets for word in target.split() if "=" not in word} <= set(known)
    declared = re.findall(r"Programming Language :: Python :: (3\.\d+)", PYPROJECT_TEXT)
    assert matrix["python"] == declared


def test_the_leaves_import_nothing_heavy():
    """core and losses serve a notebook without Lightning, transformers or a hub library."""
    heavy = "{'pytorch_lightning', 'transformers', 'datasets', 'wandb', 'hydra', 'omegaconf', 'sklearn'}"
    code = "import sys, contrastive_encoders.core, contrastive_encoders.losses; "
    code += f"found = {heavy} & set(sys.modules); sys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
