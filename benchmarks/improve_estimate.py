"""The estimate of time and memory that `experiment=improve` prints, against what the run takes.

    python -m benchmarks.improve_estimate DATA.csv [KEY=VALUE ...]

All-MiniLM-L6-v2, and a BERT of base size with random weights and the same tokenizer, are trained on the rows with the
default settings. Both estimates should be within 30 % of the run. Other work beside it makes the times useless.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, BertConfig, BertModel

from readers.installed_models import find_installed

ESTIMATE = re.compile(r"estimate +(.*?): (\d+):(\d+):(\d+) of training.*?, ([\d.]+) GiB")
SCORING = re.compile(r"step 0: .*\(([\d.]+) s\)")


def main() -> None:
    words = sys.argv[1:]
    if not words:
        sys.exit(__doc__)
    minilm = find_installed("sentence-transformers/all-MiniLM-L6-v2") or "sentence-transformers/all-MiniLM-L6-v2"
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        AutoTokenizer.from_pretrained(minilm).save_pretrained(base)
        BertModel(BertConfig()).save_pretrained(base)  # 12 layers, 768 wide
        for name, backbone in (("MiniLM", minilm), ("base size", str(base))):
            print(name)
            measure(backbone, words, Path(folder) / name.replace(" ", "-"))


def measure(backbone: str, words: list[str], output: Path) -> None:
    """Train once, and print a line for each estimate."""
    path, *settings = words
    command = [sys.executable, "train.py", "experiment=improve", f"data.path={path}", f"backbone={backbone}"]
    done = subprocess.run([*command, f"output_dir={output}", *settings], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    spent = json.loads((output / "results.json").read_text(encoding="utf-8"))["spent"]
    scored = sum(map(float, SCORING.findall(done.stderr)))  # once before training, within the run's time
    seconds, gib = spent["wall_seconds"] - scored, spent["peak_memory_bytes"] / 2**30
    for when, *clock, memory in ESTIMATE.findall(done.stderr):
        hours, minutes, rest = map(int, clock)
        estimate = 3600 * hours + 60 * minutes + rest
        print(
            f"  {when:14} {estimate:6,} s of {seconds:6,.0f} s ({estimate / seconds - 1:+.0%}), "
            f"{memory} GiB of {gib:.1f} GiB ({float(memory) / gib - 1:+.0%})"
        )


if __name__ == "__main__":
    main()
