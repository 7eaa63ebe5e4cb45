"""Write dataset cards in the format of the Hugging Face Hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contrastive_encoders.core.gense_prompts import DIRECTIONS, Direction
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports.page import environment
from contrastive_encoders.synthesis.shards.store import X1

CARD = "README.md"
SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M", 10_000_000: "1M<n<10M"}
SETTINGS = ("method", "generator", "precision", "decoding", "plan", "bm25", "forward", "backward", "search", "labels")


class Method(NamedTuple):
    """Description, for the dataset card, of how candidates were created."""

    made: str  # "written by ..."
    rows: str = "triplets"
    directions: tuple[Direction, ...] = DIRECTIONS
    warning: str = "No person wrote or checked these texts."


BM25_ORIGIN = "found among the same sentences by BM25"
UNCHECKED_WARNING = "No person checked what follows from what."
METHODS = {  # and the text about contradictions, if they may be missing
    "gense": Method("written by GenSE's generator"),
    "gense_retrieval retrieved": Method(BM25_ORIGIN, warning=UNCHECKED_WARNING),
    "gense_retrieval none": Method(BM25_ORIGIN, "pairs", ("entailment",), UNCHECKED_WARNING),
    "gense_back_translation": Method("back-translated", "pairs", ("entailment",)),
    "gense_dino": Method("taken from DINO's pairs"),
}


def method_of(manifest: Mapping[str, Any]) -> Method:
    """Return the description of how the candidates of a triplet dataset were created."""
    scored = manifest["identity"]["scored"]
    if scored.get("chat_template") and "method" not in scored:
        return Method("written by an instruct model")
    return METHODS[" ".join([scored.get("method", "gense"), *filter(None, [scored.get("contradictions")])])]


def write_label_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the card of a DINO dataset, whose texts were written for labels."""
    identity = manifest["identity"]
    pairs, accepted = identity["kind"] == "x2", manifest["counts"]["accepted"]
    front: dict[str, Any] = {
        "pretty_name": f"{identity['spec']['task_name']}, generated",
        "tags": ["synthetic", "dino", *(["sentence-similarity"] if pairs else [])],
        "size_categories": [next((name for limit, name in SIZES.items() if accepted < limit), "n>10M")],
        "configs": [_config("default", "shard-*.jsonl")],
    }
    if any((folder / X1).glob("shard-*.jsonl")):
        front["configs"].append(_config(X1, f"{X1}/shard-*.jsonl"))
    write_card(folder, "label_card", front, manifest, pairs=pairs, how={**identity["decoding"], **identity["plan"]})


def write_triplet_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the card of a triplet dataset of any recipe."""
    method, scored = method_of(manifest), manifest["identity"]["scored"]
    front = {
        "pretty_name": f"{method.rows.capitalize()}, synthetic",
        "tags": ["synthetic", "gense", "sentence-similarity"],
        "configs": [_config("default", "shard-*.jsonl")],
    }
    how = {key: value for key, value in scored.items() if key in SETTINGS}
    write_card(
        folder, "triplet_card", front, manifest, method=method, how={"rules": manifest["identity"]["rules"], **how}
    )


def write_card(folder: Path, template: str, front: Mapping[str, Any], manifest: Mapping[str, Any], **more: Any) -> None:
    front_matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    text = environment(Path(__file__).parent).get_template(f"{template}.md.j2").render(**manifest, **more)
    atomic_write(folder / CARD, f"---\n{front_matter}---\n\n{text}\n")


def _config(name: str, pattern: str) -> dict[str, Any]:
    return {"config_name": name, "data_files": [{"split": "train", "path": pattern}]}
