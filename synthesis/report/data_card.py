"""README.md of a data set: what it is and how it was made, in the form that dataset hubs and ``datasets`` read."""

import json
from pathlib import Path
from typing import Any

import yaml

from files.whole import write_whole
from synthesis.shards.store import X1

SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def write_data_card(folder: Path, manifest: dict[str, Any]) -> None:
    write_whole(folder / "README.md", data_card(folder, manifest).encode())


def data_card(folder: Path, manifest: dict[str, Any]) -> str:
    """Front matter that ``datasets.load_dataset(FOLDER)`` goes by, and the text."""
    identity, counts = manifest["identity"], manifest["counts"]
    spec, pairs = identity["spec"], identity["kind"] == "x2"
    front: dict[str, Any] = {
        "pretty_name": f"{spec['task_name']}, generated",
        "tags": ["synthetic", "dino", *(["sentence-similarity"] if pairs else [])],
        "size_categories": [next((name for limit, name in SIZES if counts["accepted"] < limit), "n>10M")],
        "configs": [_config("default", "shard-*.jsonl")],
    }
    if any((folder / X1).glob("shard-*.jsonl")):
        front["configs"].append(_config(X1, f"{X1}/shard-*.jsonl"))
    generator = manifest["generator"]
    what = "`text_a` was given or written before; `text_b` was written for it" if pairs else "`text_a` was written"
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {spec['task_name']}",
        "",
        f"{counts['accepted']:,} texts that the language model `{generator['name']}` wrote by instructions, one per "
        "label, after the method of Schick and Schütze, *Generating Datasets with Pretrained Language "
        "Models* (EMNLP 2021).",
        "**No person wrote or checked these texts**: they may be wrong or offensive, or repeat what the "
        "model was trained on.",
        "" if manifest["complete"] else "\nThis data set is not finished.",
        "## Use",
        "",
        "```python",
        "import datasets",
        "",
        'data = datasets.load_dataset("THIS_FOLDER", split="train")',
        "```",
        "",
        *(["```", "python train.py model=sroberta data=dino data.path=THIS_FOLDER", "```", ""] if pairs else []),
        f"Every row has `text_a`, `text_b` and `label`; {what}. Labels are texts: {', '.join(spec['labels'])}.",
        "Texts keep the blanks at their ends. Rows are raw: duplicates, copies of `text_a` and more texts per label "
        "than training wants may be among them; `data=dino` takes care of that.",
        "",
        "## How it was made",
        "",
        *_instructions(spec),
        f"Generator: `{generator['name']}`, {json.dumps(identity['generator'])}, precision {identity['precision']}.",
        "",
        "```json",
        json.dumps({**identity["decoding"], **identity["plan"]}, indent=1),
        "```",
        "",
        "## Counts",
        "",
        f"{counts['samples']:,} sampled, {counts['accepted']:,} accepted ({counts['yield']:.1%}). Rejected: "
        f"{', '.join(f'{reason} {number:,}' for reason, number in counts['rejected'].items()) or 'none'}. More "
        "in report.md.",
        "",
        "The licence of what a model writes depends on the model and, where first sentences were given, on "
        "these: say yours.",
        "",
    ]
    return "\n".join(lines)


def _config(name: str, pattern: str) -> dict[str, Any]:
    return {"config_name": name, "data_files": [{"split": "train", "path": pattern}]}


def _instructions(spec: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, label in spec["labels"].items():
        counters = ", ".join(label["counter_labels"])
        lines += [
            f"Label {name}" + (f", unlike {counters}:" if counters else ":"),
            "",
            "```",
            label["instruction"],
            "```",
            "",
        ]
    return lines
