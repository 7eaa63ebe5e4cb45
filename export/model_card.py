"""README.md of an exported encoder: what ``results.json`` knows, for a reader and for the hub.

Only facts of the run are written. Folders of the training machine are not: a card is made to be published.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from contracts import Results

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("PATH_OR_ID_OF_THIS_FOLDER")
vectors = encoder.encode(["A sentence.", "Another one."])
print(encoder.similarity(vectors, vectors))
```"""


def model_card(results: Results) -> str:
    """Markdown with YAML front matter that the hub accepts; ends with a newline."""
    sections = [
        _front_matter(results),
        f"# A sentence encoder trained with {results['objective']}",
        f"Backbone: {_shown(results['backbone'])}. The vectors are those of step {results['best_step']}.",
        USE,
        "## Scores",
        _scores(results),
        "## Training data",
        _data(results["data"]),
        "## Overlap with the test texts",
        _overlap(results["overlap"]),
        "## What it took",
        _table(("", ""), _spent(results)),
        "## Recipe",
        _table(("key", "value"), _flat(results["recipe"])),
        "## Limits",
        _limits(results),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(results: Results) -> str:
    fields: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", results["objective"]],
    }
    if _is_hub_id(results["backbone"]):
        fields["base_model"] = results["backbone"]
    hub_data = [source["id"] for source in results["data"] if source.get("kind") == "hub" and _is_hub_id(source["id"])]
    if hub_data:
        fields["datasets"] = hub_data
    # JSON is YAML, and quotes what YAML would read as something else
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items()), "---"])


def _is_hub_id(name: str) -> bool:
    """``tiny`` means random weights; what exists as a folder was read from there."""
    return name != "tiny" and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def _scores(results: Results) -> str:
    if not results["scores"]:
        return "None: the run had no evaluation data."
    before, baselines = results.get("scores_before", {}), results.get("baselines", {})
    rows = [
        (f"`{name}`", f"{score:.2f}", _interval(results["intervals"].get(name)), _score(before.get(name)))
        for name, score in sorted(results["scores"].items())
    ]
    text = (
        "On a scale of 0 to 100. A name is task, split, protocol and metric; no split means the test split. "
        "The interval is at 95 %.\n\n"
    )
    text += _table(("score", "value", "interval", "before training"), rows)
    if baselines:
        text += "\n\nBaselines:\n\n"
        text += _table(
            ("baseline", "value"), ((f"`{name}`", f"{score:.2f}") for name, score in sorted(baselines.items()))
        )
    return text


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if not bounds else f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def _data(manifests: Sequence[Mapping[str, Any]]) -> str:
    if not manifests:
        return "Not recorded."
    return "\n\n".join(_table(("manifest", ""), _flat(manifest)) for manifest in manifests)


def _overlap(overlap: Mapping[str, Mapping[str, int]]) -> str:
    if not overlap:
        return "Not counted: no test texts were scored."
    rows = [(task, counts["checked"], counts["found"]) for task, counts in sorted(overlap.items())]
    return _table(("task", "sentences checked", "found word for word in the training text"), rows)


def _spent(results: Results) -> Iterator[tuple[str, Any]]:
    spent = results["spent"]
    yield from ((name.replace("_", " "), f"{spent[name]:,}") for name in ("steps", "examples", "real_tokens"))
    yield (
        "padding",
        f"{spent['padded_tokens'] / max(1, spent['real_tokens'] + spent['padded_tokens']):.1%} of all tokens",
    )
    yield "time", f"{spent['wall_seconds'] / 60:.1f} minutes on {results['processes']} x {results['device']}"
    yield "peak memory of a process", f"{spent['peak_memory_bytes'] / 2**30:.2f} GiB"
    yield "seeds", ", ".join(map(str, results["seeds"]))
    yield "code", results["git_commit"] or "no commit recorded"
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))


def _limits(results: Results) -> str:
    lines = [
        "It knows the language and the domain of its training data; nothing else was tried.",
        "A text longer than the length limit is cut there, without a warning.",
        "What the training data says about people, its vectors repeat; no test for bias was made.",
    ]
    if results["backbone"] == "tiny":
        lines.append("The backbone started from random weights and is small: it shows that the method works, no more.")
    if not results["scores"]:
        lines.append("It was not scored. Do so before you rely on it.")
    return "\n".join(f"- {line}" for line in lines)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested keys joined by dots; a long list becomes its length, a path its last part."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and (
            len(value) > 8 or any(isinstance(item, Mapping | list) for item in value)
        ):
            yield name, f"{len(value)} entries"
        else:
            yield name, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return PurePath(value).name if value.startswith(("/", "~")) else value
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return json.dumps(value, default=str)


def _table(header: Sequence[str], rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
