"""The scripts in examples/ run as their docstrings say, on small files and with few steps."""

import asyncio
import csv
import inspect
import json
import re
import shlex
import shutil
import statistics
from pathlib import Path

import faiss
import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer

from benchmarks.texts import invented
from contrastive_encoders.io.results import read_results
from tests.forks import run_command
from tests.guide import ROOT

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ROWS = [(f"What is {invented(number, 2)}?", f"It is {invented(100 + number, 12)}.") for number in range(80)]


def command_of(name: str) -> list[str]:
    """Return the command in the docstring of an example."""
    (command,) = re.findall(rf"^    ((?:python|torchrun) .*{name}\.py .*)$", text_of(name), re.MULTILINE)[:1]
    return shlex.split(command)


def text_of(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def run_example(name: str, folder: Path, *more: str, processes: int = 1, encoder: str = MINILM) -> str:
    """Run the command of an example in a folder, with additional arguments, and return its output."""
    command = [encoder if argument == MINILM else argument for argument in command_of(name)]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", processes] if processes > 1 else []
    script = ROOT / "examples" / f"{name}.py"
    done = run_command([*launcher, script, *command[command.index(script.name) + 1 :], *more], folder, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(minilm_path, tmp_path):
    """A folder with the files that the commands name."""
    write_rows(tmp_path / "faq.csv", "question,answer", ROWS)
    write_rows(tmp_path / "queries.csv", "query,document", ROWS[:20])
    return tmp_path


def write_rows(path: Path, header: str, rows: list[tuple[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])


def test_the_examples_are_short_and_name_their_command():
    assert len(EXAMPLES) == 5
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
        assert f"{path.stem}.py" in command_of(path.stem)


@pytest.mark.rotates
@pytest.mark.parametrize(("separator", "mark"), [(",", ""), (";", "\ufeff")])
def test_faiss_finds_the_answers_that_are_nearest(separator, mark, folder):
    """The file is as csv.writer writes it, or as Excel does in many countries."""
    with (folder / "faq.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(mark)
        csv.writer(file, delimiter=separator).writerows([("question", "answer"), *ROWS, ("Why?", "")])
    out = run_example("improve_and_search", folder, "max_steps=2", "batch_size=8", "output_dir=run")
    assert "held_out/cosine/ndcg@10" in read_results(folder / "run" / "results.json")["scores_before"]
    encoder = SentenceTransformer(str(folder / "run" / "encoder"), device="cpu")
    answers = [answer for _, answer in ROWS]
    expected = encoder.encode(answers, normalize_embeddings=True)
    index = faiss.read_index(str(folder / "answers.faiss"))
    np.testing.assert_allclose(index.reconstruct_n(0, len(answers)), expected, atol=1e-5)
    cosines = expected @ encoder.encode(command_of("improve_and_search")[-1], normalize_embeddings=True)
    nearest = [f"{cosines[row]:.3f}  {answers[row]}" for row in np.argsort(-cosines)[:3]]
    assert out.splitlines()[-3:] == nearest


def test_the_documents_are_those_of_the_race(folder):
    (folder / "my_documents").mkdir()
    done = run_command([ROOT / "examples" / "adapt_to_documents.py", "my_documents", "adapted", "--cfg", "job"], folder)
    config = yaml.safe_load(done.stdout)
    assert (config["race"]["texts"], config["race"]["backbone"]) == ("my_documents", MINILM)
    assert config["output"] == "adapted"


@pytest.mark.slow  # a language model generates 60 questions, and four runs start
def test_the_better_encoder_embeds_the_passages(folder, smollm2_path, minilm_path):
    (folder / "my_documents").mkdir()
    members = [one for module in (asyncio, shutil, statistics) for one in inspect.getmembers(module, inspect.isroutine)]
    docs = [(name, inspect.getdoc(member) or "") for name, member in members]
    for name, doc in [one for one in docs if 40 < len(one[1].split()) < 150][:30]:
        (folder / "my_documents" / f"{name}.md").write_text(f"# {name}\n\n{doc}\n", encoding="utf-8")
    left_out = "declutr tsdae dino questions questions-hard titles-and-questions".split()
    keys = ["seeds=[1]", "budget={steps: 2}", "race.batch_size=8", "sentences=0"]
    run_example("adapt_to_documents", folder, *(f"~race.arms.{name}" for name in left_out), *keys)
    output = folder / "adapted"
    recommended = json.loads((output / "comparison.json").read_text(encoding="utf-8"))["recommended"]
    is_better = recommended.startswith("Better")
    assert (output / "encoder").exists() == is_better
    with (output / "data" / "questions" / "held_out" / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    encoder = SentenceTransformer(str(output / "encoder" if is_better else minilm_path), device="cpu")
    np.testing.assert_allclose(np.load(output / "passages.npy"), encoder.encode(texts), atol=1e-4)


@pytest.mark.rotates
def test_the_first_loss_is_that_of_siglip(folder, minilm_path):
    """The batch is the entire file, so the loss of the first step is that of the initial encoder on all rows."""
    write_rows(folder / "faq.csv", "question,answer", ROWS[:32])
    run_example("custom_objective", folder, "2")
    run = folder / "outputs" / "sigmoid"
    assert read_results(run / "results.json")["objective"] == "sigmoid"
    encoder = SentenceTransformer(str(minilm_path), device="cpu")
    questions, answers = (
        encoder.encode(list(texts), normalize_embeddings=True) for texts in zip(*ROWS[:32], strict=True)
    )
    logits = (2 * np.eye(32) - 1) * (10 * questions @ answers.T - 10)
    assert losses_of(run)[0] == pytest.approx(np.log1p(np.exp(-logits)).sum(1).mean(), rel=1e-4)


@pytest.mark.rotates
def test_the_table_has_the_mean_of_each_arm(folder, tiny_bert):
    keys = ["max_steps=1", "batch_size=8", "model.dropout=0.1"]
    out = run_example("compare_objectives", folder, *keys, encoder=str(tiny_bert))
    output = folder / "head_to_head"
    table = (output / "comparison" / "table.tex").read_text()
    assert table in out
    assert table.startswith("% Written by: compare_objectives.py faq.csv queries.csv ")
    assert re.findall(r"\\(begin|end)\{(\w+)\}", table) == [("begin", "tabular"), ("end", "tabular")]
    assert table.count("{") == table.count("}")
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", table)[1])
    rows = [line.removesuffix(r" \\").split(" & ") for line in table.splitlines() if line.endswith(r" \\")]
    assert {len(row) for row in rows} == {columns}
    cells = {row[0]: row[1:] for row in rows}
    for arm, seeds in {"pairs": 3, "simcse": 3, "tsdae": 3, "untrained": 1}.items():
        files = [*output.glob(f"{arm}-*/results.json"), *output.glob(f"{arm}.json")]
        scores = [read_results(file)["scores"]["queries/cosine/ndcg@10"] for file in files]
        assert len(scores) == seeds
        assert f"{np.mean(scores):.2f}" in "".join(cells[arm])


def test_two_processes_have_the_losses_of_one(folder, tiny_bert):
    keys = [f"backbone={tiny_bert}", "max_steps=2", "batch_size=8", "precision=fp32", "evaluation.precision=fp32"]
    losses, scores = [], []
    for processes in (1, 2):
        (desk := folder / str(processes)).mkdir()
        (desk / "faq.csv").write_bytes((folder / "faq.csv").read_bytes())
        out = run_example("train_distributed", desk, *keys, "trainer.accelerator=cpu", processes=processes)
        assert out.count(f"2 steps on {processes} processes") == 1
        run = desk / "outputs" / "faq"
        losses.append(losses_of(run))
        scores.append(read_results(run / "results.json")["scores"])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def losses_of(run: Path) -> list[float]:
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
