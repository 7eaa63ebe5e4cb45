"""Causal language models as generators, loaded by hub id or from a directory."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.devices import device_of
from contrastive_encoders.encoders.kernels.gpu_kernels import exclude_cudnn_attention
from contrastive_encoders.encoders.kernels.onednn_layers import WORTH_IT_TOKENS, packed_linears
from contrastive_encoders.encoders.loading.backbones import check_vocabulary, from_pretrained, load_complete
from contrastive_encoders.encoders.loading.generative import causal_lm_problem
from contrastive_encoders.synthesis.decoding.caches import KeyValues, PrefillOutput, RowCache
from contrastive_encoders.synthesis.decoding.continuations import PromptText, split_chat_prompt

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
UNLIMITED_CONTEXT = 10**9  # for rotary and ALiBi models without a limit in their config
# Templates that contain the current date would change the texts from day to day. Llama 3's uses this date by default.
FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
MAX_TOKENS_PER_PASS = 2048  # including padding
MIN_SHARED_TOKENS = 64  # minimum number of common first tokens of prompts, such as examples, that are processed once
SHARED_STEP = 16  # multiple to which that number is rounded down
PROMPT_END_TOKENS = 32  # tokens
AnyText = TypeVar("AnyText", bound=PromptText)


@dataclass(frozen=True)
class Generator:
    """Language model and tokenizer, loaded for decoding. Any floating-point dtype is supported."""

    writes_alone: ClassVar[bool] = True  # True if it continues the prompt; False if it answers what an encoder has read

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer
    chat_template: bool = False
    context: int = field(init=False)  # tokens of prompt and continuation together
    eos: tuple[int, ...] = field(init=False)
    surplus: tuple[int, ...] = field(init=False)  # vocabulary rows that no token of the tokenizer uses
    accepts: frozenset[str] = field(init=False)  # arguments of the model's forward pass
    beginnings: "dict[tuple[int, ...], PrefixState]" = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        rows = cast(nn.Embedding, self.model.get_input_embeddings()).num_embeddings
        check_vocabulary(self.model, self.tokenizer, self.name, setting="generator")
        config = self.model.config.get_text_config(decoder=True)
        limits = [value for name in CONTEXT if isinstance(value := getattr(config, name, None), int)]
        object.__setattr__(self, "context", min(limits, default=UNLIMITED_CONTEXT))
        object.__setattr__(self, "eos", tuple(i for i in _end_of_sequence(self.model, self.tokenizer) if i < rows))
        object.__setattr__(self, "surplus", tuple(range(len(self.tokenizer), rows)))
        object.__setattr__(self, "accepts", frozenset(inspect.signature(self.model.forward).parameters))

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def has_window(self) -> bool:
        """Return whether the model uses sliding-window attention."""
        return getattr(self.model.config.get_text_config(decoder=True), "sliding_window", None) is not None

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Context manager that disables gradients and selects fast kernels.

        On a CPU, linear layers use the fastest matmul. On a GPU, attention uses a kernel that supports every length.
        """
        with torch.inference_mode(), exclude_cudnn_attention(self.device), packed_linears(self.model, WORTH_IT_TOKENS):
            yield

    def new_cache(self) -> RowCache:
        return RowCache()

    def begin(self, ids: Sequence[list[int]]) -> PrefillOutput:
        """Run prompts through the model and return their keys, values, and next-token logits.

        A long common prefix of all prompts, and of neighboring prompts, is processed once.
        """
        if self.shared(ids):
            states, logits_RV = self.of_groups(list(group_similar(ids)))
            return PrefillOutput(states.ending_together(), states.lengths_R, logits_RV)
        lengths_R, ids_RT, real_RT = left_pad(ids, self.device)
        cache = DynamicCache()
        logits_RV = self._forward(ids_RT, real_RT, position_ids(real_RT), cache)
        return PrefillOutput(zero_padding(cache, real_RT), lengths_R, logits_RV)

    def shared(self, ids: Sequence[list[int]]) -> int:
        """Return the length of the common prefix of the prompts, rounded down to a multiple of `SHARED_STEP`, or 0 if
        the prefix is too short to be processed once for all prompts.

        Return 0 also for a model with sliding-window attention, since gaps in the cache would count as tokens of the
        window.
        """
        if self.has_window:
            return 0
        number = min(common_prefix_length(ids), min(map(len, ids)) - 1)
        number -= number % SHARED_STEP  # the same in most passes, regardless of the first words after it
        return number if len(ids) > 1 and number >= MIN_SHARED_TOKENS else 0

    def of_groups(self, groups: Sequence[Sequence[list[int]]]) -> "tuple[PrefixState, Tensor]":
        """Run groups of prompts with common prefixes through the model. Return the states, and logits of the R rows in
        order, (R, V).

        The common prefix of each group and of all rows is processed once.
        """
        begun = [rows[0][: min(common_prefix_length(rows), min(map(len, rows)) - 1)] for rows in groups]
        read, number = None, min(self.shared(begun), min(map(len, begun)) - 1)
        if number > 0:
            read = self._beginning(tuple(begun[0][:number])).rows([0] * len(begun))
        read, _ = self.extend(read, [one[number:] for one in begun])
        owners = [place for place, rows in enumerate(groups) for _ in rows]
        rest = [row[len(begin) :] for begin, rows in zip(begun, groups, strict=True) for row in rows]
        return self.extend(read.rows(owners), rest)

    def _beginning(self, ids: tuple[int, ...]) -> "PrefixState":
        """Return the keys and values of a common prefix, as one row. The states are cached for the next forward
        pass.
        """
        if ids not in self.beginnings:
            self.beginnings.clear()
            self.beginnings[ids] = self.extend(None, [list(ids)])[0]
        return self.beginnings[ids]

    def extend(self, read: "PrefixState | None", ids: Sequence[list[int]]) -> "tuple[PrefixState, Tensor]":
        """Run further tokens of each row through the model, after the tokens whose states are in ``read``. Each row
        needs at least one further token.

        Returns:
            The states of all tokens so far, and the logits after the last token of each row, (R, V).
        """
        _, ids_RT, real_RT = left_pad(ids, self.device)
        cache, real_RA = DynamicCache(), real_RT
        if read is not None:
            real_RA = torch.cat([read.real_RT, real_RT], dim=1)
            for layer, (keys, values) in enumerate(read.layers):
                cache.update(keys, values, layer)
        logits_RV = self._forward(ids_RT, real_RA, position_ids(real_RA)[:, -ids_RT.shape[1] :], cache)
        return PrefixState(zero_padding(cache, real_RA), real_RA), logits_RV

    def first_logits(self, ids: Sequence[list[int]]) -> Tensor:
        """Return the logits of the first token after each of R prompts, (R, V)."""
        _, ids_RT, real_RT = left_pad(ids, self.device)
        return self._forward(ids_RT, real_RT, position_ids(real_RT), None)

    def answer_logits(self, ids: Sequence[list[int]], answers: Sequence[int]) -> Tensor:
        """Return the first-token logits of R prompts for the A token ids in ``answers`` only, (R, A) float32."""
        with _restrict_head(self.model, answers):
            return self.first_logits(ids)

    def answer_logits_of_groups(self, groups: Sequence[Sequence[list[int]]], answers: Sequence[int]) -> Tensor:
        """Return the first-token logits of the R prompts in ``groups``, in order, for the A token ids in ``answers``
        only, (R, A) float32.

        The common prefix of each group and of all rows is processed once.
        """
        with _restrict_head(self.model, answers):
            if self.has_window:
                return self.first_logits([row for rows in groups for row in rows])
            return self.of_groups(groups)[1]

    def step(self, last_R: Tensor, cache: RowCache) -> Tensor:
        """Append the tokens ``last_R``, one to each of the R rows of the cache, and return the next-token logits, (R,
        V).
        """
        positions_R1 = torch.from_numpy(cache.lengths()).to(self.device)[:, None]
        return self._forward(last_R[:, None], cache.real(1), positions_R1, cache)

    def _forward(self, ids_RT: Tensor, real_RT: Tensor, positions_RT: Tensor, cache: object) -> Tensor:
        """Return the logits of the token after the last column, for R rows and V vocabulary entries, (R, V).

        ``real_RT`` is the mask over the columns of the cache and the new columns.
        """
        options: dict[str, Any] = {"position_ids": positions_RT, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in self.accepts}  # BLOOM has no positions
        options |= {"past_key_values": cache, "use_cache": cache is not None}
        outcome = self.model(input_ids=ids_RT, attention_mask=real_RT.long(), **options)
        logits: Tensor = outcome.logits[:, -1]
        return logits

    def encode(self, texts: Sequence[PromptText]) -> list[list[int]]:
        """Tokenize prompts.

        The ids include the special tokens that the tokenizer adds before a text, but no end-of-sequence token.

        If ``chat_template`` is set, the last line begins the answer, and all other lines are the user's message.
        """
        plain = [text for text in texts if isinstance(text, str)]
        written = [self._as_chat(text) for text in plain] if self.chat_template else plain
        # A chat template contains the special tokens
        rows = self.tokenizer(written, add_special_tokens=not self.chat_template)["input_ids"] if written else []
        of = {text: self._strip_eos(list(ids), one) for text, one, ids in zip(plain, written, rows, strict=True)}
        return [of[text] if isinstance(text, str) else list(text) for text in texts]

    def decode(self, before: int, ids: Sequence[int]) -> str:
        """Decode the token ids ``ids`` to the text that follows a text whose last token id is ``before``.

        Without a preceding token, SentencePiece would drop the space at the beginning of the text.
        """
        head, text = self._text([before]), self._text([before, *ids])
        return text[len(head) :] if text.startswith(head) else self._text(ids)

    def tokens_with(self, part: str) -> Tensor:
        """Return a mask of the vocabulary's V tokens that can complete the string ``part`` in a continuation, (V,) bool
        on the CPU.

        A single ASCII character is always inside one token. Longer strings may be spread over several tokens, so they
        may occur after any token.
        """
        vocabulary = len(self.tokenizer) + len(self.surplus)
        if len(part) > 1 or not part.isascii():
            return torch.ones(vocabulary, dtype=torch.bool)
        texts = self.tokenizer.batch_decode([[id_] for id_ in range(len(self.tokenizer))], **_VERBATIM)
        found = torch.zeros(vocabulary, dtype=torch.bool)
        found[: len(texts)] = torch.tensor([bool(part) and part in text for text in texts], dtype=torch.bool)
        return found

    def _strip_eos(self, ids: list[int], text: str) -> list[int]:
        """Remove the end-of-sequence token that some tokenizers add to every text, since no text would follow it."""
        while ids and ids[-1] in self.eos and not text.endswith(self._text(ids[-1:])):
            ids.pop()
        return ids

    def _text(self, ids: Sequence[int]) -> str:
        return cast(str, self.tokenizer.decode(list(ids), **_VERBATIM))

    def _as_chat(self, text: str) -> str:
        question, begun = split_chat_prompt(text)
        return apply_chat_template(self.tokenizer, question) + begun


class PrefixState(NamedTuple):
    """Keys and values of the tokens processed so far, with gaps (padding) in rows that contain fewer tokens than
    others.
    """

    layers: list[KeyValues]
    real_RT: Tensor  # bool: False in the gaps

    @property
    def lengths_R(self) -> np.ndarray:
        lengths: np.ndarray = self.real_RT.sum(1).cpu().numpy()
        return lengths

    @property
    def tokens(self) -> int:
        """Return the number of tokens in the longest row."""
        return int(self.lengths_R.max())

    def rows(self, chosen: Sequence[int]) -> "PrefixState":
        """Return the state of the rows with the indices ``chosen``. A repeated index repeats the row."""
        index = torch.tensor(list(chosen), device=self.real_RT.device)
        return PrefixState([KeyValues(keys[index], values[index]) for keys, values in self.layers], self.real_RT[index])

    def ending_together(self) -> list[KeyValues]:
        """Return the attention keys and values of each layer as a left-padded batch: the padding of each row is
        moved to its beginning, so that its last token is in the last column.
        """
        order_RT = self.real_RT.long().argsort(dim=1, stable=True)
        order_RHTD = order_RT[:, None, :, None].expand_as(self.layers[0].keys_RHTD)
        return [KeyValues(*(part.gather(2, order_RHTD) for part in layer)) for layer in self.layers]


def group_similar(ids: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Group consecutive prompts that differ only in their last `PROMPT_END_TOKENS` tokens or fewer."""
    group = list[list[int]]()
    for one in ids:
        if group and common_prefix_length([group[0], one]) < max(len(group[0]), len(one)) - PROMPT_END_TOKENS:
            yield group
            group = []
        group.append(one)
    yield group


def common_prefix_length(ids: Sequence[list[int]]) -> int:
    """Return the length of the common prefix of all rows, in tokens."""
    return next((at for at, column in enumerate(zip(*ids, strict=False)) if len(set(column)) > 1), min(map(len, ids)))


def apply_chat_template(tokenizer: Tokenizer, question: str) -> str:
    """Format the user's message by the chat template, up to the position where the answer begins."""
    messages = [{"role": "user", "content": question}]
    template = FIXED_DATE + tokenizer.get_chat_template()
    options: dict[str, Any] = {"chat_template": template, "tokenize": False, "add_generation_prompt": True}
    return cast(str, tokenizer.apply_chat_template(messages, **options))


def check_chat(tokenizer: Tokenizer, name: str) -> None:
    """Raise `InputError` if the tokenizer has no chat template, or a template that omits the user's message."""
    if not tokenizer.chat_template:
        expected = f"false, because the tokenizer of {name} has no chat template"
        raise InputError(key="chat_template", value=True, expected=expected)
    try:
        why = "" if "What?" in apply_chat_template(tokenizer, "What?") else "omits the user's message"
    except (TemplateError, ValueError, TypeError) as error:
        why = f"fails for a user's message ({type(error).__name__}: {error})"
    if why:
        raise InputError(
            key="chat_template",
            value=True,
            expected=f"false, because the chat template of {name} {why}",
            hint="Alternatively, correct the chat template of the tokenizer.",
        )


def batch_by_length(ids_of: Mapping[AnyText, list[int]]) -> Iterator[list[AnyText]]:
    """Yield batches of texts of similar length, the longest texts first."""
    left = sorted(ids_of, key=lambda text: len(ids_of[text]))
    while left:
        texts = left[-max(1, MAX_TOKENS_PER_PASS // len(ids_of[left[-1]])) :]
        del left[-len(texts) :]
        yield texts


@contextlib.contextmanager
def _restrict_head(model: PreTrainedModel, tokens: Sequence[int]) -> Iterator[None]:
    """Context manager that restricts the logits to the given tokens and computes them in float32.

    In bf16, logits would be multiples of an eighth, and the logits of two answers would often be equal.
    """
    rows = list(tokens)

    def in_full(head: nn.Linear, args: tuple[Tensor], logits: Tensor) -> Tensor:
        precise = torch.promote_types(head.weight.dtype, torch.float32)
        bias = None if head.bias is None else head.bias[rows].to(precise)
        with torch.autocast(logits.device.type, enabled=False):
            return nn.functional.linear(args[0].to(precise), head.weight[rows].to(precise), bias)

    handle = cast(nn.Linear, model.get_output_embeddings()).register_forward_hook(in_full)
    try:
        yield
    finally:
        handle.remove()


def left_pad(ids: Sequence[list[int]], device: torch.device) -> tuple[np.ndarray, Tensor, Tensor]:
    """Left-pad the token ids of R rows to the length T of the longest. No pad token is needed.

    Returns:
        The lengths (R,), the ids (R, T), which end at the last column, and a mask (R, T) bool: False for padding.
    """
    lengths_R = np.array([len(one) for one in ids], dtype=np.int64)
    columns = int(lengths_R.max())
    ids_RT = np.zeros((len(ids), columns), dtype=np.int64)  # padding is masked, so its ids have no effect
    for row, one in enumerate(ids):
        ids_RT[row, columns - len(one) :] = one
    real_RT = torch.from_numpy(np.arange(columns) >= (columns - lengths_R)[:, None]).to(device)
    return lengths_R, torch.from_numpy(ids_RT).to(device), real_RT


def position_ids(real_RT: Tensor) -> Tensor:
    """Return the position of each token in its left-padded row, (R, T)."""
    return (real_RT.cumsum(1) - 1).clamp_(min=0)


def zero_padding(cache: DynamicCache, real_RT: Tensor) -> list[KeyValues]:
    """Return the keys and values in the cache, with the keys and values of padding tokens set to zero.

    Masked keys have weight zero, but zero times NaN is NaN.
    """
    padding = ~real_RT[:, None, :, None]
    layers: list[Any] = cache.layers
    return [KeyValues(one.keys.masked_fill(padding, 0), one.values.masked_fill(padding, 0)) for one in layers]


_VERBATIM: dict[str, Any] = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}


def load_generator(
    name: str,
    *,
    precision: str = "fp32",
    device: str = "auto",
    revision: str | None = None,
    chat_template: bool = False,
) -> Generator:
    """Load a causal language model as a generator.

    Args:
        precision: fp32, bf16, or fp16.
        device: auto, cpu, cuda, or cuda:N.

    Raises:
        InputError: The model does not exist, or does not continue text with a key-value cache.
    """
    model, tokenizer = load_parts(
        AutoModelForCausalLM, name, causal_lm_problem, partial(_no_causal_lm, name), precision, device, revision
    )
    if chat_template:
        check_chat(tokenizer, name)
    return Generator(name, model, tokenizer, chat_template)


def load_parts(
    factory: Any,
    name: str,
    why_not: Callable[[Any], str],
    refused: Callable[[str], InputError],
    precision: str,
    device: str,
    revision: str | None,
) -> tuple[Any, Tokenizer]:
    """Load the model and tokenizer of a generator.

    ``why_not(config)`` returns the reason why a model cannot generate, or an empty string.

    Raises:
        InputError: The model does not exist, or it cannot generate; the error is then ``refused(reason)``.
    """
    options: dict[str, Any] = {"setting": "generator", **({"revision": revision} if revision else {})}
    if why := why_not(from_pretrained(AutoConfig, name, **options)):
        raise refused(why)
    tokenizer = from_pretrained(AutoTokenizer, name, **options)
    model: Any = load_complete(factory, name, refused, dtype=PRECISIONS[precision], **options)
    return model.to(device_of(device)).eval(), tokenizer


def _no_causal_lm(name: str, why: str) -> InputError:
    return InputError(
        key="generator",
        value=name,
        expected="a causal language model with a key-value cache, such as GPT-2, OPT, Pythia, Llama, Qwen, or Mistral "
        f"({why})",
    )


def not_finite_error(name: str) -> InputError:
    return InputError(
        key="generator",
        value=name,
        expected="finite logits",
        hint="In fp16, logits may overflow; bf16 and fp32 avoid this. Otherwise, the weights are damaged.",
    )


def _end_of_sequence(model: PreTrainedModel, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of all end-of-sequence tokens that the model, its generation config, or the tokenizer defines."""
    named = [tokenizer.eos_token_id, model.config.get_text_config(decoder=True).eos_token_id]
    if model.generation_config is not None:
        named.append(model.generation_config.eos_token_id)
    ids = {id_ for entry in named for id_ in (entry if isinstance(entry, list) else [entry]) if id_ is not None}
    return tuple(sorted(ids))
