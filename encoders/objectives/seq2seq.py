"""Training of generative models on pairs of source and target, in chunks, with an LM head that is applied only to
target tokens.

Shape letters: N pairs of source and target, B pairs of a chunk, S tokens of its longest source, T tokens of its longest
target (or sequence, if both are in one sequence), M target tokens without padding, V vocabulary, A answers.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedModel

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.encoders.kernels.activation_checkpointing import check_layers, recomputed_layers
from contrastive_encoders.encoders.kernels.chunks import (
    Chunk,
    chunk_cost,
    computed,
    on_device,
    padded,
    places_in,
    plan_chunks,
    recomputes,
    total_tokens,
)
from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers, round_lengths
from contrastive_encoders.encoders.kernels.host_layout import TokenIndices, places_in_chunks
from contrastive_encoders.encoders.kernels.onednn_layers import attention_for, shared_between_chunks
from contrastive_encoders.encoders.kernels.selective_lm_head import head_sees
from contrastive_encoders.encoders.kernels.token_budget import recomputed_budget, resolve_token_budget
from contrastive_encoders.encoders.lengths import longest_input
from contrastive_encoders.encoders.loading.backbones import check_vocabulary, load_complete, load_tokenizer
from contrastive_encoders.losses.cross_entropy import token_losses


class Seq2SeqLoss(NamedTuple):
    """Loss of each target in a batch, and logits of the answer tokens, in the order of the batch."""

    losses_N: Tensor  # float32, -log p of each target given its source, with gradient
    answers_NA: Tensor  # float32 logits of the answers at the first position of the target; detached
    padding_tokens: int  # number of padding tokens computed


class Seq2Seq(nn.Module, ABC):
    """Base class of generative models that are trained to predict a target from a source.

    Args:
        backbone: Folder or hub id.
        answers: Token ids whose logits at the first position of a target are returned.
        token_budget: Maximum number of tokens per chunk; None derives it from the available memory.
        activation_checkpointing: Activation checkpointing mode.

    Raises:
        InputError: If the backbone is not such a model, or if an option is unknown.
    """

    factory: ClassVar[Any]  # auto class of transformers

    def __init__(
        self, backbone: str, answers: Sequence[int], *, token_budget: int | None, activation_checkpointing: str
    ) -> None:
        super().__init__()
        self.transformer = load_writer(self.factory, backbone)
        self.tokenizer = load_tokenizer(backbone)
        check_vocabulary(self.transformer, self.tokenizer, backbone)
        check_layers(activation_checkpointing, self.transformer)
        self.answers = list(answers)
        self.token_budget, self.activation_checkpointing = token_budget, activation_checkpointing

    @property
    def pad(self) -> int:
        return cast(int, self.tokenizer.pad_token_id)

    @property
    def activation_modules(self) -> list[PreTrainedModel]:
        """Models whose activations the token budget is computed for: the transformer, or its encoder and its
        decoder.
        """
        return [self.transformer]

    def budget(self, device: torch.device) -> int:
        """Return the maximum number of tokens per chunk in a training step on this device."""
        other_modules = [self.transformer]
        return resolve_token_budget(
            self.token_budget,
            device,
            *self.activation_modules,
            other_modules=other_modules,
            activation_checkpointing=self.activation_checkpointing,
        )

    def write(self, sources: Ragged, targets: Ragged) -> Seq2SeqLoss:
        """Compute the losses of the targets, given their sources.

        With ``activation_checkpointing="auto"``, chunks are recomputed in the backward pass only if
        they exceed the budget.
        """
        budget = self.budget(sources.ids.device)
        cut = self.cut(sources, targets, budget)
        again = recomputes(self.activation_checkpointing, total_tokens(cut.chunks), budget)
        if again and (smaller := recomputed_budget(budget, self.transformer, sources.ids.device)) < budget:
            cut = self.cut(sources, targets, smaller)
        with contextlib.nullcontext() if again else self.sharing(sources.ids, targets.ids):
            parts = [computed(self.loss_of_chunk, *inputs, again=again) for inputs in cut.inputs]
        losses, logits = (torch.cat(column) for column in zip(*parts, strict=True))
        place_N = places_in(cut.chunks, sources.ids.device)
        padding = cut.total_tokens - int(sources.lengths.sum() + targets.lengths.sum())
        return Seq2SeqLoss(losses[place_N], logits[place_N].detach(), padding)

    @abstractmethod
    def cut(self, sources: Ragged, targets: Ragged, budget: int) -> "Cut":
        """Divide a batch into chunks of at most ``budget`` tokens, and prepare the inputs of each chunk."""

    @abstractmethod
    def loss_of_chunk(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Compute the loss of each of B targets in a chunk, (B,), and the logits of the A answer tokens at the first
        position of each target, (B, A).

        The function calls no collective operation, and only dropout is random, so that a chunk can be recomputed.
        """

    @contextlib.contextmanager
    def layers(self, ids: Tensor) -> Iterator[None]:
        """Context manager that selects, for a chunk with token ids ``ids``, the attention kernels, the compiled layers,
        and the recomputation of layers.
        """
        again = recomputed_layers(self.transformer, self.activation_checkpointing, lambda: attention_for(ids))
        with attention_for(ids), fast_layers(self.transformer), again:
            yield

    def sharing(self, *ids: Tensor) -> contextlib.AbstractContextManager[None]:
        """Context manager that shares weight casts and embedding lookups between the chunks of a training step. It
        requires no recomputation.
        """
        return contextlib.nullcontext()

    def outcome(self, logits_MV: Tensor, ids_BT: Tensor, targets: TokenIndices) -> tuple[Tensor, Tensor]:
        """Compute the results of `loss_of_chunk` from the logits, (M, V), that predict the M target tokens over a
        vocabulary of V tokens.
        """
        losses_M, row_M = token_losses(logits_MV, targets.of(ids_BT)), targets.rows_M
        losses_B = losses_M.new_zeros(len(ids_BT)).index_add(0, row_M, losses_M)
        lengths_B = row_M.new_zeros(len(ids_BT)).index_add(0, row_M, torch.ones_like(row_M))
        first_B = lengths_B.cumsum(0) - lengths_B
        answers_A = on_device(np.array(self.answers), ids_BT.device)
        return losses_B, logits_MV[first_B][:, answers_A].float()


class Cut(NamedTuple):
    """A batch divided into chunks, with the inputs of each chunk."""

    chunks: list[Chunk]
    inputs: Iterator[tuple[Any, ...]]  # inputs of `loss_of_chunk` for each chunk
    total_tokens: int  # number of tokens in all chunks, including padding


class T5Writer(Seq2Seq):
    """Encoder-decoder, such as T5: the encoder reads the source, and the decoder learns to predict the target.

    ``token_budget`` counts the tokens of sources.
    """

    factory = AutoModelForSeq2SeqLM

    @property
    def activation_modules(self) -> list[PreTrainedModel]:
        return [self.transformer.get_encoder(), self.transformer.get_decoder()]

    def cut(self, sources: Ragged, targets: Ragged, budget: int) -> Cut:
        widths = round_lengths(sources.lengths, self.transformer, longest_input(self.transformer.config))
        chunks = plan_chunks(widths, budget, chunk_cost(sources.ids.device))
        answers = [Chunk(chunk.sequences, int(targets.lengths[chunk.sequences].max())) for chunk in chunks]
        read = padded(sources.ids, sources.lengths, chunks, self.pad)
        asked = padded(targets.ids, targets.lengths, answers, self.pad)
        written = places_in_chunks(np.arange(len(targets.ids)), targets.lengths, answers, targets.ids.device)
        inputs = ((*source, ids_BT, places) for source, (ids_BT, _), places in zip(read, asked, written, strict=True))
        return Cut(chunks, inputs, total_tokens([*chunks, *answers]))

    def loss_of_chunk(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        source_BS, source_mask_BS, target_BT, targets = inputs
        start = self.transformer.config.decoder_start_token_id
        shifted_BT = torch.cat([target_BT.new_full((len(target_BT), 1), start), target_BT[:, :-1]], dim=1)
        with self.layers(source_BS), head_sees(self.transformer, targets):
            output = self.transformer(
                input_ids=source_BS,
                attention_mask=source_mask_BS.long(),
                decoder_input_ids=shifted_BT,  # no mask: padding follows the real tokens, which do not attend to it
                use_cache=False,
            )
        return self.outcome(output.logits, target_BT, targets)


class CausalWriter(Seq2Seq):
    """Decoder-only language model that learns to predict each target as the continuation of its source.

    The target follows its source in one sequence, and each token is predicted at the previous position.
    """

    factory = AutoModelForCausalLM

    def cut(self, sources: Ragged, targets: Ragged, budget: int) -> Cut:
        joined, target_places = concatenate_source_target(sources, targets)
        limit = longest_input(self.transformer.config)
        if joined.lengths.max() > limit:
            raise InputError(
                key="data.source_length",
                expected=f"prompts and targets of at most {limit} tokens together, the limit of this backbone, but one "
                f"pair has {joined.lengths.max()}",
                hint="Lower data.source_length or data.target_length.",
            )
        widths = round_lengths(joined.lengths, self.transformer, limit)
        chunks = plan_chunks(widths, budget, chunk_cost(joined.ids.device))
        read = padded(joined.ids, joined.lengths, chunks, self.pad)
        written = places_in_chunks(target_places, joined.lengths, chunks, joined.ids.device)
        inputs = ((*one, places) for one, places in zip(read, written, strict=True))
        return Cut(chunks, inputs, total_tokens(chunks))

    def loss_of_chunk(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        ids_BT, mask_BT, targets = inputs
        before = targets._replace(columns_M=targets.columns_M - 1)
        with self.layers(ids_BT), head_sees(self.transformer, before):
            output = self.transformer(input_ids=ids_BT, attention_mask=mask_BT.long(), use_cache=False)
        return self.outcome(output.logits, ids_BT, targets)

    def sharing(self, *ids: Tensor) -> contextlib.AbstractContextManager[None]:
        return shared_between_chunks(self.transformer.get_input_embeddings(), torch.cat(ids), self.pad)


def concatenate_source_target(sources: Ragged, targets: Ragged) -> tuple[Ragged, np.ndarray]:
    """Concatenate each of N sources with its target. Return the result and the indices of target tokens in it."""
    lengths_N = sources.lengths + targets.lengths
    row_M = np.repeat(np.arange(len(lengths_N)), lengths_N)
    place_M = np.arange(len(row_M)) - (np.cumsum(lengths_N) - lengths_N)[row_M]
    behind_M = place_M - sources.lengths[row_M]
    first_N, target_N = (np.cumsum(part.lengths) - part.lengths for part in (sources, targets))
    index_M = np.where(behind_M < 0, first_N[row_M] + place_M, len(sources.ids) + target_N[row_M] + behind_M)
    ids = torch.cat([sources.ids, targets.ids])[on_device(index_M, sources.ids.device)]
    return Ragged(ids, lengths_N), np.flatnonzero(behind_M >= 0)


def load_writer(factory: Any, backbone: str) -> PreTrainedModel:
    """Load a model with its language-model head, in float32.

    Raises:
        InputError: If the model has no such head, or if its checkpoint lacks weights (transformers would initialize
            them randomly).
    """

    def refused(why: str) -> InputError:
        return InputError(
            key="backbone",
            value=backbone,
            expected=f"a complete generative model, but {why}",
            hint="Choose a complete encoder-decoder, such as google-t5/t5-base, or a complete causal language model.",
        )

    model = load_complete(factory, backbone, refused, dtype=torch.float32)
    if factory is AutoModelForSeq2SeqLM and model.config.decoder_start_token_id is None:
        raise InputError(
            key="backbone",
            value=backbone,
            expected="a config with decoder_start_token_id, the first token of every generated text",
            hint="Set it in config.json; T5 uses its pad token.",
        )
    return model
