"""The model card, written from ``results.json``.

Only facts of the run are written. Paths of the training machine are omitted, because a card is meant to be published.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from contrastive_encoders.core import EmbeddingInfo, EncoderPrompts, PromptsRecord, Results, ResumedSettings
from contrastive_encoders.core.encoder_prompts import NAMES
from contrastive_encoders.core.nested_keys import flatten
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.export.front_matter import front_matter, front_matter_of_run, hub_dataset_ids
from contrastive_encoders.io.installed_models import hub_name
from contrastive_encoders.reports.tables import CODE, Cell, Column, Table, code, columns, escape, markdown

INTENDED_USE = (
    "Embeddings of sentences and short paragraphs that are compared by their cosine: semantic search, clustering, "
    "near-duplicate detection, and features for classifiers. Not intended for decisions about people."
)
USE = """```python
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer("PATH_OR_ID_OF_THIS_FOLDER")
vectors = encoder.encode(["A sentence.", "Another one."])
print(encoder.similarity(vectors, vectors))
```"""

PROTOCOLS = {
    "all": "one correlation of the cosines over all subsets together",
    "mean": "the mean of the subsets' correlations",
    "wmean": "the mean of the subsets' correlations, weighted by their sizes",
    "cosine": "metric of the cosine of the two embeddings",
    "max": "the best of cosine, dot product, Euclidean and Manhattan distance",
    "regressor": "SentEval's regressor on the two embeddings, trained on the training split",
    "default": "SentEval's classifier on the embeddings with its default settings",
    "fast": "SentEval's classifier on the embeddings with its fast settings",
    "sklearn": "scikit-learn's logistic regression on the embeddings",
    "geometry": "properties of the embeddings, in their own units",
}
# Keys of a data set and of a recipe that are shown; the others are folded
DATA_FIELDS = ("kind", "id", "config", "split", "rows", "documents", "kept", "used", "tokens", "generator")
RECIPE_KEYS = (
    "data.path",
    "batch_size",
    "max_epochs",
    "precision",
    "seed",
    "monitor",
    "data.max_length",
    "model.max_length",
    "data.anchors_per_document",
    "data.positives_per_anchor",
    "data.postprocess",
    "model.pooling",
    "model.attention",
    "model.temperature",
    "model.lr",
    "model.lr_schedule",
    "model.lora.rank",
)


def model_card(results: Results, *, use: str | None = None, library: str = "sentence-transformers") -> str:
    """Return the model card of a run: Markdown with YAML front matter for the Hub. ``use`` is the usage example."""
    sections = [
        front_matter_of_run(results, library),
        f"# A sentence encoder trained with {results['objective']}",
        f"Backbone: {_text(hub_name(results['backbone']))}. The weights are from step {results['best_step']}. "
        f"{_objective(results['objective'])}".rstrip(),
        use or USE,
        *_vectors(results.get("embeddings")),
        *_prefixes(results["recipe"], results.get("embeddings")),
        *_prompts(results.get("prompts")),
        "## Intended use",
        INTENDED_USE,
        "## Scores",
        _scores(results),
        "## Training data",
        _data(results["data"]),
        "## Overlap with the test texts",
        _overlap(results.get("overlap", {})),
        "## Training cost",
        _table(_spent(results)),
        "## Recipe",
        *_resumed(results.get("resumed", [])),
        _recipe(results["recipe"]),
        "## Limits",
        _limits(results),
    ]
    return "\n\n".join(sections) + "\n"


def _objective(name: str) -> str:
    """Return the summary of the objective ``name``, or "" for a custom objective."""
    return MODEL_CONFIGS[name].summary if name in MODEL_CONFIGS else ""


def card_without_run(
    name: str, description: Mapping[str, str], *, use: str | None = None, library: str = "sentence-transformers"
) -> str:
    """Return the model card of an encoder whose training is unknown."""
    known = [(key, value) for key, value in description.items() if key not in ("kind", "backbone") and value]
    sections = [
        front_matter(library, base_model=name),
        "# A sentence encoder",
        f"Exported from {_text(name)}. Its training, data, and license: see there.",
        use or USE,
        "## Settings",
        _table(known),
    ]
    return "\n\n".join(sections) + "\n"


def _vectors(vectors: EmbeddingInfo | None) -> Iterator[str]:
    """Yield a paragraph that states the embedding dimension and the similarity for a vector index."""
    if vectors is None:
        return
    summary = f"Embeddings have {vectors['width']} dimensions (pooling: {code(vectors['pooling'])})"
    if vectors["normalize"]:
        yield f"{summary} and are normalized (`Normalize`): dot product, cosine, and Euclidean distance rank alike."
    else:
        yield (
            f"{summary} and are not normalized (no `Normalize`): compare them by their cosine. Normalize them for an "
            "index with dot products: `encode(..., normalize_embeddings=True)`."
        )


def _prefixes(recipe: Mapping[str, Any], vectors: EmbeddingInfo | None) -> Iterator[str]:
    """Yield the paragraph about truncated embeddings, if the encoder was trained for them."""
    if sizes := (recipe.get("model") or {}).get("matryoshka"):
        yield (
            f"The first {' or '.join(map(str, sizes))} dimensions of an embedding can be used alone: the loss was "
            f"summed over these prefixes (Matryoshka). In sentence-transformers: `truncate_dim={min(sizes)}`"
            f"{', and `normalize_embeddings=True` to normalize again.' if vectors and vectors['normalize'] else '.'}"
        )


def _prompts(prompts: PromptsRecord | None) -> Iterator[str]:
    """Yield the paragraph about the prompts that precede texts."""
    if prompts is None:
        return
    encoder_prompts = EncoderPrompts(**prompts)
    listed = ", ".join(f"{code(name)}: {code(text)}" for name, text in encoder_prompts.named.items() if text)
    own = [f"`encode_{role}` uses {code(text)}, " for role in NAMES if (text := encoder_prompts.for_role(role))]
    plain_encode = "uses the default prompt" if encoder_prompts.default else "uses no prompt"
    yield (
        f"The encoder has prompts for its texts ({listed}). In sentence-transformers, {''.join(own)}plain "
        f"`encode` {plain_encode}, and `encode(texts, prompt_name=...)` uses the prompt of that name."
    )


def _scores(results: Results) -> str:
    if not results["scores"]:
        return "None: the run had no evaluation data."
    before, baselines = results.get("scores_before", {}), results.get("baselines", {})
    rows = [
        (Cell(name, mark=CODE), score, _interval(results["intervals"].get(name)), before.get(name))
        for name, score in sorted(results["scores"].items())
    ]
    explanation = (
        "Scores are from 0 to 100. A name consists of task, split, protocol, and metric; no split means the test "
        "split. The 95 % interval is over test items and does not cover other seeds."
    )
    if results["recipe"].get("evaluation", {}).get("precision") == "bf16":
        explanation += " Matmuls were computed in bf16; scores in fp32 differ by some hundredths."
    protocols = {ScoreName.parse(name).protocol for name in results["scores"]}
    meanings = [f"- {code(name)}: {meaning}" for name, meaning in PROTOCOLS.items() if name in protocols]
    heads = [
        Column("score"),
        Column("value", ".2f"),
        Column("interval", right=True),
        Column("before training", ".2f"),
    ]
    verdict = results.get("verdict")
    sentences = [escape(verdict["sentence"])] if verdict else []
    parts = [*sentences, explanation, *(["\n".join(meanings)] if meanings else []), markdown(Table(heads, rows))]
    if baselines:
        rows_of = [(Cell(name, mark=CODE), score) for name, score in sorted(baselines.items())]
        parts += ["Baselines:", markdown(Table([Column("baseline"), Column("value", ".2f")], rows_of))]
    return "\n\n".join(parts)


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if not bounds else f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def _data(manifests: Sequence[Mapping[str, Any]]) -> str:
    if not manifests:
        return "Not recorded."
    return "\n\n".join(map(_data_set, manifests))


def _data_set(manifest: Mapping[str, Any]) -> str:
    rows = list(_format_entries(manifest).items())
    selected = [(name, value) for name, value in rows if value and _is_shown(name.split("."))]
    if counts := manifest.get("unknown_tokens"):
        unknown, tokens, affected, of_rows = (counts[key] for key in ("unknown", "tokens", "rows_with_unknown", "rows"))
        selected.append(("unknown tokens", f"{unknown:,} of {tokens:,}, in {affected:,} of {of_rows:,} rows"))
    return "\n\n".join([_table(selected), _license(manifest), _details("All recorded details", _table(rows))])


def _is_shown(name: Sequence[str]) -> bool:
    return name[-1] in DATA_FIELDS and not {"key", "files", "unknown_tokens"} & set(name)


def _resumed(resumed: Sequence[ResumedSettings]) -> Iterator[str]:
    """Yield a table of the settings that changed when training was resumed, because the recipe on the card contains
    only the last values.
    """
    if not resumed:
        return
    yield "Settings that changed when training was resumed from a checkpoint. The recipe has the last values."
    rows = [
        (one["step"], Cell(key, mark=CODE), *map(_format, values))
        for one in resumed
        for key, values in one["changed"].items()
    ]
    yield _table(rows, "after step", "key", "before", "after")


def _recipe(recipe: Mapping[str, Any]) -> str:
    rows = _format_entries(recipe)
    selected = [(name, rows[name]) for name in RECIPE_KEYS if rows.get(name) not in (None, "null")]
    return f"{_table(selected)}\n\n{_details(f'All {len(rows)} keys', _table(rows.items(), 'key', 'value'))}"


def _details(summary: str, content: str) -> str:
    """Return Markdown that shows only ``summary`` until a click expands ``content``."""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def _license(manifest: Mapping[str, Any]) -> str:
    known = manifest.get("license")
    if known:
        return f"License: {_text(known)}."
    links = "".join(f" See https://huggingface.co/datasets/{name}." for name in hub_dataset_ids([manifest]))
    return f"License: not recorded by the run. Check it before you publish this encoder.{links}"


def _overlap(overlap: Mapping[str, Mapping[str, int]]) -> str:
    if not overlap:
        return "Not counted, because no test texts were scored."
    rows = [(task, counts["checked"], counts["found"]) for task, counts in sorted(overlap.items())]
    return _table(rows, "task", "sentences checked", "found verbatim in the training text")


def _spent(results: Results) -> Iterator[tuple[str, str]]:
    spent = results["cost"]
    yield from ((name.replace("_", " "), f"{spent[name]:,}") for name in ("steps", "examples", "real_tokens"))
    if padded := spent["padded_tokens"]:
        yield "padding", f"{padded / (spent['real_tokens'] + padded):.1%} of all tokens"
    yield "time", f"{spent['wall_seconds'] / 60:.1f} minutes on {results['processes']} x {results['device']}"
    yield "peak memory of a process", f"{spent['peak_memory_bytes'] / 2**30:.2f} GiB"
    yield "seeds", ", ".join(map(str, results["seeds"]))
    yield "code", results["git_commit"] or "no commit recorded"
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))


def _limits(results: Results) -> str:
    lines = [
        "The encoder was only trained and tested on the language and the domain of its data.",
        "A text longer than the length limit is truncated without a warning.",
        "Embeddings reproduce biases in the training data; bias was not tested.",
    ]
    if results["backbone"] == "tiny":
        lines.append("The backbone is small and started from random weights: it only demonstrates the method.")
    if not results["scores"]:
        lines.append("The encoder was not evaluated. Evaluate it before you rely on it.")
    return "\n".join(f"- {line}" for line in lines)


def _format_entries(tree: Mapping[str, Any]) -> dict[str, str]:
    """Flatten nested keys to dotted keys, and format their values: a long list as its length, a path as its last
    part.
    """
    return {key: _format_entry(value) for key, value in flatten(tree).items()}


def _format_entry(value: Any) -> str:
    is_list = isinstance(value, list | tuple)
    if is_list and (len(value) > 8 or any(isinstance(item, Mapping | list) for item in value)):
        return f"{len(value)} entries"
    return _format(value)


def _format(value: Any) -> str:
    if isinstance(value, str):
        _, _, packaged = value.rpartition("/site-packages/")
        return packaged if packaged != value else PurePath(value).name if value.startswith(("/", "~")) else value
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value))
    return json.dumps(value, default=str)


def _text(value: Any) -> str:
    return escape(_format(value))


def _table(rows: Iterable[Sequence[Any]], *headings: str) -> str:
    return markdown(Table(columns(*(headings or ("", ""))), list(rows)))
