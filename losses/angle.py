"""AnglE (Li and Li, ACL 2024): CoSENT with a similarity based on angles in the complex plane.

Its gradient does not vanish if two embeddings have the same direction.

Shape letters: B pairs on this rank, D embedding width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.cosent import check_pairs, ranking_loss
from contrastive_encoders.losses.precision import at_least_float32


def angle(left_BD: Tensor, right_BD: Tensor, scores_B: Tensor, *, temperature: float) -> Tensor:
    """Compute the CoSENT loss with |cosine + sine| as the similarity of a pair, as in the authors' code.

    The first half of an embedding is its real part, and the second half its imaginary part. An odd width is padded with
    a zero.

    Raises:
        ValueError: If the shapes do not match, or if the batch is empty.
    """
    check_pairs("angle", left_BD, right_BD, scores_B)
    with torch.autocast(left_BD.device.type, enabled=False):
        left, right = (
            F.normalize(F.pad(at_least_float32(view), (0, view.shape[1] % 2)), dim=1).chunk(2, 1)
            for view in (left_BD, right_BD)
        )
        cosine_B = (left[0] * right[0] + left[1] * right[1]).sum(1)
        sine_B = (left[1] * right[0] - left[0] * right[1]).sum(1)
        return ranking_loss((cosine_B + sine_B).abs(), scores_B, temperature)
