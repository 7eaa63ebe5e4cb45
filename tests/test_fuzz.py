"""Every command line with unusual values: each is accepted, or ends with exit code 2 and one line.

The keys are those of the command's own schema. None causes a traceback, hangs, starts a process, or writes into the
home folder or the checkout; values that would take gigabytes are refused before they are allocated.
"""

import importlib
import io
import logging
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString

# They register the config classes
import contrastive_encoders.cli.compare
import contrastive_encoders.cli.embed
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.export
import contrastive_encoders.cli.generate
import contrastive_encoders.training.compose  # noqa: F401
from contrastive_encoders.cli.main import main
from contrastive_encoders.training.composition.config_keys import known_keys
from tests.seed import seed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PER_COMMAND = int(os.environ.get("PER_COMMAND", "143"))  # of each of seven command lines: a thousand take some minutes
AS_COMMANDS = 8
SECONDS = 60  # for one of them
MEMORY = 12 << 30  # of addresses beyond the current ones: a bound on allocations
SIZES = "vocab_size=400 hidden_size=16 layers=1 heads=2 intermediate_size=32 max_length=32".split()
COMMANDS = {  # name: config, arguments that make it work
    "train": (
        "train",
        [
            "model=simcse",
            "data=sentences",
            "data.path={texts}",
            "backbone=tiny",
            "batch_size=4",
            "max_steps=1",
            "output_dir={out}",
            "data.cache_dir={cache}",
            "quiet=true",
            *(f"tiny.{size}" for size in SIZES),
        ],
    ),
    "evaluate": ("evaluate", ["encoder={texts}", "data_root={out}", "suite=[stsb]"]),
    "export": ("export", ["run={texts}", "output={out}"]),
    "embed": ("embed", ["encoder={texts}", "input={texts}", "output={out}.npy"]),
    "generate": (
        "generate",
        ["recipe=dino_x2", "generator={out}", "input={texts}", "output={out}"],
    ),
    "compare": ("compare", ["runs=[{out}]", "output={out}"]),
    "preview": (
        "train",
        [
            "data=sentences",
            "data.path={texts}",
            "data.cache_dir={cache}",
            "quiet=true",
            *(f"tiny.{size}" for size in SIZES),
        ],
    ),
}
# When they are accepted
STARTS_PROCESSES = ("devices", "num_nodes", "num_workers", "tokenizer_workers", "workers", "parallel")
# They start ldconfig, or a compiler, when they are first imported
WANTED = [
    *"""torch torch.utils.data pytorch_lightning torchmetrics transformers.models.roberta.modeling_roberta
    transformers.models.gpt2.modeling_gpt2 transformers.models.t5.modeling_t5 sentence_transformers
    sklearn.linear_model scipy.stats optuna pyarrow.parquet""".split(),
    *(
        f"contrastive_encoders.{name}"
        for name in """datamodules.documents datamodules.row_datamodules datamodules.scored_pairs encoders.loading.load
        export.onnx_graph comparison.report training.stage_loop""".split()
    ),
]
VALUES = [
    -1,
    0,
    1,
    2,
    10**9,
    -(10**9),
    10**17,
    10**20,
    0.5,
    -0.5,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    None,
    "",
    " ",
    "x",
    "null",
    "1",
    "-1",
    "../x",
    "/",
    "/proc/x",
    "/dev/null",
    "a\tb",
    "数据",
    "ĐŞ‮",
    "a'b",
    "${oc.env:NOPE}",
    "${nothing}",
    "os.system",
    "a" * 100_000,
    [],
    [1],
    ["x"],
    [[]],
    {},
    {"x": 1},
    {"_target_": "os.system"},
    [float("nan")],
    "{file}",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "texts.txt").write_text("".join(f"The ferry is in harbour {n}.\n" for n in range(40)))
    (folder / "file").write_bytes(random.Random(seed()).randbytes(1 << 20))
    (folder / "home").mkdir()
    return {
        "texts": folder / "texts.txt",
        "out": folder / "out",
        "cache": folder / "cache",
        "file": folder / "file",
        "home": folder / "home",
        "folder": folder,
    }


def cases(stream, number):
    """Yield (command, key, value), this many of each command line."""
    for command, (config, arguments) in COMMANDS.items():
        draw = random.Random(f"{seed()} {stream} {command}")
        keys = [key for key in known_keys(config, arguments) if not key.startswith("hydra")]
        for _ in range(number):
            key, value = draw.choice(keys), draw.choice(VALUES)
            if key.rpartition(".")[2] in STARTS_PROCESSES and value in (1, 2):
                value = -2  # other tests cover these values
            if key == "max_steps" and value in (10**9, 10**17):
                value = -2  # the run would take as many steps as it is given
            yield command, key, value


def as_value(value):
    """Return a value as written on a command line."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list):
        return f"[{','.join(map(as_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_value(entry)}" for key, entry in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def arguments_of(command, key, value, places, number):
    here = {**places, "out": places["folder"] / f"out{number}"}
    given = [argument.format(**here) for argument in COMMANDS[command][1] if argument.partition("=")[0] != key]
    shown = as_value(value.format(**here) if value == "{file}" else value) if value is not None else "null"
    return [*given, f"{key}={shown}"]


class Hangs(BaseException):
    pass


def in_this_process(command, arguments):
    """Return the exit code and the output, by the same entry point."""

    def too_long(*_):
        raise Hangs

    err, before = io.StringIO(), (sys.argv, sys.stderr, sys.stdout)
    logging.getLogger().handlers.clear()
    GlobalHydra.instance().clear()
    sys.argv, sys.stderr, sys.stdout = [str(ROOT / "contrastive-encoders"), command, *arguments], err, io.StringIO()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        main([command, *arguments])
        return 0, err.getvalue()
    except SystemExit as left:
        return left.code or 0, err.getvalue()
    finally:
        signal.alarm(0)
        sys.argv, sys.stderr, sys.stdout = before


def wrong(status, said):
    """Return the error of an outcome; empty without an error."""
    lines = [line for line in said.splitlines() if line.strip()]
    if "Traceback" in said:
        return f"a traceback: {lines[-1][:300]}"
    if status == 2:
        about = [line for line in lines if line.startswith("contrastive-encoders ")]
        return "" if len(about) == 1 and len(about[0]) < 3000 else f"{len(about)} lines: {said[-300:]}"
    return "" if status == 0 else f"status {status}: {said[-300:]}"


def test_no_command_line_leaves_more_than_a_line(places, monkeypatch):
    for name in WANTED:
        importlib.import_module(name)
    monkeypatch.setenv("HOME", str(places["home"]))
    monkeypatch.chdir(places["folder"])
    started = []

    def refuse(*arguments, **_):
        started.append(arguments)
        raise AssertionError("a process is started")

    for name in ("execve", "fork", "posix_spawn"):
        monkeypatch.setattr(os, name, refuse)

    class Watched(subprocess.Popen):
        def __init__(self, arguments, *args, **keys):
            # When a run is finished, it asks for the commit of the project and draws its curve
            if arguments[0] != "git" and Path(arguments[-1]) != ROOT / "contrastive_encoders" / "reports" / "render.py":
                refuse(arguments)
            super().__init__(arguments, *args, **keys)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    checkout = sorted(path.name for path in ROOT.iterdir())
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    found, accepted = [], 0
    try:
        for number, (command, key, value) in enumerate(cases("in this process", PER_COMMAND)):
            arguments = arguments_of(command, key, value, places, number)
            try:
                status, said = in_this_process(command, arguments)
                problem, accepted = wrong(status, said), accepted + (status == 0)
            except Hangs:
                problem = "it hangs"
            except Exception as error:  # noqa: BLE001  any is a finding
                problem = f"{type(error).__name__}: {str(error)[:200]}"
            if problem:
                found.append(f"{command} {key}={str(value)[:60]!r}: {problem}")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert not found, "\n".join([f"{len(found)} of {number + 1}", *found])
    assert started == []
    assert 0 < accepted < number
    assert sorted(path.name for path in ROOT.iterdir()) == checkout
    assert sorted(places["home"].rglob("*")) == []


def test_some_of_them_as_commands(places):
    found = []
    environment = {**os.environ, "HOME": str(places["home"]), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    for number, (command, key, value) in enumerate(cases("as commands", AS_COMMANDS)):
        arguments = arguments_of(command, key, value, places, f"-command{number}")
        done = subprocess.run(
            [sys.executable, "-m", "contrastive_encoders", command, *arguments],
            cwd=places["folder"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if problem := wrong(done.returncode, done.stderr):
            found.append(f"{command} {key}={str(value)[:60]!r}: {problem}")
    assert found == []
    assert {path.name for path in places["home"].iterdir()} <= {".cache", ".config"}  # where libraries keep their files
