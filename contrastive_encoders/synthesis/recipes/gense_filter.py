"""Apply different rules to the scored rows that another recipe has written, without running a model."""

from dataclasses import dataclass
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.synthesis.recipe import Recipe
from contrastive_encoders.synthesis.recipe_configs import RulesConfig
from contrastive_encoders.synthesis.rules.triplets import SCORED, filter_identity, find_scored
from contrastive_encoders.synthesis.shards.store import ShardStore, read_manifest
from contrastive_encoders.synthesis.triplet_recipe import check_judged, write_triplets


@dataclass(kw_only=True)
class GenseFilter(RulesConfig, Recipe):
    """Recipe ``gense_filter``: select triplets from an existing scored dataset by different rules."""

    def plan(self) -> None:
        if self.generator is not None:
            expected = "null, because this recipe generates no texts"
            raise InputError(key="generator", value=self.generator, expected=expected)
        check_number("workers", self.workers or 1)
        require(self, "input", "the output of the recipe gense")
        self.source = find_scored(Path(str(self.input)))
        self.scored = read_manifest(self.source)["identity"]
        check_judged(self.scored["generator"] if self.scored.get("judged", True) else None, self.rules)
        if (self.folder / SCORED).exists() or self.folder.resolve() == self.source.resolve():
            expected = "a directory other than the input"
            raise InputError(key="output", value=self.folder, expected=expected)

    def claim(self) -> bool:
        identity = filter_identity(self.scored, self.rules)
        return ShardStore(self.folder).claim(identity, overwrite=self.overwrite)

    def write(self) -> None:
        write_triplets(self.source, self.folder, self.rules, self.workers)
