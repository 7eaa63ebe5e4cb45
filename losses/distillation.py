"""Distillation losses, which use a teacher's scores for the texts of an anchor, or a teacher's embeddings.

Each loss is a mean over rows, so that the mean over ranks is the value of the global batch.

Shape letters: B rows, C texts that are scored for each anchor, N texts, W width.
"""

import torch.nn.functional as F
from torch import Tensor


def similarity_scores(anchors_BW: Tensor, others_BCW: Tensor, *, cosine: bool) -> Tensor:
    """Return the dot product or the cosine of each of B anchors with each of its C texts, (B, C) float32."""
    anchors_BW, others_BCW = anchors_BW.float(), others_BCW.float()
    if cosine:
        anchors_BW, others_BCW = F.normalize(anchors_BW, dim=-1), F.normalize(others_BCW, dim=-1)
    return (anchors_BW[:, None] * others_BCW).sum(-1)


def margin_mse(scores_BC: Tensor, teacher_BC: Tensor) -> Tensor:
    """Compute MarginMSE: the squared difference of the student's and the teacher's margins (Hofstaetter et al., 2020).

    A margin is the score of the positive, which is the first column, minus the score of a negative.

    Returns:
        () float32, the mean over rows and negatives.
    """
    scores_BC, teacher_BC = scores_BC.float(), teacher_BC.float()
    return F.mse_loss(scores_BC[:, :1] - scores_BC[:, 1:], teacher_BC[:, :1] - teacher_BC[:, 1:])


def kl_of_scores(scores_BC: Tensor, teacher_BC: Tensor, *, temperature: float) -> Tensor:
    """Compute KL(teacher || student) of the softmax over the scores of an anchor's texts (Lin et al., 2020).

    Scores are divided by ``temperature``, and the loss is multiplied by its square, which preserves the scale of the
    gradient (Hinton et al., 2015).

    Returns:
        () float32, the mean over rows.
    """
    student_BC = F.log_softmax(scores_BC.float() / temperature, dim=-1)
    wanted_BC = F.log_softmax(teacher_BC.float() / temperature, dim=-1)
    return F.kl_div(student_BC, wanted_BC, reduction="batchmean", log_target=True) * temperature**2


def cosine_to(vectors_NW: Tensor, teacher_NW: Tensor) -> Tensor:
    """Return the mean of 1 - cosine between student and teacher embeddings, () float32 (EmbedDistill, Kim et al.,
    2023).
    """
    return (1 - F.cosine_similarity(vectors_NW.float(), teacher_NW.float(), dim=-1)).mean()


def mse_to(vectors_NW: Tensor, teacher_NW: Tensor) -> Tensor:
    """Return the mean squared error between student and teacher embeddings, () float32 (Reimers and Gurevych, EMNLP
    2020).
    """
    return F.mse_loss(vectors_NW.float(), teacher_NW.float())
