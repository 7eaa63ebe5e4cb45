"""Average the weights before and after training, to preserve more of the initial encoder's abilities (WiSE-FT).

Wortsman et al. 2022, "Robust fine-tuning of zero-shot models" (arXiv:2109.01903), equation 1: (1 - a) * start + a *
trained, for every weight of the backbone.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from contrastive_encoders.encoders.objective import Objective


def copy_of_weights(model: Objective) -> dict[str, Tensor]:
    """Return a copy of the backbone's floating-point weights in CPU memory."""
    weights = model.transformer.state_dict()
    return {name: weight.detach().cpu().clone() for name, weight in weights.items() if weight.is_floating_point()}


@torch.no_grad()
def average_with(model: Objective, start: Mapping[str, Tensor], share: float) -> None:
    """Replace the backbone's weights in place by the average ``share`` * ``start`` + (1 - ``share``) * trained weights,
    where ``start`` contains the weights before training. The average is computed in float32.
    """
    own = model.transformer.state_dict()
    mean = {name: torch.lerp(own[name].float(), at.to(own[name].device).float(), share) for name, at in start.items()}
    for name, weight in mean.items():  # compute all means first, because tied weights have several names
        own[name].copy_(weight)
