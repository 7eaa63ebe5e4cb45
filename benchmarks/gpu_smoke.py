"""Smoke test of a device: a short run of every objective, its export, and the tests marked ``gpu``.

Each run is that of the command line, over invented texts, in bf16: its loss must fall, and sentence-transformers must
compute the same embeddings from the exported folder on the CPU, in fp32. On a CPU the tests are only collected.
"""

import argparse
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import texts
from benchmarks.runner import Line
from contrastive_encoders import train
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.metrics import read_rows

SPANS = "data.min_span=8 data.max_span=48"
RUNS = {
    "declutr": f"model=declutr data=text {SPANS}",
    "declutr recomputed": f"model=declutr data=text {SPANS} token_budget=512",
    "simcse": "model=simcse data=triplets model.mlp_only_train=false",
    "simcse with adapters": "model=simcse data=sentences model.lora.rank=8 model.lr=0.003",
    "sroberta": "model=sroberta data=dino data.postprocess=off",
    "sbert_nli": "model=sbert_nli data=nli",
    "tsdae": "model=tsdae data=sentences",
    "gense": "model=gense data=triplets model.prompt_suffix=means: model.pooling=mean model.optimizer=adamw",
    "gense_generator": "model=gense_generator data=nli_generation data.dev_fraction=0.2",
}
OPTIONS = {"runs": list(RUNS), "device": "cuda"}
QUICK = {"runs": ["declutr", "simcse with adapters", "gense_generator"]}
COLUMNS = {
    "dino": ("text_a", "text_b"),
    "nli": ("premise", "hypothesis"),
    "sentences": ("text",),
    "triplets": ("anchor", "positive", "negative"),
    "nli_generation": ("premise", "entailment", "contradiction"),
}
ROWS = 512
TOLERANCE = 1e-4  # of unit embeddings: a GPU sums float32 in another order


def write_data(kind: str, folder: Path) -> Path:
    """Write texts that a model can learn from: related texts have words in common."""
    path = folder / f"{kind}.{'txt' if kind == 'text' else 'jsonl'}"
    if kind == "text":
        path.write_text("".join(f"{texts.invented(number, 400)}\n" for number in range(64)), encoding="utf-8")
        return path
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            rng = random.Random(number)
            topic, other = (texts.invented(*one).split() for one in ((number % 40, 6), (1000 + number, 8)))
            near, far = (" ".join(rng.choices(words, k=8)) for words in (topic, other))
            is_near = number % 2 == 0 or kind not in ("dino", "nli")
            row = dict(zip(COLUMNS[kind], (" ".join(topic), near if is_near else far, far), strict=False))
            label = {"dino": float(is_near), "nli": 0 if is_near else 2}
            file.write(json.dumps(row | ({"label": label[kind]} if kind in label else {})) + "\n")
    return path


def run(name: str, folder: Path, steps: int, on_gpu: bool) -> Iterator[Line]:
    arguments = RUNS[name].split()
    path = write_data(arguments[1].removeprefix("data="), folder)
    common = ["backbone=tiny", "batch_size=32", f"max_steps={steps}", "log_every_n_steps=1", "quiet=true"]
    common += [f"data.path={path}", f"data.cache_dir={folder / 'cache'}", f"output_dir={folder / 'run'}"]
    common += [] if "model.lr=" in RUNS[name] else ["model.lr=0.0005"]
    common += ["precision=bf16"] if on_gpu else ["trainer=cpu"]
    done = train(overrides=[*arguments, *common])
    rows = read_rows(done.directory / "metrics.csv")
    losses = [float(row["train/loss"]) for row in rows if "train/loss" in row]  # a scoring at the start has none
    tenth = max(1, len(losses) // 10)
    first, last = float(np.mean(losses[:tenth])), float(np.mean(losses[-tenth:]))
    if not last < first:
        raise AssertionError(f"{name}: the loss went from {first} to {last}.")
    yield Line("smoke", f"{name}, loss after {steps} steps, and before", "", last, first, last / first, "< 1x")
    if done.encoder is not None:
        difference = export_difference(done.directory, "cuda" if on_gpu else "cpu")
        if not difference < TOLERANCE:
            raise AssertionError(f"{name}: the export's embeddings differ by {difference}.")
        yield Line("smoke", f"{name}, export, largest difference", "", difference, target=f"<= {TOLERANCE}")


def export_difference(folder: Path, device: str) -> float:
    """Return the largest difference of unit embeddings: the checkpoint on the device, its export on the CPU."""
    from sentence_transformers import SentenceTransformer

    corpus = texts.sentences(64)
    theirs = SentenceTransformer(str(folder / "encoder"), device="cpu").encode(corpus, show_progress_bar=False)
    ours = load_encoder(folder / "checkpoints" / "best.ckpt", device=device).embed(corpus, convert_to_numpy=True)
    sides = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ours, theirs)]
    return float(np.abs(sides[0] - sides[1]).max())


def run_tests(on_gpu: bool) -> Line:
    """Run the tests marked gpu; return the number that passed."""
    files = [str(path) for path in (texts.ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--no-header", "-p", "no:cacheprovider", *files]
    command += [] if on_gpu else ["--collect-only"]
    done = subprocess.run(command, cwd=texts.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"pytest -m gpu ended with {done.returncode}: {done.stdout[-6000:]}{done.stderr[-1000:]}")
    passed = re.search(r"(\d+)(?:/\d+)? (?:passed|tests)", done.stdout)
    return Line(
        "smoke", f"tests marked gpu, {'passed' if on_gpu else 'collected'}", "", int(passed[1]) if passed else 0
    )


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    on_gpu = options.device != "cpu"
    for number, name in enumerate(options.runs):
        (folder / str(number)).mkdir()
        yield from run(name, folder / str(number), 20 if options.quick else 200, on_gpu)
    yield run_tests(on_gpu)
