"""README.md of an exported encoder: what ``results.json`` knows, for a reader and, as front matter, for the hub.

Only facts of the run are written. Folders of the training machine are not: a card is made to be published.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from contracts import Results

INTENDED = (
    "Vectors of sentences and short paragraphs, compared by their cosine: search for similar texts, clustering, "
    "near-duplicates, features for a classifier. Not meant for decisions about people."
)
USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("PATH_OR_ID_OF_THIS_FOLDER")
vectors = encoder.encode(["A sentence.", "Another one."])
print(encoder.similarity(vectors, vectors))
```"""


OBJECTIVES = {
    "declutr": "DeCLUTR (Giorgi et al., ACL 2021): spans of one document are near each other, beside masked language "
    "modelling. No labels.",
    "sroberta": "Cosine regression on scored sentence pairs, as S-RoBERTa on DINO's (Schick and Schütze, EMNLP 2021).",
    "simcse": "SimCSE (Gao et al., EMNLP 2021): a sentence is near itself under other dropout, or near its positive "
    "where the data has one.",
    "sbert_nli": "A softmax over the relation of premise and hypothesis (Reimers and Gurevych, EMNLP 2019).",
    "gense": "GenSE (Chen et al., EMNLP 2022): contrastive learning on triplets, with T5.",
}
PROTOCOLS = {
    "all": "one correlation of the cosines over all subsets together",
    "mean": "the mean of the subsets' correlations",
    "wmean": "that mean weighted by the subsets' sizes",
    "cosine": "of the cosine of the two vectors",
    "max": "the best of cosine, dot product, Euclidean and Manhattan distance",
    "regressor": "SentEval's regressor on the two vectors, trained on the training split",
    "default": "SentEval's classifier on the vectors with its default settings",
    "fast": "SentEval's classifier on the vectors with its fast settings",
    "sklearn": "scikit-learn's logistic regression on the vectors",
    "geometry": "of the vectors themselves, in their own units",
}


def model_card(results: Results, *, use: str | None = None, library: str = "sentence-transformers") -> str:
    """Markdown with YAML front matter that the hub accepts; ends with a newline. ``use`` is the example of use."""
    sections = [
        of_run(results, library),
        f"# A sentence encoder trained with {results['objective']}",
        f"Backbone: {_shown(results['backbone'])}. The vectors are those of step {results['best_step']}. "
        f"{OBJECTIVES.get(results['objective'], '')}".rstrip(),
        use or USE,
        "## Intended use",
        INTENDED,
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


def card_of_folder(
    name: str, description: Mapping[str, str], *, use: str | None = None, library: str = "sentence-transformers"
) -> str:
    """Of an encoder whose training is not known here."""
    known = [(key, value) for key, value in description.items() if key not in ("kind", "backbone") and value]
    sections = [
        front_matter(library, base_model=name),
        "# A sentence encoder",
        f"Exported from {_shown(name)}. How it was trained, on what, and under which licence: see there.",
        use or USE,
        "## Settings",
        _table(("", ""), known),
    ]
    return "\n\n".join(sections) + "\n"


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
        "The interval is at 95 %, over the test items; it says nothing about other seeds.\n\n"
    )
    protocols = {name.split("/")[1] for name in results["scores"] if name.count("/") == 2}
    text += "".join(f"- `{name}`: {meaning}\n" for name, meaning in PROTOCOLS.items() if name in protocols) + "\n"
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
    return "\n\n".join(f"{_table(('manifest', ''), _flat(manifest))}\n\n{_licence(manifest)}" for manifest in manifests)


def _licence(manifest: Mapping[str, Any]) -> str:
    known = manifest.get("licence") or manifest.get("license")
    if known:
        return f"Licence: {_shown(known)}."
    where = f" See https://huggingface.co/datasets/{manifest['id']}." if manifest.get("kind") == "hub" else ""
    return f"Licence: not recorded by the run. Find it out before you publish this encoder.{where}"


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


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
SCORE = re.compile(r"(?P<task>[\w+]+)(-(?P<split>dev))?/(?P<protocol>\w+)/(?P<metric>\w+)")
OF_THE_COSINE = ("all", "cosine")  # protocols
TAGS = {
    "sentence-transformers": ["sentence-transformers", "sentence-similarity", "feature-extraction"],
    "transformers": ["feature-extraction", "sentence-similarity"],
    "onnx": ["onnx", "sentence-similarity", "feature-extraction"],
}


def front_matter(library: str, *, tags: tuple[str, ...] = (), base_model: str = "", **fields: Any) -> str:
    """YAML between two lines of ---; ``fields`` are those of ModelCardData."""
    data = ModelCardData(
        library_name=library,
        pipeline_tag="sentence-similarity",
        tags=[*TAGS[library], *tags],
        base_model=base_model if is_hub_id(base_model) else None,
        **fields,
    )
    return f"---\n{data.to_yaml()}\n---"


def of_run(results: Results, library: str) -> str:
    """With base model, data sets and scores of a run."""
    hub_data = [source["id"] for source in results["data"] if source.get("kind") == "hub" and is_hub_id(source["id"])]
    scores = list(_eval_results(results["scores"]))
    return front_matter(
        library,
        tags=(results["objective"],),
        base_model=results["backbone"],
        datasets=hub_data or None,
        eval_results=scores or None,
        model_name=f"sentence encoder by {results['objective']}" if scores else None,
    )


def is_hub_id(name: str) -> bool:
    """``tiny`` means random weights; what exists as a folder was read from there."""
    return name != "tiny" and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def _eval_results(scores: Mapping[str, float]) -> Iterator[EvalResult]:
    """Correlations of the cosine as sentence-transformers names and scales them (-1..1), and accuracies (0..1)."""
    for name, value in sorted(scores.items()):
        found = SCORE.fullmatch(name)
        if found is None:
            continue
        metric = found["metric"]
        if metric in ("spearman", "pearson") and found["protocol"] in OF_THE_COSINE:
            task, metric = ("semantic-similarity", "Semantic Similarity"), f"{metric}_cosine"
        elif metric == "accuracy":
            task = ("text-classification", "Text Classification")
        else:
            continue
        split = found["split"] or "test"
        yield EvalResult(
            task_type=task[0],
            task_name=task[1],
            dataset_type=found["task"],
            dataset_name=found["task"].upper() if split == "test" else f"{found['task'].upper()} {split}",
            dataset_split=split,
            metric_type=metric,
            metric_name=name,
            metric_value=round(value / 100, 6),
        )
