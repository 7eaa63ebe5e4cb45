"""Pooling of the hidden states of a sequence into one embedding. This module does not import torch.

To add a pooling, add an entry to `POOLERS`, for example ``POOLERS[pooler.name] = pooler`` in user code. All other code
uses `Pooler` objects and does not depend on names.

Shape letters: B sequences, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core import InputError

if TYPE_CHECKING:  # --help lists the poolings, without torch
    from torch import Tensor


def mean(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Average the hidden states of all tokens except padding, including special tokens, in float32."""
    weight_BT1 = mask_BT.unsqueeze(-1).float()
    return (states_BTD.float() * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


def cls(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the hidden state of the first token, before the backbone's pooler layer, if there is one."""
    return states_BTD[:, 0].float()


def maximum(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the maximum of each feature over all tokens except padding."""
    import torch

    states = states_BTD.float()
    return states.masked_fill(mask_BT.unsqueeze(-1) == 0, torch.finfo(states.dtype).min).amax(1)


def last(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the hidden state of the last token, which attends to all other tokens in a causal model (E5-Mistral)."""
    import torch

    places_BT = mask_BT.long() * torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
    index_B1D = places_BT.argmax(1).view(-1, 1, 1).expand(-1, 1, states_BTD.shape[-1])
    return states_BTD.gather(1, index_B1D).squeeze(1).float()


def weighted_mean(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Average the hidden states with weights; the weight of the i-th token is proportional to i (SGPT, Muennighoff
    2022).
    """
    weight_BT1 = (mask_BT.long().cumsum(1) * mask_BT.long()).unsqueeze(-1).float()
    return (states_BTD.float() * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


class TokenPooling(NamedTuple):
    """Pooling of the hidden states of one layer over the tokens of a sequence."""

    function: Callable[[Tensor, Tensor], Tensor]  # (B, T, D) states, (B, T) mask -> (B, D) float32
    library_mode: str  # ``pooling_mode`` of sentence-transformers' Pooling, for export and import
    formula: str  # PyTorch expression of ``states`` (B, T, D) and ``mask`` (B, T, 1), for model cards


MEAN = TokenPooling(mean, "mean", "(states * mask).sum(1) / mask.sum(1)")
CLS = TokenPooling(cls, "cls", "states[:, 0]")
MAX = TokenPooling(maximum, "max", "states.masked_fill(mask == 0, float('-inf')).amax(1)")
LAST = TokenPooling(last, "lasttoken", "states[torch.arange(len(states)), mask.sum(1).squeeze(1) - 1]")
WEIGHTED_MEAN = TokenPooling(
    weighted_mean, "weightedmean", "(states * mask.cumsum(1) * mask).sum(1) / (mask.cumsum(1) * mask).sum(1)"
)
LAST_LAYER = (-1,)


class Pooler(NamedTuple):
    """Pooling over layers and tokens, and its name as a value of ``model.pooling``.

    ``layers`` are indices of hidden states, which are averaged: 0 is the embedding layer, 1 is the first layer, and -1
    is the last layer.
    """

    name: str
    tokens: TokenPooling
    layers: tuple[int, ...] = LAST_LAYER
    decodes: bool = False  # pools the hidden states of the decoder, whose input is the start token only
    is_shipped: bool = False  # is followed by a layer of the backbone, see `shipped_pooler`

    @property
    def averages_layers(self) -> bool:
        """Whether the pooling uses layers other than the last."""
        return self.layers != LAST_LAYER

    @property
    def reads_first_token(self) -> bool:
        """Whether the pooling uses only the hidden state of the encoder's first token."""
        return self.tokens == CLS and not self.decodes

    @property
    def options(self) -> dict[str, bool]:
        """Keyword arguments that this pooling requires in the forward pass of the backbone."""
        return {"output_hidden_states": True} if self.averages_layers else {}

    def __call__(self, output: Any, mask_BT: Tensor) -> Tensor:
        """Pool the output of a backbone for B sequences to embeddings, (B, D) float32."""
        return self.tokens.function(self._states(output), mask_BT)

    def of_row(self, output: Any, row: Any) -> Tensor:
        """Pool the output of a backbone for the sequences of a `PackedRow`."""
        return row.pooled(self.tokens.function, self._states(output)[0])

    def _states(self, output: Any) -> Tensor:
        if not self.averages_layers:
            return output.last_hidden_state
        import torch

        return torch.stack([output.hidden_states[layer].float() for layer in self.layers]).mean(0)

    def computes_as(self, other: Pooler) -> bool:
        """Return whether this pooling and ``other`` compute the same embeddings, regardless of their names."""
        return self._replace(name=other.name) == other


POOLERS: dict[str, Pooler] = {
    pooler.name: pooler
    for pooler in (
        Pooler("mean", MEAN),
        Pooler("cls", CLS),
        Pooler("last", LAST),
        Pooler("weighted_mean", WEIGHTED_MEAN),
        Pooler("max", MAX),
        Pooler("cls_before_pooler", CLS),  # SimCSE's name
        Pooler("pooler_output", CLS, is_shipped=True),  # SimCSE's --pooler cls
        Pooler("avg_top2", MEAN, layers=(-1, -2)),
        Pooler("avg_first_last", MEAN, layers=(1, -1)),  # SimCSE after its correction
        Pooler("avg_embedding_last", MEAN, layers=(0, -1)),  # "avg_first_last" in GenSE and early versions of SimCSE
        Pooler("first_decoder", CLS, decodes=True),  # GenSE, ST5-EncDec
    )
}


def pooler_of(name: str, key: str = "pooling") -> Pooler:
    """Return the pooling with this name. ``key`` is the config key that error messages name.

    Raises:
        InputError: If there is no such pooling.
    """
    if name not in POOLERS:
        raise InputError(key=key, value=name, expected=f"one of {', '.join(sorted(POOLERS))}")
    return POOLERS[name]
