"""Does everything work on this device: a short run of every objective, its export, and the tests that want a GPU.

    python -m benchmarks.gpu_smoke [--quick] [--runs declutr simcse ...] [--tests] [--device cuda|cpu]

Each run is that of the command line, over invented texts, in bf16: its loss must fall, its exported folder must hold
the weights of the checkpoint, and sentence-transformers must make the same vectors of it, in float32.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import materials, texts
from benchmarks.sides import Line, arguments, report
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.training import train

ROWS = 512
SPANS = ["data.min_span=8", "data.max_span=48"]
RUNS = {
    "declutr": ["model=declutr", "data=text", *SPANS],
    "declutr recomputed": ["model=declutr", "data=text", *SPANS, "token_budget=512"],
    "simcse": ["model=simcse", "data=triplets", "model.mlp_only_train=false"],
    "simcse with adapters": ["model=simcse", "data=sentences", "model.lora.rank=8", "model.lr=0.003"],
    "sroberta": ["model=sroberta", "data=dino", "data.postprocess=off"],
    "sbert_nli": ["model=sbert_nli", "data=nli"],
    "tsdae": ["model=tsdae", "data=sentences"],
    "gense": ["model=gense", "data=triplets", 'model.prompt=" It is:"', "model.pooling=mean", "model.optimizer=adamw"],
    "gense_generator": ["model=gense_generator", "data=nli_generation", "data.dev_fraction=0.2"],
}
COLUMNS = {
    "dino": ("text_a", "text_b"),
    "nli": ("premise", "hypothesis"),
    "sentences": ("text",),
    "triplets": ("anchor", "positive", "negative"),
    "nli_generation": ("premise", "entailment", "contradiction"),
}
VECTORS = 1e-4  # of unit length: float32 of a GPU in another order


def write_data(kind: str, folder: Path) -> Path:
    """Write texts from which a model can learn: texts that belong together share words."""
    path = folder / f"{kind}.{'txt' if kind == 'text' else 'jsonl'}"
    if kind == "text":
        path.write_text("".join(f"{texts.invented(number, 400)}\n" for number in range(64)), encoding="utf-8")
        return path
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            rng = random.Random(number)
            topic = texts.invented(number % 40, 6).split()
            near, far = (" ".join(rng.choices(one, k=8)) for one in (topic, texts.invented(1000 + number, 8).split()))
            is_near = number % 2 == 0
            row = dict(
                zip(COLUMNS[kind], (" ".join(topic), near if is_near or kind == "triplets" else far, far), strict=False)
            )
            label = {"dino": float(is_near), "nli": 0 if is_near else 2}
            file.write(json.dumps(row | ({"label": label[kind]} if kind in label else {})) + "\n")
    return path


def run(name: str, folder: Path, steps: int, on_gpu: bool) -> list[Line]:
    words = RUNS[name]
    path = write_data(words[1].removeprefix("data="), folder)
    common = ["backbone=tiny", "batch_size=32", f"max_steps={steps}", "log_every_n_steps=1", "quiet=true"]
    common += [f"data.path={path}", f"data.cache_dir={folder / 'cache'}", f"output_dir={folder / 'run'}"]
    common += [] if any("model.lr" in word for word in words) else ["model.lr=0.0005"]
    common += ["precision=bf16"] if on_gpu else ["trainer=cpu"]
    done = train(overrides=[*words, *common])
    rows = read_rows(done.directory / "metrics.csv")
    losses = [float(row["train/loss"]) for row in rows if "train/loss" in row]  # a scoring at the start has none
    tenth = max(1, len(losses) // 10)
    first, last = float(np.mean(losses[:tenth])), float(np.mean(losses[-tenth:]))
    lines = [Line("smoke", f"{name}, loss after {steps} steps, and before", "", last, first, last / first, "< 1x")]
    if done.encoder is not None:
        lines.append(
            Line(
                "smoke",
                f"{name}, export, largest difference",
                "",
                exported(done.directory, on_gpu),
                None,
                None,
                f"<= {VECTORS}",
            )
        )
    wrong = [line.case for line in lines if not line.ours < (line.theirs if line.theirs is not None else VECTORS)]
    if wrong:
        raise AssertionError(f"{'; '.join(wrong)}: {[line.ours for line in lines]}")
    return lines


def exported(folder: Path, on_gpu: bool) -> float:
    """Return the largest difference of unit vectors: the checkpoint on the device, its export on the CPU."""
    from sentence_transformers import SentenceTransformer

    sentences = texts.sentences(64)
    best = load_encoder(folder / "checkpoints" / "best.ckpt", device="cuda" if on_gpu else "cpu")
    theirs = SentenceTransformer(str(folder / "encoder"), device="cpu").encode(sentences, show_progress_bar=False)
    ours = best.embed(sentences, convert_to_numpy=True)
    sides = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ours, theirs)]
    return float(np.abs(sides[0] - sides[1]).max())


def tests_of_a_gpu(on_gpu: bool) -> list[Line]:
    """Run the tests marked gpu, and return how many passed; an error where a test failed."""
    files = [str(path) for path in (texts.ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--no-header", "-p", "no:cacheprovider", *files]
    command += [] if on_gpu else ["--collect-only"]
    done = subprocess.run(command, cwd=texts.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"pytest -m gpu ended with {done.returncode}: {done.stdout[-6000:]}{done.stderr[-1000:]}")
    counts = {word: int(number) for number, word in re.findall(r"(\d+)(?:/\d+)? (passed|skipped|tests)", done.stdout)}
    passed = counts.get("passed", counts.get("tests", 0))
    return [
        Line("smoke", "pytest -m gpu, passed" if on_gpu else "pytest -m gpu, collected", "", passed, None, None, "")
    ]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, device="cuda")
    parser.add_argument("--runs", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--tests", action="store_true", help="also the tests that are marked gpu")
    return parser.parse_args(words)


def measured(options: argparse.Namespace) -> list[Line]:
    lines, on_gpu = list[Line](), options.device != "cpu"
    for name in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            lines += run(name, Path(folder), 20 if options.quick else 200, on_gpu)
    return lines + (tests_of_a_gpu(on_gpu) if options.tests else [])


def main() -> None:
    options = parse()
    materials.hush()
    report(f"Every objective on {options.device}", measured(options), options.output)


if __name__ == "__main__":
    main()
