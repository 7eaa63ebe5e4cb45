"""AnglE (Li and Li, ACL 2024): CoSENT with a similarity of angles in the complex plane, whose gradient does not vanish
where two vectors point the same way.

Shape letters: B pairs on this rank, D embedding width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.cosent import check_pairs, ranked
from contrastive_encoders.losses.precision import at_least_float32


def angle(left_BD: Tensor, right_BD: Tensor, scores_B: Tensor, *, temperature: float) -> Tensor:
    """Return `losses.cosent.cosent` of |cosine + sine| of the pairs, as the authors' code has it. The first half of a
    vector is its real part, the second its imaginary part, behind which an odd width has a zero.

    Raises:
        ValueError: the shapes do not go together, or there is no pair.
    """
    check_pairs("angle", left_BD, right_BD, scores_B)
    with torch.autocast(left_BD.device.type, enabled=False):
        left, right = (
            F.normalize(F.pad(at_least_float32(view), (0, view.shape[1] % 2)), dim=1).chunk(2, 1)
            for view in (left_BD, right_BD)
        )
        cosine_B = (left[0] * right[0] + left[1] * right[1]).sum(1)
        sine_B = (left[1] * right[0] - left[0] * right[1]).sum(1)
        return ranked((cosine_B + sine_B).abs(), scores_B, temperature)
