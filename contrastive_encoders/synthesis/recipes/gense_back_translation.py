"""Create pairs by back-translation with two translation models.

Models are decoded with the beam search of transformers, since each family (Marian, M2M-100, NLLB, mBART, T5) has
different positions and start tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DynamicCache,
    EncoderDecoderCache,
)

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_complete
from contrastive_encoders.synthesis.decoding.generator import PRECISIONS, batch_by_length
from contrastive_encoders.synthesis.recipe_configs import BackTranslationConfig, Language, Search
from contrastive_encoders.synthesis.shards.provenance import identify_generator
from contrastive_encoders.synthesis.triplet_recipe import (
    Baseline,
    CandidateSource,
    SentenceCandidates,
    SentenceRecipe,
)


@dataclass(kw_only=True)
class BackTranslation(BackTranslationConfig, Baseline, SentenceRecipe):
    """Recipe ``gense_back_translation``: pairs of a sentence and its back-translation, which a discriminator may
    judge.
    """

    def method(self) -> dict[str, Any]:
        identity: dict[str, Any] = {"search": asdict(self.search)}
        for where, language in (("forward", self.forward), ("backward", self.backward)):
            if language.model is None:
                raise InputError(
                    key=f"{where}.model", value=None, expected="the directory or hub id of a translation model"
                )
            weights = identify_generator(language.model, None, f"{where}.model")
            identity[where] = {**asdict(language), "model": weights}
        return {**identity, "input": self.given}

    def source(self, inputs: Iterable[str]) -> Callable[[], CandidateSource]:
        return partial(load_translators, self.forward, self.backward, self.search, self.precision, self.device)


class Translation(NamedTuple):
    text: str
    whole: bool  # the full sentence was read, and the translation ended on its own


class Translator:
    """A loaded translation model for one direction.

    Raises:
        InputError: The model does not exist, is not an encoder-decoder with a language-model head, or does not support
            the language.
    """

    def __init__(self, where: str, language: Language, search: Search, *, precision: str, device: str) -> None:
        self.where, self.language, self.search = where, language, search
        name, setting = str(language.model), f"{where}.model"
        config = from_pretrained(AutoConfig, name, setting=setting)
        if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            raise InputError(
                key=setting,
                value=name,
                expected=f"an encoder-decoder (Marian, M2M-100, NLLB, mBART, or T5), not a {config.model_type} model",
            )
        self.tokenizer = from_pretrained(AutoTokenizer, name, setting=setting)
        if language.source is not None:
            self._code("source", language.source)
            if not hasattr(self.tokenizer, "src_lang"):
                raise InputError(
                    key=f"{where}.source",
                    value=language.source,
                    expected=f"null, because the tokenizer of {name} does not use a source language",
                )
            self.tokenizer.src_lang = language.source
        self.options: dict[str, Any] = {"num_beams": search.beams, "max_new_tokens": search.max_tokens}
        if language.target is not None:
            self.options["forced_bos_token_id"] = self._code("target", language.target)

        def refused(why: str) -> InputError:
            return InputError(key=setting, value=name, expected=f"a complete model ({why})")

        model = load_complete(AutoModelForSeq2SeqLM, name, refused, setting=setting, dtype=PRECISIONS[precision])
        self.model: Any = model.to(device).eval()  # type: ignore[arg-type]
        self.model.generation_config.max_length = None  # max_new_tokens is used instead
        ends = self.model.generation_config.eos_token_id
        self.ends = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}

    def _code(self, key: str, language: str) -> int:
        """Return the token id of a language code."""
        names = [language, f"__{language}__"]  # the second form is used by M2M-100
        known = self.tokenizer.get_vocab()
        for name in names:
            if name in known:
                return int(known[name])
        raise InputError(
            key=f"{self.where}.{key}",
            value=language,
            expected=f"a language code in the vocabulary of {self.language.model}, such as fra_Latn (NLLB), "
            "fr (M2M-100), or fr_XX (mBART)",
        )

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> list[Translation]:
        """Translate texts. Equal texts are processed once, and texts of similar length are processed together."""
        most = self.search.max_tokens
        asked = list(dict.fromkeys(texts))
        read = self.tokenizer([self.language.prefix + text for text in asked])["input_ids"]
        ids = dict(zip(asked, read, strict=True))
        found: dict[str, Translation] = {}
        for some in batch_by_length({text: one[:most] for text, one in ids.items()}):
            batch = self.tokenizer(
                [self.language.prefix + text for text in some],
                padding=True,
                truncation=True,
                max_length=most,
                return_tensors="pt",
            ).to(self.model.device)
            inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
            # Empty caches grow with the decoder; those created by generate have as many layers as the encoder
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            ids_RT = self.model.generate(**inputs, do_sample=False, past_key_values=cache, **self.options).cpu()
            written = self.tokenizer.batch_decode(ids_RT, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            for text, other, ids_T in zip(some, written, ids_RT[:, 1:].tolist(), strict=True):
                found[text] = Translation(
                    " ".join(other.split()), len(ids[text]) <= most and bool(self.ends & {*ids_T})
                )
        return [found[text] for text in texts]


def load_translators(
    forward: Language, backward: Language, search: Search, precision: str, device: str
) -> "BackTranslatedCandidates":
    """Load both translation models on the device of the worker."""
    models = [
        Translator(where, language, search, precision=precision, device=device_of(device))
        for where, language in (("forward", forward), ("backward", backward))
    ]
    return BackTranslatedCandidates(*models)


class BackTranslatedCandidates:
    """Source of candidates that returns the back-translation of each sentence as its only candidate, an entailment."""

    def __init__(self, forward: Translator, backward: Translator) -> None:
        self.forward, self.backward = forward, backward

    def __call__(self, first: int, inputs: Sequence[str]) -> list[SentenceCandidates]:
        pivots = self.forward(inputs)
        returned = self.backward([one.text for one in pivots])
        return [
            SentenceCandidates(premise, {"entailment": [(one.text, one.whole and pivot.whole)]}, {"pivot": pivot.text})
            for premise, pivot, one in zip(inputs, pivots, returned, strict=True)
        ]
