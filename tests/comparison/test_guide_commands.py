"""Run every command of the guide on previews, comparisons, sweeps and races.

The commands run as written, in a folder with the inputs that the page names: texts, runs, tables. Overrides appended to
the command make a sweep and a race small.
"""

import gzip
import json
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.forks import run_command
from tests.guide import GUIDE, ROOT, commands_of

COMMANDS = sorted(
    line for line in commands_of(*GUIDE) if re.match(r"contrastive-encoders (compare|race|sweep|preview) ", line)
)
RACES = [line for line in COMMANDS if "race" in line.split()]
OF_A_SWEEP = [line for line in COMMANDS if "sweep" in line.split() or "tau_ap" in line]
OTHERS = [line for line in COMMANDS if line not in [*RACES, *OF_A_SWEEP]]
TINY = """backbone=tiny tiny.hidden_size=32 tiny.layers=1 tiny.heads=2 tiny.intermediate_size=64 tiny.vocab_size=600
    log_every_n_steps=1 data.num_workers=0""".split()


@pytest.fixture
def desk(tmp_path, run_folder, corpus_file, small_tables) -> Path:
    """Make the working directory of the reader."""
    rng = random.Random(3)
    words = [line.split() for line in corpus_file.read_text(encoding="utf-8").splitlines()]
    triplets = [
        dict(
            zip(
                ("premise", "entailment", "contradiction"),
                (" ".join(rng.sample(one, 8)) for _ in range(3)),
                strict=True,
            )
        )
        for one in rng.choices(words, k=300)
    ]
    relations = ("entailment", "contradiction")
    nli = [
        {"premise": one["premise"], "hypothesis": one[name], "label": name} for one in triplets for name in relations
    ]
    texts = [{"text": " ".join(one)} for one in words]
    texts_folder = tmp_path / "texts"
    texts_folder.mkdir()
    write(tmp_path / "my_texts.jsonl", texts)
    for folder in (tmp_path, texts_folder):
        write(folder / "triplets.jsonl.gz", triplets)
    write(texts_folder / "documents.jsonl.gz", texts * 3)
    write(texts_folder / "nli_pairs.jsonl.gz", nli)
    sentences = "".join(f"{one['premise']}\n" for one in triplets).encode()
    (texts_folder / "sentences.txt.gz").write_bytes(gzip.compress(sentences))
    answers = "".join(f"{one['premise']},{one['entailment']}\n" for one in triplets)
    (tmp_path / "faq.csv").write_text(f"question,answer\n{answers}")
    (tmp_path / "eval").symlink_to(small_tables)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for seed in (1, 2):
        run_folder(tmp_path / "outputs" / f"one-{seed}", "one", seed, 0.2)
        run_folder(tmp_path / "outputs" / f"two-{seed}", "two", seed, 0.4)
    return tmp_path


def write(path: Path, rows: list[dict]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def run(command: str, desk: Path, *more: str) -> subprocess.CompletedProcess[str]:
    done = run_command([*shlex.split(command), *more], desk, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def output_of(command: str) -> str | None:
    return next(
        (argument.partition("=")[2] for argument in shlex.split(command) if argument.startswith("output=")), None
    )


def test_the_commands_are_found():
    assert len(COMMANDS) >= 6
    assert len(OTHERS) >= 3
    assert len(RACES) >= 2


@pytest.mark.rotates
@pytest.mark.parametrize("command", OTHERS)
def test_a_command_runs(command, desk):
    done = run(command, desk)
    if "preview" in command.split():
        assert "anchors" in done.stdout
    else:
        assert " two (" in done.stdout
        assert (desk / output_of(command) / "report.html").is_file()
    if output := output_of(command):
        assert (desk / output).exists()


@pytest.mark.slow
def test_the_sweep_and_its_report(desk):
    """One trial instead of 36, on a small corpus instead of the one from the hub, with a score of the small tables."""
    (sweep,) = {shlex.join(shlex.split(line)[:3]) for line in OF_A_SWEEP if "sweep" in line.split()}
    longest = max((line for line in OF_A_SWEEP if line.startswith(sweep)), key=len)
    corpus = ["data=text", "data.path=my_texts.jsonl", "data.max_span=auto", "data.min_document_length=null"]
    small = [*corpus, *TINY, "precision=fp32", "max_steps=2", "batch_size=8", "evaluation.every_n_steps=1", "trials=1"]
    [file] = (word for word in shlex.split(longest) if word.endswith(".yaml"))
    metric = "metric: { name: stsb/cosine/spearman, goal: maximize }"
    (desk / "sweep.yaml").write_text(re.sub("^metric: .*$", metric, Path(file).read_text(), flags=re.MULTILINE))
    longest = longest.replace(file, "sweep.yaml")
    run(longest, desk, *small, "evaluation.data_root=eval", "evaluation.suite=[sts12,stsb]")
    for line in OF_A_SWEEP:
        if "sweep" not in line.split():
            assert "declutr" in run(line, desk).stdout
            assert (desk / output_of(line) / "report.html").is_file()


@pytest.mark.slow  # each runs train.py eight times
@pytest.mark.parametrize("command", RACES)
def test_a_race_runs(command, desk):
    """The race has four arms, with one seed, a small budget of the same kind, and a tiny backbone."""
    arguments = [argument for argument in shlex.split(command) if not argument.startswith(("seeds=", "budget="))]
    budget = "budget={tokens: 20000}" if "tokens" in command else "budget={seconds: 2}"
    common = [*TINY, "evaluation.data_root=eval", "evaluation.suite=[sts12,stsb]"]
    quoted = ",".join(f"'{argument}'" for argument in common)
    done = run(shlex.join(arguments), desk, budget, "seeds=[1]", f"race.common=[{quoted}]")
    assert (desk / output_of(command) / "report.html").is_file()
    for label in ("declutr", "simcse-unsup", "simcse-sup", "sbert-nli"):
        assert label in done.stdout
