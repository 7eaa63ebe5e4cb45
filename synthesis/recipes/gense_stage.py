"""The scored data set: what `Stage` asks of its method, for triplets."""

from dataclasses import dataclass
from typing import Any

from contracts import InputError
from prompts import DIRECTIONS, PromptIds, Prompts
from synthesis.decoding.continuations import Sampled
from synthesis.decoding.encoder_decoder import EncoderDecoder
from synthesis.decoding.generator import Generator
from synthesis.recipes.gense import Discriminator, GenseJob, Plan
from synthesis.sentences.preparation import Prepared
from synthesis.shards.stage import Stage


@dataclass
class GenseStage(Stage):
    """A sentence, and all that was written for it with the discriminator's answers."""

    plan: Plan
    prompts: Prompts
    sentences: Prepared

    def begin(self, missing: list[int], generator: Generator) -> GenseJob:
        assert isinstance(generator, EncoderDecoder)
        try:
            ids = PromptIds(self.prompts, generator.tokenizer)
            score = Discriminator(generator, ids, self.plan.max_pair_tokens)
        except InputError as error:
            raise InputError(f"generator={generator.name}: {error}") from None
        return GenseJob(self.sentences, ids, score, self.plan, self.shard_size, missing)

    def groups(self, inputs: int) -> int:
        return inputs * len(DIRECTIONS)

    def passes(self, sampled: Sampled) -> bool:
        return bool(sampled.text.strip())

    def describe(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The triplets beside it have the report."""
        return {}
