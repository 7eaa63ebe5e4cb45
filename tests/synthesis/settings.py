"""Settings that tests change some of; the others are what the recipes' files say."""

from dataclasses import fields
from pathlib import Path

import yaml

from contrastive_encoders.synthesis.decoding.continuations import Decoding
from contrastive_encoders.synthesis.recipes.dino import Plan
from contrastive_encoders.synthesis.rules.filters import Filters
from contrastive_encoders.synthesis.rules.triplet_rules import Rules
from contrastive_encoders.synthesis.task_spec import STOP

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DINO = yaml.safe_load((CONFIGS / "recipe/dino.yaml").read_text(encoding="utf-8"))
RULES = yaml.safe_load((CONFIGS / "recipe_keys/rules.yaml").read_text(encoding="utf-8"))["rules"]


def of_dino(kind, changes):
    return kind(**{one.name: DINO[one.name] for one in fields(kind) if one.name in DINO} | changes)


def decoding(**changes):
    return of_dino(Decoding, {"top_k": 5, "stop": STOP, **changes})


def plan(**changes):
    return of_dino(Plan, {"filters": filters(), **changes})


def retry(per_label, max_tries):
    return plan(strategy="retry", per_label=per_label, max_tries=max_tries)


def filters(**changes):
    return Filters(**DINO["filters"] | changes)


def rules(**changes):
    return Rules(**RULES | changes)
