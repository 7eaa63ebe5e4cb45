"""Embedding: texts of mixed length as vectors, against sentence-transformers' `encode`, and lines in constant memory.

    python -m benchmarks.embedding [--quick] [--rounds 3] [--precision fp32 bf16] [--device cpu|cuda] [--clock wall|cpu]
                                   [--models minilm smollm2]
    python -m benchmarks.embedding --lines 1000000

The same weights (all-MiniLM-L6-v2; SmolLM2-135M with its last token pooled, on a tenth of the texts), texts, length
limit and precision on both sides; theirs with batches of 32, its default. Half of the texts are single sentences, the
rest pieces of documents of up to 300 words. Loading is not counted. Wanted: 1.45 times as fast in fp32, of SmolLM2 1.5
times and 1.2 times in bf16; and equal vectors.

With ``--lines`` so many lines go through ``python -m export.embed`` with a tiny encoder, which is killed on the way
and started again; its largest resident memory is compared with that for a tenth of the lines.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks import materials, texts
from benchmarks.sides import CLOCKS, Line, alternate, arguments, clock_on, median_ratio, report
from encoders import load_encoder
from encoders.sentence_encoder import SentenceEncoder
from export.sentence_transformers import export_encoder, parts_of

WANTED = {"minilm": {"fp32": ">= 1.45x", "bf16": ""}, "smollm2": {"fp32": ">= 1.5x", "bf16": ">= 1.2x"}}
FIGURE = {"minilm": "E1", "smollm2": "P16"}
DECODER_SHARE = 10  # a forward pass of SmolLM2 takes about so many of MiniLM's
APART = {"fp32": "<= 1e-5", "bf16": ""}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def mixed(count: int) -> list[str]:
    """Sentences and pieces of documents, in random order."""
    rng, found = random.Random(1), texts.sentences(count // 2)
    for document in texts.documents(count):
        words = document.split()
        start = rng.randrange(max(1, len(words) - 300))
        found.append(" ".join(words[start : start + rng.randint(5, 300)]))
        if len(found) == count:
            break
    rng.shuffle(found)
    return found


def timed(run: Callable[[], Any], kept: dict[str, np.ndarray], name: str, clock: Callable[[], float]) -> float:
    start = clock()
    kept[name] = np.asarray(run())
    return clock() - start


def decoder(folder: Path) -> Path:
    """SmolLM2 as a folder that both sides load."""
    encoder = load_encoder(materials.smollm2(folder / "transformer")[0], pooling="last", device="cpu")
    return export_encoder(folder / "encoder", **parts_of(cast(SentenceEncoder, encoder)))


def measured(options: argparse.Namespace) -> list[Line]:
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in options.models:
            count = 64 if options.quick else options.texts
            if model == "minilm":
                lines += compare_model(model, materials.packaged_minilm(), mixed(count), options)
            else:
                share = DECODER_SHARE if options.device == "cpu" else 1
                lines += compare_model(model, decoder(Path(scratch)), mixed(max(16, count // share)), options)
    return lines


def compare_model(model: str, folder: Path, sentences: list[str], options: Any) -> list[Line]:
    from sentence_transformers import SentenceTransformer

    lines, figure = [], FIGURE[model]
    for precision in options.precision:
        ours = load_encoder(folder, precision=precision, device=options.device)
        theirs = SentenceTransformer(str(folder), device=options.device).to(DTYPES[precision])
        kept: dict[str, np.ndarray] = {}
        encode = partial(theirs.encode, sentences, batch_size=32, show_progress_bar=False, convert_to_tensor=True)
        sides = {
            "ours": lambda ours=ours: ours.embed(sentences, convert_to_numpy=True),
            "theirs": lambda encode=encode: encode().float().cpu().numpy(),
        }
        clock = clock_on(options.device, options.clock)
        runs = {name: partial(timed, run, kept, name, clock) for name, run in sides.items()}
        seconds = alternate(runs, 1 if options.quick else options.rounds)
        own, other = (len(sentences) / float(np.median(seconds[name])) for name in ("ours", "theirs"))
        ratio, case = median_ratio(seconds["theirs"], seconds["ours"]), f"{precision}, {len(sentences)} texts"
        wanted = WANTED[model][precision] if options.device == "cpu" else ">= 1.5x"
        lines.append(Line(figure, case, "texts/s", own, other, ratio, wanted))
        apart = float(np.abs(kept["ours"] - kept["theirs"]).max())
        lines.append(Line(figure, f"{precision}, largest difference", "", apart, None, None, APART[precision]))
    return lines


def stream(count: int) -> list[Line]:
    """Lines per second, seconds that a kill cost, resident memory of all lines and of a tenth of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = tiny_encoder(folder / "encoder")
        small, _ = one_go(encoder, write_lines(folder / "tenth.txt", count // 10), folder / "tenth.npy")
        path = write_lines(folder / "all.txt", count)
        large, seconds = one_go(encoder, path, folder / "whole.npy")
        before = killed(encoder, path, folder / "killed.npy", seconds / 2)
        one_go(encoder, path, folder / "killed.npy")
        same = np.array_equal(np.load(folder / "whole.npy"), np.load(folder / "killed.npy"))
    return [
        Line("E2", f"{count} lines, start included", "lines/s", count / seconds, None, None, ""),
        Line("E2", f"memory, against {count // 10} lines", "MiB", large, small, large / small, "<= 1.1x"),
        Line("E2", "killed with -9: lines that were kept", "", before, None, None, ""),
        Line("E2", "killed and continued: equal to one go (1: yes)", "", float(same), None, None, "1"),
    ]


def tiny_encoder(folder: Path) -> Path:
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    config = AutoConfig.from_pretrained(materials.packaged_minilm())
    config.num_hidden_layers, config.hidden_size, config.intermediate_size, config.num_attention_heads = 1, 64, 128, 2
    torch.manual_seed(1)
    AutoModel.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(materials.packaged_minilm()).save_pretrained(folder)
    return folder


def write_lines(path: Path, count: int) -> Path:
    sentences = texts.sentences(20_000)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(f"{number} {sentences[number % len(sentences)][:80]}\n")
    return path


def command(encoder: Path, path: Path, output: Path) -> list[str]:
    words = [f"encoder={encoder}", f"input={path}", f"output={output}", "device=cpu", "quiet=true", "dtype=float16"]
    return [sys.executable, "-m", "export.embed", *words]


def one_go(encoder: Path, path: Path, output: Path) -> tuple[float, float]:
    """(MiB, seconds) of a run to the end."""
    start = time.perf_counter()
    done = subprocess.Popen(command(encoder, path, output), cwd=texts.ROOT)
    _, status, usage = os.wait4(done.pid, 0)
    if status:
        raise SystemExit(f"export.embed ended with {status}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return usage.ru_maxrss / unit, time.perf_counter() - start


def killed(encoder: Path, path: Path, output: Path, seconds: float) -> int:
    """Lines that were there when it was killed."""
    job = subprocess.Popen(command(encoder, path, output), cwd=texts.ROOT)
    time.sleep(seconds)
    job.send_signal(signal.SIGKILL)
    job.wait()
    header, marks = output.with_name(f"{output.name}.progress").read_bytes().split(b"\n", 1)
    return marks.count(b"\1") * json.loads(header)["window"]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--models", nargs="+", choices=list(WANTED), default=list(WANTED))
    parser.add_argument("--precision", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--lines", type=int, help="measure the command line on so many lines instead")
    return parser.parse_args(words)


def main() -> None:
    options = parse()
    materials.hush()
    if options.lines:
        report("Lines into vectors", stream(options.lines), options.output)
    else:
        report(f"Embedding, {options.device}, {options.clock} time", measured(options), options.output)


if __name__ == "__main__":
    main()
