"""From token states to one vector a sequence: functions, picked by name.

Shape letters: B sequences, T tokens, D width.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Pooler = Callable[[Tensor, Tensor], Tensor]


def mean(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Average over all real tokens, special tokens included, in float32."""
    weight_BT1 = mask_BT.unsqueeze(-1).float()
    return (states_BTD.float() * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


def cls(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The state of the first token, before any pooler layer of the backbone."""
    return states_BTD[:, 0].float()


def maximum(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The largest value of each feature over the real tokens."""
    states = states_BTD.float()
    return states.masked_fill(mask_BT.unsqueeze(-1) == 0, torch.finfo(states.dtype).min).amax(1)


POOLERS: dict[str, Pooler] = {"mean": mean, "cls": cls, "max": maximum}
