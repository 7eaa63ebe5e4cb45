"""Sentence encoder: backbone, tokenizer, and pooling, which is used in training, evaluation, and export.

Shape letters: N sequences, D width, B sequences of a chunk, T tokens, M predicted tokens.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import IGNORED_LABEL, NO_PROMPTS, EmbeddingInfo, EncoderPrompts, InputError, Ragged
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.encoders.attention import PREFIX, evaluation_mode, is_causal, is_decoder_alone
from contrastive_encoders.encoders.dense import dense_layers
from contrastive_encoders.encoders.kernels.activation_checkpointing import check_layers, recomputed_layers
from contrastive_encoders.encoders.kernels.call_lock import CallLock
from contrastive_encoders.encoders.kernels.chunk_threads import in_threads, is_thread_safe
from contrastive_encoders.encoders.kernels.chunks import (
    Chunk,
    chunk_cost,
    computed,
    distinct,
    on_device,
    padded,
    places_in,
    plan_chunks,
    plan_step,
    recomputes,
    total_tokens,
)
from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers, round_lengths
from contrastive_encoders.encoders.kernels.host_layout import TokenIndices, places_in_chunks, prefetch_to_cpu
from contrastive_encoders.encoders.kernels.onednn_layers import attention_for, packed_linears, shared_between_chunks
from contrastive_encoders.encoders.kernels.selective_lm_head import vectors_and_logits
from contrastive_encoders.encoders.kernels.single_step_cross_attention import single_query
from contrastive_encoders.encoders.kernels.token_budget import recomputed_budget, resolve_token_budget
from contrastive_encoders.encoders.kernels.unpadded import (
    AttentionPlan,
    PackedRow,
    choose_attention,
    num_filler_tokens,
    pack_sequences,
    plan_rows,
    use_packed_attention,
)
from contrastive_encoders.encoders.lengths import USUAL_LENGTH, longest_input
from contrastive_encoders.encoders.loading.backbones import T5_FAMILY
from contrastive_encoders.encoders.loading.loaded_encoder import (
    LoadedEncoder,
    Options,
    config_description,
    fingerprint,
    tokenizer_description,
)
from contrastive_encoders.encoders.pooling import Pooler, pooler_of
from contrastive_encoders.encoders.prompt_suffix import make_prompt_suffix
from contrastive_encoders.encoders.sharding import agree_on_chunks, gather_weights, is_first_rank
from contrastive_encoders.losses.cross_entropy import masked_lm_sum

EMBED_TOKENS_CPU = 2_048  # small chunks stay in the cache and pad little
EMBED_TOKENS_GPU = 65_536
CHECKPOINTED_TOKENS_CPU = 1_024  # with activation_checkpointing="on"; twice as many are 5 % faster, in twice the memory


class Encoded(NamedTuple):
    vectors: Tensor  # (N, D) float32, with gradient
    mlm_sum: Tensor  # () float32, cross-entropy summed over the predicted tokens of this rank
    padding_tokens: int  # number of padding tokens computed


class SentenceEncoder(LoadedEncoder, nn.Module):
    """Encoder of texts: a transformer, a pooling, and optional layers after the pooling.

    `encode_sequences`, `encode_chunk`, and `encode_row` compute embeddings of a training step, with gradients.
    `encode`, `encode_query`, `encode_document`, and ``embed*`` compute embeddings of texts without gradients, truncated
    and normalized as configured. Prompts of training texts are prepended by the data sources.

    Args:
        transformer: Masked LM, or a model without a head if no masked LM is trained.
        tokenizer: Tokenizer of the transformer.
        pooling: Name of an entry of `POOLERS`.
        head: Layers that map pooled embeddings (B, D) to (B, E): a `Dense`, or several in an ``nn.Sequential``. They
            are saved and exported with the encoder.
        max_length: Maximum number of tokens per text. It is limited by the position embeddings of the backbone.
        token_budget: Maximum number of tokens per chunk in training; None derives it from the available memory.
        activation_checkpointing: Activation checkpointing mode: "auto", "on", "off", or "layers".
        attn_implementation: "auto", "unpadded", or an attention implementation of transformers.
        prompts: Prompts that are prepended to texts.
        prompt_suffix: Prompt that is appended to each text and never truncated. Training appends it with ``appended``.
        normalize: Whether to L2-normalize embeddings, after truncation.
        truncate: Number of leading dimensions to keep; None keeps all of them.
        similarity_fn_name: Similarity function that compares embeddings.
        progress: Whether ``embed`` shows a progress bar.
        origin: Entries of ``description`` about the source of the weights.
    """

    def __init__(
        self,
        transformer: PreTrainedModel,
        tokenizer: Tokenizer,
        *,
        pooling: str = "mean",
        head: nn.Module | None = None,
        max_length: int = USUAL_LENGTH,
        token_budget: int | None = None,
        activation_checkpointing: str = "auto",
        attn_implementation: str = "auto",
        prompts: EncoderPrompts = NO_PROMPTS,
        prompt_suffix: str = "",
        normalize: bool = False,
        truncate: int | None = None,
        similarity_fn_name: str = "cosine",
        progress: bool = False,
        origin: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.pooler = pooler_of(pooling, "model.pooling")
        check_decoder(self.pooler, transformer)
        if self.pooler.is_shipped and head is None:
            raise InputError(
                key="pooling", value=pooling, expected="a backbone with a pooler layer, which is applied to [CLS]"
            )
        check_layers(activation_checkpointing, transformer)
        self.transformer, self.tokenizer, self.head = transformer, tokenizer, head
        self.token_budget, self.activation_checkpointing = token_budget, activation_checkpointing
        self.attn_implementation = attn_implementation
        self.attention_plans: dict[str, AttentionPlan] = {}
        # Used for the token budget, and not saved: models that keep activations for as many tokens, and modules that
        # only take memory
        self.activation_modules: tuple[PreTrainedModel, ...] = ()
        self.other_modules: tuple[nn.Module, ...] = ()
        # The FSDP module that contains this encoder; a tuple prevents its registration as a submodule
        self.sharded: tuple[FSDPModule, ...] = ()
        self.call_lock = CallLock()
        self.prompts, self.normalize, self.progress = prompts, normalize, progress
        self.truncate, self.similarity_fn_name = truncate, similarity_fn_name
        if truncate is not None and not 1 <= truncate <= self.width:
            raise InputError(
                key="truncate", value=truncate, expected=f"a number from 1 to {self.width}, the embedding dimension"
            )
        self.origin = dict(origin or {})
        # Without it, a decoder would cache keys and values that are not used
        keeps = "use_cache" in inspect.signature(self.trunk.forward).parameters
        self.options = {"use_cache": False} if keeps else {}
        self.longest = longest_input(transformer.config)
        self.max_length = min(max_length, self.longest)
        self.appended = make_prompt_suffix(tokenizer, prompt_suffix, self.max_length, self.pooler)

    def encode_sequences(
        self, sequences: Ragged, labels: Tensor | None = None, predicted: np.ndarray | None = None
    ) -> Encoded:
        """Compute the embeddings of N sequences and, if ``labels`` are given, the MLM loss in the same forward pass.

        With ``activation_checkpointing="auto"``, chunks are recomputed in the backward pass only if
        the batch exceeds the budget.

        Args:
            sequences: Token ids and lengths.
            labels: MLM labels, aligned with ``sequences.ids``.
            predicted: Indices of the labels that are not ignored. If None, they are read from ``labels``, which
                synchronizes with the device.

        Raises:
            InputError: If a sequence is too long for the backbone.
        """
        if len(sequences.lengths) and (most := sequences.lengths.max()) > self.longest:
            raise InputError(
                location="batch",
                expected=f"sequences of at most {self.longest} tokens, the limit of this backbone",
                value=int(most),
            )
        if (plan := self.attention_plan(sequences.ids.device)).is_packed:
            return self._encode_rows(sequences, labels, predicted, plan)
        chunks, again = self.training_chunks(sequences.lengths, self.transformer, sequences.ids.device)
        ids = padded(sequences.ids, sequences.lengths, chunks, self.tokenizer.pad_token_id)
        targets = _targets(sequences, labels, predicted, chunks)
        inputs = ((*laid_out, target) for laid_out, target in zip(ids, targets, strict=True))
        padding = total_tokens(chunks) - int(sequences.lengths.sum())
        return self._computed(self.encode_chunk, inputs, sequences.ids, chunks, again, padding)

    def _encode_rows(
        self, sequences: Ragged, labels: Tensor | None, predicted: np.ndarray | None, plan: AttentionPlan
    ) -> Encoded:
        """Pack the sequences of each chunk into one row, and encode the rows."""
        device = sequences.ids.device
        budget = self.budget(device)
        again = recomputes(self.activation_checkpointing, int(sequences.lengths.sum()), budget)
        chunks = plan_rows(sequences.lengths, self.recomputed_budget(budget, device) if again else budget)
        targets = _targets(sequences, labels, predicted, chunks)
        rows = (pack_sequences(sequences.lengths, chunk, sequences.ids.device) for chunk in chunks)
        inputs = ((sequences.ids, row, plan, target) for row, target in zip(rows, targets, strict=True))
        padding = sum(
            num_filler_tokens(int(sequences.lengths[chunk.sequences].sum()), sequences.ids.device) for chunk in chunks
        )
        return self._computed(self.encode_row, inputs, sequences.ids, chunks, again, padding)

    def _computed(
        self,
        function: Callable[..., tuple[Tensor, Tensor]],
        inputs: Iterable[tuple[Any, ...]],
        ids: Tensor,
        chunks: list[Chunk],
        again: bool,
        padding: int,
    ) -> Encoded:
        number = len(chunks)
        if self.sharded:
            number, again = agree_on_chunks(number, again, ids.device)
        with contextlib.nullcontext() if again else self._sharing(ids):
            parts = [computed(function, *one, again=again) for one in inputs]
            fill = [
                computed(self.encode_chunk, *self._filler(ids.device), again=again) for _ in range(number - len(parts))
            ]
        vectors, mlm_sums = zip(*parts, strict=True)
        vectors_ND, mlm_sum = torch.cat(vectors)[places_in(chunks, ids.device)], torch.stack(mlm_sums).sum()
        for vector_1D, _ in fill:  # their backward pass is a collective operation, too, for either loss
            vectors_ND, mlm_sum = vectors_ND + 0 * vector_1D.sum(), mlm_sum + 0 * vector_1D.sum()
        return Encoded(vectors_ND, mlm_sum, padding)

    def _filler(self, device: torch.device) -> tuple[Tensor, Tensor, None]:
        """Return an additional chunk with a single token, for a rank that has fewer chunks than other ranks.

        With sharded weights, each forward pass is a collective operation.
        """
        ids_11 = torch.full((1, 1), cast(int, self.tokenizer.pad_token_id), device=device)
        return ids_11, torch.ones_like(ids_11, dtype=torch.bool), None

    def budget(self, device: torch.device) -> int:
        """Return the maximum number of tokens per chunk in a training step on this device."""
        activation_modules = self.transformer, *self.activation_modules
        return resolve_token_budget(
            self.token_budget,
            device,
            *activation_modules,
            other_modules=self.other_modules,
            activation_checkpointing=self.activation_checkpointing,
        )

    def recomputed_budget(self, token_budget: int, device: torch.device) -> int:
        """Return the maximum number of tokens per chunk if its activations are recomputed in the backward pass.
        ``token_budget`` is the `budget` of the device.
        """
        tokens = recomputed_budget(token_budget, self.transformer, device)
        is_small = self.activation_checkpointing == "on" and device.type == "cpu"
        return min(tokens, CHECKPOINTED_TOKENS_CPU) if is_small else tokens

    def training_chunks(
        self, lengths: np.ndarray, model: PreTrainedModel, device: torch.device
    ) -> tuple[list[Chunk], bool]:
        """Divide the padded sequences that ``model`` reads in a training step into chunks, see `plan_step`."""
        budget = self.budget(device)
        smaller = self.recomputed_budget(budget, device)
        widths = round_lengths(lengths, model, self.longest)
        return plan_step(widths, budget, smaller, self.activation_checkpointing, device)

    def attention_plan(self, device: torch.device) -> AttentionPlan:
        """Return the attention plan (padded or packed) of a training step on this device.

        The result is cached per device type.
        """
        if next(self.trunk.parameters()).is_meta:
            return AttentionPlan(False, 0, "as rank 0 finds")  # after the weights are sharded
        if device.type not in self.attention_plans:
            self.attention_plans[device.type] = choose_attention(self.trunk, self.attn_implementation, device)
        return self.attention_plans[device.type]

    def encode_chunk(
        self, ids_BT: Tensor, mask_BT: Tensor, target: tuple[TokenIndices, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the embeddings, (B, D), and the summed MLM loss of a chunk, given its token ids, (B, T).

        The function calls no collective operation, and only dropout is random.
        """
        inputs = {"input_ids": ids_BT, "attention_mask": mask_BT.long(), **self._decoder_inputs(ids_BT)}
        return self._forward(
            inputs, lambda output: self.pooler(output, mask_BT), target, around=lambda: attention_for(ids_BT)
        )

    def encode_row(
        self, ids: Tensor, row: PackedRow, plan: AttentionPlan, target: tuple[TokenIndices, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the embeddings and the summed MLM loss of a packed row, as `encode_chunk` does for a padded chunk.

        ``ids`` are the token ids of the entire batch.
        """
        inputs = plan.inputs(ids, row)
        if target is not None:
            target = row.places(target[0]), target[1]
        return self._forward(
            inputs,
            lambda output: self.pooler.of_row(output, row),
            target,
            around=lambda: use_packed_attention(self.trunk),
        )

    def _forward(
        self,
        inputs: dict[str, Any],
        pooled: Callable[[Any], Tensor],
        target: tuple[TokenIndices, Tensor] | None,
        around: Callable[[], AbstractContextManager[Any]],
    ) -> tuple[Tensor, Tensor]:
        inputs = inputs | self.pooler.options | self.options
        of_decoder = single_query(self.trunk) if self.pooler.decodes and target is None else contextlib.nullcontext()
        layers = recomputed_layers(self.transformer, self.activation_checkpointing, around)
        with around(), fast_layers(self.transformer), of_decoder, layers:
            if target is None:
                vectors_BD = pooled(self.trunk(**inputs))
                mlm = vectors_BD.new_zeros(())
            else:
                chosen, labels_M = target
                vectors_BD, logits_MV = vectors_and_logits(self.transformer, pooled, chosen, inputs)
                mlm = masked_lm_sum(logits_MV, labels_M)
        return vectors_BD if self.head is None else self.head(vectors_BD), mlm

    def _decoder_inputs(self, ids_BT: Tensor) -> dict[str, Any]:
        """Return the inputs of the decoder if the pooling uses its first hidden state: one start token for each
        text.
        """
        if not self.pooler.decodes:
            return {}
        start = self.transformer.config.decoder_start_token_id
        return {"decoder_input_ids": torch.full_like(ids_BT[:, :1], start)}

    @property
    def pooling(self) -> str:
        return self.pooler.name

    @property
    def prompt_suffix(self) -> str:
        return self.appended.prompt if self.appended else ""

    @property
    def trunk(self) -> PreTrainedModel:
        return cast(PreTrainedModel, self.transformer.base_model)

    @property
    def width(self) -> int:
        """Dimension of the embeddings before truncation to ``truncate`` dimensions."""
        layers = dense_layers(self.head)
        return layers[-1].linear.out_features if layers else int(self.transformer.config.hidden_size)

    @property
    def pooled(self) -> str:
        """Description of the pooling and the layers after the pooling."""
        layers = [] if self.pooler.is_shipped else dense_layers(self.head)
        return " + ".join([self.pooling, *(layer.described for layer in layers)])

    @property
    def embedding_info(self) -> EmbeddingInfo:
        return EmbeddingInfo(width=self.truncate or self.width, pooling=self.pooled, normalize=self.normalize)

    @property
    def described_settings(self) -> dict[str, str]:
        """Settings, other than the weights and the tokenizer, that affect the embeddings."""
        return {
            "pooling": self.pooled,
            "normalize": str(self.normalize).lower(),
            "prompt": self.prompt,
            **self.role_prompts,
            **({"prompt_suffix": self.prompt_suffix} if self.prompt_suffix else {}),
            **({"truncate": str(self.truncate)} if self.truncate else {}),
            "max_length": str(self.max_length),
            "precision": self.precision,
        }

    @property
    def precision(self) -> str:
        """Precision of the computation, which is the precision of the weights."""
        return precision_of(self.trunk.dtype)

    @property
    def description(self) -> dict[str, str]:  # type: ignore[override]  # settings may change
        sees = {"attention": "causal" if is_causal(self.trunk.config) else "bidirectional"}
        return {**self.origin, **(sees if is_decoder_alone(self.trunk.config) else {}), **self.described_settings}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that affects `embed`; it is recomputed on each access, because training changes the
        weights.
        """
        described = {
            "config": config_description(self.trunk.config),
            "tokenizer": tokenizer_description(self.tokenizer),
        }
        head = {} if self.head is None else self.head.state_dict(prefix="head.")
        order = {"order": "cut, then normalised"} if self.truncate and self.normalize else {}
        return fingerprint({**self.trunk.state_dict(), **head}, **described, **self.described_settings, **order)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def embed_list(self, texts: Sequence[str], **options: Unpack[Options]) -> Tensor:
        """Return the embeddings of N texts, (N, D or ``truncate``) float32, on the CPU and in input order.

        The train/eval mode is restored afterwards. Texts with identical token ids are encoded once. A text without any
        token, which is possible only with tokenizers without special tokens, gets a zero embedding. Calls from several
        threads are executed one after the other.
        """
        return self._embedded(texts, torch.device("cpu"), **options)

    def embed_on_device(self, texts: Sequence[str], *, prompt: str | None = None) -> Tensor:
        """Encode texts as `embed_list` does, but return the embeddings on the device of the encoder, without waiting
        for their computation.
        """
        return self._embedded(texts, self.device, prompt=prompt, progress=False)

    @torch.no_grad()
    def embed_ids(self, sequences: Ragged, *, autocast: torch.dtype | None = None) -> Tensor:
        """Return the embeddings of N token sequences, (N, D) float32, on the CPU, neither truncated nor normalized."""
        with self.call_lock, evaluation_mode(self):
            return self._embed_sequences(sequences, torch.device("cpu"), autocast, self.progress)

    @torch.no_grad()
    def _embedded(
        self,
        texts: Sequence[str],
        where: torch.device,
        *,
        prompt: str | None = None,
        autocast: torch.dtype | None = None,
        progress: bool | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        if not len(texts):
            return torch.zeros(0, self.truncate or self.width, device=where)
        before, show = self.prompt if prompt is None else prompt, self.progress if progress is None else progress
        sequences, place_N = distinct(self.tokenize([before + text for text in texts]))
        with self.call_lock, evaluation_mode(self):
            vectors_UD = self._embed_sequences(sequences, where, autocast, show, batch_size)
        return self.finished(vectors_UD)[on_device(place_N, where)]

    def finished(self, vectors_ND: Tensor) -> Tensor:
        """Truncate embeddings to ``truncate`` dimensions, then L2-normalize them if ``normalize`` is set."""
        cut_ND = vectors_ND[:, : self.truncate]
        return torch.nn.functional.normalize(cut_ND, dim=-1) if self.normalize else cut_ND

    def _embed_sequences(
        self,
        sequences: Ragged,
        where: torch.device,
        autocast: torch.dtype | None,
        show_progress: bool,
        batch_size: int | None = None,
    ) -> Tensor:
        """Return the embeddings of U token sequences, (U, D) float32, computed in chunks of at most
        ``batch_size`` sequences.

        They are returned on ``where``, which is the CPU or the encoder's device. Progress is shown on rank 0 only, in
        tokens, because the longest texts are encoded first.
        """
        device = self.device
        budget = EMBED_TOKENS_CPU if device.type == "cpu" else EMBED_TOKENS_GPU
        chunks = plan_chunks(sequences.lengths, budget, chunk_cost(device), batch_size)
        flat = on_device(sequences.ids.numpy(), device)
        ids = padded(flat, sequences.lengths, chunks, self.tokenizer.pad_token_id)
        vectors_UD = torch.zeros(len(sequences.lengths), self.width, device=where)
        own = most = sum(chunk.width > 0 for chunk in chunks)
        if self.sharded:
            most, _ = agree_on_chunks(own, False, device)
        bar = ProgressBar("encoding", "tokens", total_tokens(chunks), quiet=not (show_progress and is_first_rank()))
        half = contextlib.nullcontext() if autocast is None else torch.autocast(device.type, autocast)
        with bar, gather_weights(self.sharded), half, self.packed_weights(int(sequences.lengths.sum())):
            inputs = (laid_out for laid_out in ids if laid_out[0].numel())
            found = in_threads(self._vectors, inputs, self._chunk_threads(own))
            vectors = prefetch_to_cpu(found) if where.type == "cpu" else found
            for chunk, vectors_BD in zip((chunk for chunk in chunks if chunk.width), vectors, strict=True):
                vectors_UD[on_device(chunk.sequences, where)] = vectors_BD
                bar.to(bar.done + chunk.total_tokens)
            for _ in range(most - own):
                self.encode_chunk(*self._filler(device))
        if len(empty := np.flatnonzero(sequences.lengths == 0)):
            vectors_UD.index_fill_(0, on_device(empty, where), 0)
        return vectors_UD

    def _vectors(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        return self.encode_chunk(ids_BT, mask_BT, None)[0].float()

    def _chunk_threads(self, chunks: int) -> int:
        """Return the number of chunks that are computed at the same time: 1, except on a CPU if forward passes can run
        concurrently and there is a chunk for each thread. Autocast is a setting of the calling thread only.
        """
        threads = torch.get_num_threads()
        overlaps = self.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and chunks >= threads
        overlaps = overlaps and not self.sharded and not self.pooler.decodes and not self.pooler.options
        return threads if overlaps and is_thread_safe(self.trunk.config) else 1

    def packed_weights(self, tokens: int) -> AbstractContextManager[object]:
        """Pack the weights of linear layers for the CPU while ``tokens`` tokens are embedded, if that is faster."""
        return packed_linears(self.trunk, tokens)

    def tokenize(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts with special tokens and ``prompt_suffix``, truncated to ``max_length`` tokens."""
        if self.appended:
            texts = [self.appended.strip_text(text) for text in texts]
        encoded = self.tokenizer(list(texts), truncation=True, max_length=self.max_length, return_attention_mask=False)[
            "input_ids"
        ]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64, count=int(lengths.sum()))
        sequences = Ragged(torch.from_numpy(flat), lengths)
        return self.appended(sequences) if self.appended and len(texts) else sequences

    def _sharing(self, ids: Tensor) -> contextlib.AbstractContextManager[None]:
        if self.sharded:  # the autocast cache would keep the cast copy of a weight that was freed
            return contextlib.nullcontext()
        pad = cast(int, self.tokenizer.pad_token_id)
        return shared_between_chunks(self.trunk.get_input_embeddings(), ids, pad, self.trunk)


def _targets(
    sequences: Ragged, labels: Tensor | None, predicted: np.ndarray | None, chunks: list
) -> list[tuple[TokenIndices, Tensor]] | list[None]:
    """Return, for each chunk, the indices of the predicted tokens and their labels, (M,) for M tokens, or None if there
    are no labels.
    """
    if labels is None:
        return [None] * len(chunks)
    if predicted is None:
        predicted = np.flatnonzero(labels.cpu().numpy() != IGNORED_LABEL)
    found = places_in_chunks(predicted, sequences.lengths, chunks, labels.device)
    return [(places, labels[places.flat_M]) for places in found]


def check_decoder(pooler: Pooler, transformer: PreTrainedModel, *, setting: str = "backbone") -> None:
    """Check that a transformer has the decoder that its pooling requires.

    Args:
        setting: Name of the setting that selects the model, ``backbone`` or ``encoder``.

    Raises:
        InputError: If the transformer has no decoder.
    """
    key, config = f"{PREFIX[setting]}pooling", transformer.config
    if pooler.decodes and (config.model_type not in T5_FAMILY or not config.is_encoder_decoder):
        raise InputError(
            key=key,
            value=pooler.name,
            expected=f"a pooling that needs no decoder, because a {config.model_type} model has no decoder "
            f"(model types with a decoder: {', '.join(T5_FAMILY)})",
            hint=f"Set {key}=mean or {key}=cls, or choose another {setting}, such as google-t5/t5-base.",
        )


def precision_of(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
