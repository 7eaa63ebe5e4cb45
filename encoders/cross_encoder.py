"""Cross-encoder: a transformer that reads a query and a document in one sequence and returns one logit per pair.

Shape letters: N pairs, B pairs of a chunk, T tokens of its longest pair.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.encoders.attention import evaluation_mode, set_dropout
from contrastive_encoders.encoders.kernels.activation_checkpointing import check_layers, recomputed_layers
from contrastive_encoders.encoders.kernels.call_lock import CallLock
from contrastive_encoders.encoders.kernels.chunks import (
    chunk_cost,
    computed,
    on_device,
    padded,
    places_in,
    plan_chunks,
    plan_step,
    total_tokens,
)
from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers, round_lengths
from contrastive_encoders.encoders.kernels.onednn_layers import attention_for, packed_linears, shared_between_chunks
from contrastive_encoders.encoders.kernels.token_budget import recomputed_budget, resolve_token_budget
from contrastive_encoders.encoders.lengths import longest_input, usual_length
from contrastive_encoders.encoders.loading.backbones import (
    check_vocabulary,
    check_weights,
    from_pretrained,
    load_tokenizer,
)
from contrastive_encoders.encoders.sharding import is_first_rank
from contrastive_encoders.io.installed_models import expand_user
from contrastive_encoders.io.model_names import run_folder

SCORE_TOKENS_CPU, SCORE_TOKENS_GPU = 2_048, 65_536  # tokens per chunk without gradients
PAIRS_AT_ONCE = 4_096  # pairs that are tokenized and sorted by length together
CHARACTERS_PER_TOKEN = 4  # in English, to estimate the remaining time
CLASSIFIER_SUFFIX = "ForSequenceClassification"  # suffix of the class names in transformers
EXAMPLE_RERANKER = "cross-encoder/ms-marco-MiniLM-L6-v2"


class PairForm(NamedTuple):
    """Format in which a tokenizer encodes a pair: the special tokens before, between, and after the two texts, and the
    token types of these five parts of the sequence.
    """

    before: np.ndarray
    between: np.ndarray
    after: np.ndarray
    around_one: tuple[int, int]  # numbers of special tokens before and after a single text
    types: tuple[np.ndarray, np.ndarray, np.ndarray, int, int] | None  # before, between, after, first, second text
    keeps_end: bool

    @property
    def number(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


class JoinedPairs(NamedTuple):
    """Pairs of texts, each joined to one token sequence."""

    sequences: Ragged
    types: Tensor | None  # (tokens,) int64 token types; None: the tokenizer returns none


class CrossEncoderOutput(NamedTuple):
    """The logits of the pairs in a training step."""

    logits_N: Tensor  # float32, with gradient
    padding_tokens: int  # number of padding tokens computed
    real_tokens: int


class Float32Linear(nn.Linear):
    """Linear layer that computes the logits in float32, even under autocast."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.to(self.weight.dtype))


class CrossEncoder(nn.Module):
    """Cross-encoder that encodes a query and a document as one sequence and returns one logit per pair.

    Args:
        transformer: Model for sequence classification with one label.
        tokenizer: Tokenizer of the transformer.
        max_length: Maximum number of tokens of a pair. The longer text of a pair is truncated first.
        token_budget: Maximum number of tokens per chunk in training; None derives it from the available memory.
        activation_checkpointing: Activation checkpointing mode: "auto", "on", "off", or "layers".

    Raises:
        InputError: If ``max_length`` is too small for two texts.
    """

    def __init__(
        self,
        transformer: PreTrainedModel,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        token_budget: int | None = None,
        activation_checkpointing: str = "auto",
    ) -> None:
        super().__init__()
        self.call_lock = CallLock()
        check_layers(activation_checkpointing, transformer)
        self.transformer, self.tokenizer, self.form = transformer, tokenizer, pair_form(tokenizer)
        self.token_budget, self.activation_checkpointing = token_budget, activation_checkpointing
        self.longest = longest_input(transformer.config)
        self.max_length = min(max_length, self.longest)
        if self.max_length <= self.form.number + 1:
            raise InputError(
                key="model.max_length",
                value=max_length,
                expected=f"at least {self.form.number + 2} tokens, {self.form.number} of which are special tokens",
                hint="The usual value is 512.",
            )
        for layer in self.head:
            if isinstance(layer, nn.Linear) and layer.out_features == 1:
                layer.__class__ = Float32Linear

    @property
    def head(self) -> list[nn.Module]:
        """Modules that compute the logits from the hidden states of the backbone."""
        inside = set(self.transformer.base_model.modules())
        return [layer for layer in self.transformer.modules() if layer not in inside and layer is not self.transformer]

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def join(self, queries: Ragged, documents: Ragged, query_of: np.ndarray) -> JoinedPairs:
        """Join each of N documents to its query; ``query_of[i]`` is the index of the query of document i.

        Both are tokenized as single texts with special tokens.

        For texts that have not been truncated before, the ids equal those of
        ``tokenizer(query, document, truncation="longest_first", max_length=max_length)``.
        """
        return join_pairs(queries, documents, query_of, self.form, self.max_length)

    def score(self, pairs: JoinedPairs) -> CrossEncoderOutput:
        """Compute the logits of a batch of pairs for training.

        With ``activation_checkpointing="auto"``, chunks are recomputed in the backward pass only if
        the pairs exceed the budget.
        """
        lengths, ids = pairs.sequences.lengths, pairs.sequences.ids
        budget = resolve_token_budget(
            self.token_budget, ids.device, self.transformer, activation_checkpointing=self.activation_checkpointing
        )
        smaller = recomputed_budget(budget, self.transformer, ids.device)
        widths = round_lengths(lengths, self.transformer, self.longest)
        chunks, again = plan_step(widths, budget, smaller, self.activation_checkpointing, ids.device)
        embedding = self.transformer.get_input_embeddings()
        pad = cast(int, self.tokenizer.pad_token_id)
        sharing = shared_between_chunks(embedding, ids, pad, self.transformer.base_model)
        with contextlib.nullcontext() if again else sharing:
            parts = [computed(self.score_chunk, *laid, again=again) for laid in self._laid_out(pairs, chunks)]
        logits_N = torch.cat(parts)[places_in(chunks, ids.device)]
        real = int(lengths.sum())
        return CrossEncoderOutput(logits_N, total_tokens(chunks) - real, real)

    def _laid_out(self, pairs: JoinedPairs, chunks: list[Any]) -> Any:
        ids, lengths = pairs.sequences.ids, pairs.sequences.lengths
        laid = padded(ids, lengths, chunks, cast(int, self.tokenizer.pad_token_id))
        if pairs.types is None:
            return ((ids_BT, mask_BT, None) for ids_BT, mask_BT in laid)
        fill = int(getattr(self.tokenizer, "pad_token_type_id", 0) or 0)
        types = padded(pairs.types, lengths, chunks, fill)
        return ((*one, types_BT) for one, (types_BT, _) in zip(laid, types, strict=True))

    def score_chunk(self, ids_BT: Tensor, mask_BT: Tensor, types_BT: Tensor | None) -> Tensor:
        """Compute the logits, (B,) float32, of B pairs given as token ids, (B, T).

        The function calls no collective operation, and only dropout is random.
        """
        inputs = {"input_ids": ids_BT, "attention_mask": mask_BT.long()}
        if types_BT is not None:
            inputs["token_type_ids"] = types_BT
        layers = recomputed_layers(self.transformer, self.activation_checkpointing, lambda: attention_for(ids_BT))
        with attention_for(ids_BT), fast_layers(self.transformer), layers:
            logits_B = self.transformer(**inputs).logits.squeeze(-1)
        return logits_B.to(torch.promote_types(logits_B.dtype, torch.float32))

    @torch.no_grad()
    def score_pairs(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        autocast: torch.dtype | None = None,
        progress: bool = True,
    ) -> Tensor:
        """Return the (N,) float32 logits of N query-document pairs, on the CPU, computed in eval mode."""
        device = self.device
        scores_N = torch.zeros(len(queries))
        lengths = np.array([len(a) + len(b) for a, b in zip(queries, documents, strict=True)], np.int64)
        order = np.argsort(-lengths, kind="stable")
        encoded = np.minimum(lengths, CHARACTERS_PER_TOKEN * self.max_length)  # about; longer texts are truncated
        bar = ProgressBar("reranking", "characters", int(encoded.sum()), quiet=not (progress and is_first_rank()))
        half = contextlib.nullcontext() if autocast is None else torch.autocast(device.type, autocast)
        packed = packed_linears(self.transformer.base_model, 100 * len(order))
        with self.call_lock, evaluation_mode(self), bar, half, packed:
            for start in range(0, len(order), PAIRS_AT_ONCE):
                part = order[start : start + PAIRS_AT_ONCE]
                texts = [queries[i] for i in part], [documents[i] for i in part]
                scores_N[torch.from_numpy(part)] = self._scored(*texts, device)
                bar.to(bar.done + int(encoded[part].sum()))
        return scores_N

    def _scored(self, queries: list[str], documents: list[str], device: torch.device) -> Tensor:
        pairs = self._tokenized(queries, documents)
        budget = SCORE_TOKENS_CPU if device.type == "cpu" else SCORE_TOKENS_GPU
        chunks = plan_chunks(pairs.sequences.lengths, budget, chunk_cost(device))
        types = None if pairs.types is None else pairs.types.to(device)
        pairs = JoinedPairs(pairs.sequences._replace(ids=pairs.sequences.ids.to(device)), types)
        parts = [self.score_chunk(*laid) for laid in self._laid_out(pairs, chunks)]
        return torch.cat(parts)[places_in(chunks, device)].float().cpu()

    def _tokenized(self, queries: list[str], documents: list[str]) -> JoinedPairs:
        found = self.tokenizer(queries, documents, truncation="longest_first", max_length=self.max_length)
        lengths = np.array([len(one) for one in found["input_ids"]], np.int64)
        ids, types = (
            torch.from_numpy(np.concatenate([np.array(one, np.int64) for one in found[name]]))
            if name in found
            else None
            for name in ("input_ids", "token_type_ids")
        )
        return JoinedPairs(Ragged(cast(Tensor, ids), lengths), types)


def pair_form(tokenizer: Any) -> PairForm:
    """Determine the format in which a tokenizer encodes pairs, by encoding two texts separately and as a pair.

    Raises:
        InputError: If the tokenizer does not concatenate the two texts.
    """
    first, second = (tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("a", "b"))
    alone, both = tokenizer("a"), tokenizer("a", "b")
    place = _place(first, alone["input_ids"], 0)
    start = _place(first, both["input_ids"], 0)
    other = None if start is None else _place(second, both["input_ids"], start + len(first))
    if place is None or start is None or other is None:
        raise InputError(
            key="backbone",
            value=type(tokenizer).__name__,
            expected=f"a tokenizer that concatenates the ids of the two texts of a pair; the ids of 'a' are {first}, "
            f"those of 'b' {second}, and those of the pair {both['input_ids']}",
            hint="Choose another backbone.",
        )
    ids = np.array(both["input_ids"], np.int64)
    before, between, after = slice(start), slice(start + len(first), other), slice(other + len(second), None)
    types = None
    if "token_type_ids" in both:
        of = np.array(both["token_type_ids"], np.int64)
        types = of[before], of[between], of[after], int(of[start]), int(of[other])
    return PairForm(
        ids[before],
        ids[between],
        ids[after],
        around_one=(place, len(alone["input_ids"]) - place - len(first)),
        types=types,
        keeps_end=tokenizer.truncation_side == "left",
    )


def _place(part: list[int], whole: list[int], start: int) -> int | None:
    return next((at for at in range(start, len(whole)) if whole[at : at + len(part)] == part), None)


def longest_first(first_N: np.ndarray, second_N: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths to which the texts of N pairs are truncated, so that each pair fits into ``room`` tokens.

    As in the tokenizers library, only the longer text is truncated if that suffices. Otherwise each text gets half of
    ``room``, and the longer text gets the odd token.
    """
    shorter, longer = np.minimum(first_N, second_N), np.maximum(first_N, second_N)
    half = np.full_like(shorter, room // 2)
    both = shorter > half
    cut_longer = np.where(both, room - half, np.minimum(longer, room - np.minimum(shorter, room)))
    cut_shorter = np.where(both, half, shorter)
    fits, swapped = first_N + second_N <= room, first_N > second_N
    cut_first, cut_second = np.where(swapped, cut_longer, cut_shorter), np.where(swapped, cut_shorter, cut_longer)
    return np.where(fits, first_N, cut_first), np.where(fits, second_N, cut_second)


def join_pairs(
    queries: Ragged, documents: Ragged, query_of: np.ndarray, form: PairForm, max_length: int
) -> JoinedPairs:
    """Join queries and documents to pairs, as described in `CrossEncoder.join`."""
    head, tail = form.around_one
    kinds = queries.lengths[query_of] - head - tail, documents.lengths - head - tail
    kept = longest_first(*kinds, max_length - form.number)
    begins = (
        (np.cumsum(queries.lengths) - queries.lengths)[query_of] + head,
        np.cumsum(documents.lengths) - documents.lengths + head + len(queries.ids),
    )
    if form.keeps_end:
        begins = begins[0] + kinds[0] - kept[0], begins[1] + kinds[1] - kept[1]
    template = len(queries.ids) + len(documents.ids)
    before, between, after = len(form.before), len(form.between), len(form.after)
    starts_5N = np.stack(
        np.broadcast_arrays(template, begins[0], template + before, begins[1], template + before + between)
    )
    lengths_5N = np.stack(np.broadcast_arrays(before, kept[0], between, kept[1], after))
    starts, lengths = starts_5N.T.ravel(), lengths_5N.T.ravel()
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    index = np.repeat(starts, lengths) + within
    device = queries.ids.device
    special = on_device(np.concatenate([form.before, form.between, form.after]), device)
    ids = torch.cat([queries.ids, documents.ids, special])[on_device(index, device)]
    sequences = Ragged(ids, lengths_5N.sum(0))
    if form.types is None:
        return JoinedPairs(sequences, None)
    *special_types, first, second = form.types
    types = np.concatenate(
        [np.full(len(queries.ids), first), np.full(len(documents.ids), second), *special_types]
    ).astype(np.int64)
    return JoinedPairs(sequences, on_device(types[index], device))


def load_cross_encoder(
    backbone: str,
    *,
    weights: str | None = None,
    setting: str = "backbone",
    seed: int | None = None,
    dropout: float | None = None,
    dtype: torch.dtype | str = torch.float32,
) -> PreTrainedModel:
    """Load a model for sequence classification with a single label.

    Args:
        backbone: Folder or hub id.
        weights: Name of a model with the same config to load the weights from. Default: ``backbone``.
        setting: Name of the setting in error messages.
        seed: Seed that initializes the head of a backbone without one. If it is None, the backbone must have a head.
        dropout: Dropout probability; None keeps the one in the config.
        dtype: Type of the weights.

    Raises:
        InputError: If the model cannot be loaded, returns several scores, or has no head and there is no seed.
    """
    config = from_pretrained(AutoConfig, backbone, setting=setting)
    config.output_hidden_states = False
    trained = [name for name in config.architectures or [] if name.endswith(CLASSIFIER_SUFFIX)]
    if trained:
        check_one_score(f"{setting}={backbone}", config.num_labels)
    elif seed is None:
        raise not_trained(f"{setting}={backbone}", config.architectures or [])
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise InputError(
            key=setting,
            value=backbone,
            expected="a model family with a classification head in transformers, but this is a "
            f"{config.model_type} model",
            hint="Choose BERT, RoBERTa, ModernBERT, DeBERTa, or another encoder.",
        )
    config.num_labels = 1
    set_dropout(config, dropout, None, backbone)
    with torch.random.fork_rng(devices=[]):  # the random weights are replaced below
        model, info = from_pretrained(
            AutoModelForSequenceClassification,
            weights or backbone,
            setting=setting,
            config=config,
            dtype=dtype,
            output_loading_info=True,
        )
    missing = sorted(info["missing_keys"])
    inside = model.base_model_prefix + "."
    lacking = [name for name in missing if trained or (name.startswith(inside) and ".pooler." not in name)]
    check_weights(backbone, setting, lacking or sorted(str(key[0]) for key in info["mismatched_keys"]))
    _initialize_head(model, missing, seed or 0)
    return cast(PreTrainedModel, model)


def check_one_score(where: str, number: int) -> None:
    """Check that a model returns one score per pair.

    Raises:
        InputError: If it returns another number of scores. The message starts with ``where``.
    """
    if number != 1:
        raise InputError(
            location=where, expected=f"a model with one score per pair, such as {EXAMPLE_RERANKER}", value=number
        )


def not_trained(where: str, architectures: Sequence[str]) -> InputError:
    """Return the error for a model whose config does not name a class that scores pairs. The message starts with
    ``where``.
    """
    return InputError(
        location=where,
        expected=f"a model that was trained to score pairs, such as {EXAMPLE_RERANKER}, or the run of a reranker",
        value=", ".join(architectures) or "a model without a scoring head",
    )


@torch.no_grad()
def _initialize_head(model: PreTrainedModel, names: Sequence[str], seed: int) -> None:
    """Initialize the weights ``names`` of a new head from a seed, with the same distribution as transformers."""
    spread = float(getattr(model.config, "initializer_range", None) or 0.02)
    drawn = torch.Generator().manual_seed(seed)
    for name in names:
        weight = model.get_parameter(name)
        if weight.is_meta:
            continue
        if weight.ndim > 1:
            nn.init.normal_(weight, 0.0, spread, generator=drawn)
        else:
            nn.init.constant_(weight, 0.0 if name.endswith("bias") else 1.0)


def load_reranker(name: str | Path, *, max_length: int | None = None, device: str | torch.device) -> CrossEncoder:
    """Load a cross-encoder for scoring from a run of ``model=reranker``, a folder, or a hub id.

    Raises:
        InputError: If there is no model, or if it has several labels or no classification head.
    """
    name = expand_user(str(name))
    found = run_folder(name, "reranker") or name
    transformer = load_cross_encoder(found, setting="reranker")
    tokenizer = load_tokenizer(found)
    check_vocabulary(transformer, tokenizer, name, setting="reranker")
    length = usual_length(transformer.config, tokenizer) if max_length is None else max_length
    return CrossEncoder(transformer, tokenizer, max_length=length).eval().requires_grad_(False).to(device)
