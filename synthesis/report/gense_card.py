"""The data card of triplets, whoever made them."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from prompts import DIRECTIONS, Direction

PAPER = "Chen et al., *Generate, Discriminate and Contrast* (EMNLP 2022)"
SETTINGS = ("method", "generator", "precision", "decoding", "plan", "bm25", "there", "back", "search", "labels")


class Method(NamedTuple):
    """How candidates came about, in words."""

    made: str  # "written by ..."
    rows: str = "triplets"
    directions: tuple[Direction, ...] = DIRECTIONS
    warning: str = "No person wrote or checked these texts."


METHODS = {
    "gense": Method("written by GenSE's generator"),
    "gense_retrieval": Method(
        "found among the same sentences by BM25", warning="No person checked what follows from what."
    ),
    "gense_back_translation": Method("translated there and back", "pairs", ("entailment",)),
    "gense_dino": Method("taken from DINO's pairs"),
}


def method_of(scored: Mapping[str, Any]) -> Method:
    """Of the identity of a scored data set."""
    return METHODS[scored.get("method", "gense")]


def data_card(manifest: Mapping[str, Any]) -> str:
    """README.md, with the front matter of dataset hubs."""
    counts, identity, judge = manifest["counts"], manifest["identity"], manifest["generator"]["name"]
    scored = identity["scored"]
    method = method_of(scored)
    front = {
        "pretty_name": f"{method.rows.capitalize()}, synthetic",
        "tags": ["synthetic", "gense", "sentence-similarity"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "shard-*.jsonl"}]}],
    }
    follows = "one that follows from it"
    what = follows if len(method.directions) == 1 else f"{follows} and one that contradicts it"
    by = f" and judged by the model `{judge}`" if judge else ""
    columns = ", ".join(f"`{name}`" for name in ("premise", *method.directions))
    probabilities = "; `p_...` are the discriminator's probabilities that they are" if judge else ""
    how = {"rules": identity["rules"], **{key: value for key, value in scored.items() if key in SETTINGS}}
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {method.rows.capitalize()}",
        "",
        f"{counts['accepted']:,} sentences, each with {what}, {method.made}{by}, after the method of {PAPER}. "
        f"**{method.warning}**",
        "" if manifest["complete"] else "\nThis data set is not finished.\n",
        "```",
        "python train.py model=gense data=triplets data.path=THIS_FOLDER",
        "```",
        "",
        f"Columns: {columns}{probabilities}. `scored/` has all candidates; `recipe=gense_filter` takes {method.rows} "
        "from it by other rules.",
        "",
        "```json",
        json.dumps(how, indent=1, ensure_ascii=False),
        "```",
        "",
        "The licence of such texts depends on the models and on the sentences that were given: say yours.",
        "",
    ]
    return "\n".join(lines)
