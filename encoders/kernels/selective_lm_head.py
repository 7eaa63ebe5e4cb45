"""Language-model head that is applied only to the tokens to predict.

With a vocabulary of 50,000, the head is as expensive as several layers, and only 15 % of the anchors' tokens need it. A
hook on the model's trunk pools the full hidden states and passes the selected rows to the head. It works for every
architecture, regardless of the name of its head.

Shape letters: B sequences, T tokens, D width, M selected tokens, V vocabulary.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from contrastive_encoders.encoders.kernels.gpu_kernels import aligned_linear, is_unaligned
from contrastive_encoders.encoders.kernels.host_layout import TokenIndices
from contrastive_encoders.encoders.kernels.onednn_layers import replaced


@contextlib.contextmanager
def _only_rows(trunk: nn.Module, pool: Callable[[Any], Tensor], chosen: TokenIndices) -> Iterator[list[Tensor]]:
    pooled: list[Tensor] = []

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        pooled.append(pool(output))
        output.last_hidden_state = chosen.of(output.last_hidden_state).unsqueeze(0)
        return output

    handle = trunk.register_forward_hook(hook, with_kwargs=True)
    try:
        yield pooled
    finally:
        handle.remove()


@contextlib.contextmanager
def head_sees(model: PreTrainedModel, places: TokenIndices) -> Iterator[None]:
    """Context manager in which ``model`` computes logits, (M, V), only for the M tokens in ``places`` (V: vocabulary
    size).

    The tokens are selected directly before the output embeddings, after all other layers of the head.
    """
    head = cast(nn.Module, model.get_output_embeddings())
    handle = head.register_forward_pre_hook(lambda module, args: (places.of(args[0]), *args[1:]))
    try:
        yield
    finally:
        handle.remove()


def vectors_and_logits(
    model: PreTrainedModel, pool: Callable[[Any], Tensor], chosen: TokenIndices, inputs: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Compute, in one forward pass, the pooled embeddings (B, D) of B sequences and the logits (M, V) of the M selected
    tokens.
    """
    head = cast(nn.Module, model.get_output_embeddings())
    with _only_rows(model.base_model, pool, chosen) as pooled, replaced([head] if is_unaligned(head) else [], _aligned):
        logits = model(**inputs).logits
    return pooled[0], logits[0]


def _aligned(head: Any) -> Callable[[Tensor], Tensor]:
    return lambda states: aligned_linear(states, head.weight, head.bias)
