"""Use a generator or an instruct model as a discriminator, which judges whether a hypothesis follows from a premise
(GenSE).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch
from transformers import AutoConfig

from contrastive_encoders.compat import find_file
from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import (
    DIRECTIONS,
    GENERATOR_FILE,
    Direction,
    PromptIds,
    Prompts,
    parse_prompts,
    read_generator_prompts,
)
from contrastive_encoders.encoders.loading.backbones import from_pretrained
from contrastive_encoders.encoders.loading.generative import is_causal_generator
from contrastive_encoders.io.model_names import run_folder
from contrastive_encoders.synthesis.decoding.continuations import PromptText
from contrastive_encoders.synthesis.decoding.encoder_decoder import load_encoder_decoder
from contrastive_encoders.synthesis.decoding.generator import (
    Generator,
    batch_by_length,
    load_generator,
    not_finite_error,
)
from contrastive_encoders.synthesis.shards.provenance import identify_generator

SENTENCES_PER_BATCH = 256  # sentences that are tokenized together and whose pairs are scored together
PROBABILITY_DIGITS = 6  # digits of stored and compared probabilities; the batch composition changes later digits

Pair = tuple[str, str]  # premise, hypothesis

log = logging.getLogger(__name__)


class ScoredText(TypedDict):
    """A text that was written for a premise, with the probability that the text follows from the premise."""

    text: str
    p_true: float | None  # P("true") of {"true", "false"}: the text follows from the premise; None: not judged
    closed: bool  # ended on its own, not truncated after max_new_tokens


class ChatPromptIds(PromptIds):
    """Prompts in the chat format of an instruct model, as token ids.

    Prompts are joined with the sentences and then formatted by the model's chat template.
    """

    def __init__(self, prompts: Prompts, generator: Generator) -> None:
        super().__init__(prompts._replace(assembly="string"), generator.tokenizer, alone=True)
        self.generator = generator
        self.parts["discrimination"][3:] = self.ids(prompts.discrimination[3:])  # unchanged: may begin a line

    def max_pair_length(self, max_tokens: int) -> int:
        [fixed] = self._framed(self.discrimination_texts([""], [""], max_tokens))
        return len(fixed) + 2 * max_tokens

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        return self.generator.encode(texts)


class Discriminator:
    """Discriminator that returns, for a pair of sentences, the probability that the second follows from the first."""

    def __init__(self, generator: Generator, prompts: Prompts, max_pair_tokens: int) -> None:
        try:
            chat = generator.chat_template
            self.ids = (
                ChatPromptIds(prompts, generator)
                if chat
                else PromptIds(prompts, generator.tokenizer, alone=generator.writes_alone)
            )
            self.answers = list(self.ids.answers())
        except InputError as error:
            message = f"generator={generator.name}: {error}"
            raise error.copy(message, key="generator", value=generator.name) from None
        self.generator, self.max_pair_tokens = generator, max_pair_tokens
        if (longest := self.ids.max_pair_length(self.max_pair_tokens)) > generator.context:
            raise InputError(
                key="max_pair_tokens",
                value=self.max_pair_tokens,
                expected=f"a lower number, because two sentences of this length and their prompt have {longest} "
                f"tokens, but the context length of {generator.name} is {generator.context} tokens",
            )

    def check_room(self, max_tokens: int) -> None:
        """Raise `InputError` if a prompt with a sentence of ``max_tokens`` tokens leaves no space for an answer in the
        model's context.
        """
        for direction in DIRECTIONS:
            [empty] = self.ids.generation(direction, [""], max_tokens)
            if (longest := len(empty) + max_tokens) >= self.generator.context:
                raise InputError(
                    key="max_source_tokens",
                    value=max_tokens,
                    expected=f"a lower number, because a sentence of this length and prompts.{direction} have "
                    f"{longest} tokens, which leaves no space for an answer: the context length of "
                    f"{self.generator.name} is {self.generator.context} tokens",
                    hint="Alternatively, shorten the prompt.",
                )

    def questions(self, direction: Direction, sentences: Sequence[str], max_tokens: int) -> list[PromptText]:
        """Return, for each sentence, a prompt that asks for an entailment of the sentence, or for a contradiction,
        according to ``direction``. Sentences are truncated to ``max_tokens`` tokens.
        """
        return [tuple(ids) for ids in self.ids.generation(direction, sentences, max_tokens)]

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """Return P("true"), the probability that the second sentence follows from the first, for each pair.

        Equal pairs are processed once, and pairs of similar length are processed together.
        """
        wanted = list(dict.fromkeys(pairs))
        rows = self.ids.discrimination([one for one, _ in wanted], [other for _, other in wanted], self.max_pair_tokens)
        ids_of: dict[PromptText, list[int]] = {tuple(ids): ids for ids in rows}
        found: dict[PromptText, float] = {}
        for texts in batch_by_length(ids_of):
            logits_R2 = self.generator.answer_logits([ids_of[text] for text in texts], self.answers)
            for text, p in zip(texts, logits_R2.double().softmax(1)[:, 0].tolist(), strict=True):
                found[text] = p
        if any(p != p for p in found.values()):
            raise not_finite_error(self.generator.name)
        of = {pair: round(found[tuple(ids)], PROBABILITY_DIGITS) for pair, ids in zip(wanted, rows, strict=True)}
        return [of[pair] for pair in pairs]


class NamedGenerator(NamedTuple):
    """Name and prompts of a generator that is not loaded yet, with the settings that identify its weights."""

    source: str  # folder or hub id
    name: str
    weights: dict[str, Any]  # identity of its weights
    prompts: Prompts
    writes_alone: bool  # True for a causal language model, False for a T5 model

    def load(self, **options: Any) -> Generator:
        return (load_generator if self.writes_alone else load_encoder_decoder)(self.source, **options)


def name_generator(recipe: Any) -> NamedGenerator:
    """Resolve the generator of a recipe and its prompts, and check all settings that can be checked before the
    generator is loaded.

    Raises:
        InputError: The model does not exist, is not generative, or its prompts are damaged.
    """
    source = find_generator(recipe.generator)
    weights = identify_generator(source, recipe.revision)
    options = {"revision": recipe.revision} if recipe.revision else {}
    alone = is_causal_generator(
        from_pretrained(AutoConfig, source, setting="generator", **options), source, "generator"
    )
    name = Path(source).resolve().name if Path(source).is_dir() else source
    if recipe.chat_template:
        if not alone:
            raise InputError(
                key="chat_template", value=True, expected=f"false, since {name} is not a causal language model"
            )
        return NamedGenerator(source, name, weights, parse_prompts(recipe.prompts, "string", "prompts"), alone)
    prompts = choose_prompts(source, recipe.prompts, recipe.prompt_assembly, recipe.revision)
    return NamedGenerator(source, name, weights, prompts, alone)


def find_generator(name: str) -> str:
    """Return the generator's subdirectory in the directory of a training run. Return any other name unchanged.

    Raises:
        InputError: The directory contains no generator.
    """
    folder = Path(name)
    if not folder.is_dir() or (folder / "config.json").is_file():
        return name
    run_folder(name, "generator")  # rejects a run of another version
    for inner in sorted(folder.glob(f"*/{GENERATOR_FILE}")):
        return str(inner.parent)
    if (folder / "encoder").is_dir():
        reason = "this is the run of an encoder"
    elif (folder / "checkpoints").is_dir():
        reason = "this run is not finished; run its command again to resume"
    else:
        reason = "this directory contains neither config.json nor generator/"
    expected = f"a directory of transformers, or the finished run of a generator ({reason})"
    raise InputError(key="generator", value=name, expected=expected)


def choose_prompts(
    generator: str, published: Mapping[str, Any], assembly: str | None, revision: str | None = None
) -> Prompts:
    """Return the prompts with which the generator was trained, according to its ``generator.json``.

    If there is no such file, return the published prompts, joined by ``assembly`` or "pieces".

    Raises:
        InputError: ``assembly`` or a custom file of prompts differs from those that the generator was trained with.
    """
    kept = read_generator_prompts(folder) if (folder := _generator_folder(generator, revision)) else None
    if kept is None:
        chosen = parse_prompts(published, assembly or "pieces", "prompts")
        log.info("%s has no %s: using the published prompts, joined as %s", generator, GENERATOR_FILE, chosen.assembly)
        return chosen
    if assembly not in (None, kept.assembly):
        raise InputError(
            key="prompt_assembly",
            value=assembly,
            expected=f"{kept.assembly}, because {generator} was trained with this value according to its "
            f"{GENERATOR_FILE}",
            hint="Leave prompt_assembly out.",
        )
    if "file" in published and parse_prompts(published, kept.assembly, "prompts") != kept:
        raise InputError(
            key="prompts",
            value=published["file"],
            expected=f"the prompts with which {generator} was trained according to its {GENERATOR_FILE}",
            hint="Leave prompts out.",
        )
    return kept


def _generator_folder(generator: str, revision: str | None) -> Path | None:
    """Return the directory that contains the model's ``generator.json``.

    For a model on the hub, this is the directory of the cached file. Return None if the hub has no such file.
    """
    if Path(generator).is_dir():
        return Path(generator)
    found = find_file(generator, GENERATOR_FILE, if_reachable=True, revision=revision)
    return Path(found).parent if found else None
