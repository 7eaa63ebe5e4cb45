"""Entire runs of train.py, as a separate command or, much faster, in a fork of this process."""

import random
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.data import write_rows
from tests.forks import TRAIN, Outcome, Started
from tests.integration.curves import reached

SIZES = [
    "tiny.vocab_size=400",
    "tiny.hidden_size=32",
    "tiny.layers=1",
    "tiny.heads=2",
    "tiny.intermediate_size=64",
    "tiny.max_length=64",
]
TINY = ["backbone=tiny", *SIZES]
NOUNS = "ferry harbour violin bread comet orchard telescope spoon market clock river glass".split()
# Texts from random weights pass no rule
NO_RULES = ["rules.agree=false", "rules.threshold=null", "rules.min_premise_words=0", "rules.min_hypothesis_words=0"]
NO_RULES += ["rules.drop_near_copies=false", "sentences.min_words=1", "max_new_tokens=6"]
SPANS = ["data.min_span=4", "data.max_span=16", "batch_size=6"]


@pytest.fixture(scope="session")
def start() -> Callable[..., Started]:
    """``start("model=declutr", ...)`` begins a run; ``.finish()`` waits for its outcome."""
    return lambda *args, **env: Started(TRAIN, [str(arg) for arg in args], **env)


@pytest.fixture(scope="session")
def command(start) -> Callable[..., Outcome]:
    return lambda *args, **env: start(*args, **env).finish()


@pytest.fixture(scope="session")
def train(command, tmp_path_factory) -> Callable[..., tuple[Path, Outcome]]:
    """``train("model=declutr", ...)`` returns the output folder and the outcome of a run that succeeds."""

    def trained(*args, folder: Path | None = None, **env) -> tuple[Path, Outcome]:
        folder = folder or tmp_path_factory.mktemp("trained") / "run"
        outcome = command(*args, f"output_dir={folder}", **env)
        assert outcome.status == 0, outcome.err
        return folder, outcome

    return trained


@pytest.fixture(scope="session")
def train_killed(start, train) -> Callable[..., None]:
    """``train_killed(folder, overrides, steps)`` kills a run after each of the steps, and resumes it to its end."""

    def killed(folder: Path, overrides: Sequence[str], steps: Iterable[int]) -> None:
        for step in sorted(steps):
            run = start(*overrides, f"output_dir={folder}")
            run.wait_for(lambda step=step: reached(folder, step))
            run.kill(signal.SIGKILL)
            assert run.finish().status == -signal.SIGKILL
            assert not (folder / "results.json").exists()
        train(*overrides, folder=folder)

    return killed


@pytest.fixture(scope="module")
def reference(overrides, train) -> Path:
    """The output folder of an uninterrupted run with the module's ``overrides``."""
    return train(*overrides)[0]


@pytest.fixture(scope="session")
def tiny_run(corpus_file) -> list[str]:
    """The arguments of a run that takes a second: random weights on the small corpus."""
    return ["model=declutr", "data=text", f"data.path={corpus_file}", "backbone=tiny", *SIZES, *SPANS, "max_steps=3"]


@pytest.fixture(scope="session")
def finished(tiny_run, train) -> Path:
    """The output folder of such a run."""
    return train(*tiny_run, drawn=True)[0]


@pytest.fixture(scope="session")
def small_eval(tmp_path_factory) -> Path:
    """An evaluation.data_root with a dozen pairs for development and for the test."""
    root = tmp_path_factory.mktemp("eval")
    (root / "STSBenchmark").mkdir()
    nouns = "ferry harbour violin bread comet orchard telescope spoon".split()
    for name, shift in (("dev", 1), ("test", 3)):
        rows = [
            f"The {nouns[i % 8]} was near the {nouns[(i + shift) % 8]}.\tA {nouns[i % 8]} and a "
            f"{nouns[(i * shift) % 8]} stood there.\t{(i * 7 % 11) / 2.2:.2f}"
            for i in range(12)
        ]
        (root / "STSBenchmark" / f"{name}.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return root


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    rng, path = random.Random(4), tmp_path_factory.mktemp("rows") / "rows.jsonl"
    names = ("premise", "entailment", "contradiction")
    drawn = [rng.sample(NOUNS, 2) for _ in range(40)]
    texts = [(f"A {one} by the {other}, {i}.", f"A {one}.", f"No {one}.") for i, (one, other) in enumerate(drawn)]
    return write_rows(path, (dict(zip(names, row, strict=True)) for row in texts))


@pytest.fixture(scope="session")
def tested(small_eval):
    """A sentence that is scored, as the table spells it."""
    return (small_eval / "STSBenchmark" / "test.tsv").read_text().splitlines()[1].split("\t")[0]


@pytest.fixture(scope="session")
def sentences(tested, tmp_path_factory):
    """Two files."""
    folder = tmp_path_factory.mktemp("domain")
    lines = [f"The {noun} was seen near the {other}." for noun in NOUNS[:5] for other in NOUNS[5:]]
    (folder / "a.txt").write_text("\n".join(lines) + "\n")
    (folder / "b.txt").write_text(tested.upper() + "\n")
    return f"[{folder / 'a.txt'},{folder / 'b.txt'}]"


@pytest.fixture(scope="session")
def domain_overrides(rows, sentences, small_eval, tiny_t5, tmp_path_factory):
    return [
        "experiment=gense_domain",
        "backbone=tiny",
        *SIZES[:5],
        "tiny.dropout=0.1",
        f"domain.path={sentences}",
        f"domain.generator={tiny_t5}",
        f"domain.folder={tmp_path_factory.mktemp('made')}",
        *(f"+domain.synthesis.{override}" for override in NO_RULES),
        f"stages.open.data.path={rows}",
        f"stages.nli.data.path={rows}",
        *(
            f"stages.{name}.{override}"
            for name in ("open", "domain", "nli")
            for override in ("batch_size=8", "max_steps=2")
        ),
        *(f"stages.{name}.max_epochs=null" for name in ("open", "domain", "nli")),
        f"evaluation.data_root={small_eval}",
        "evaluation.suite=[stsb]",
        "evaluation.every_n_steps=1",
    ]
