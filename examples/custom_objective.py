"""Train an encoder with a custom objective: the sigmoid loss of SigLIP (Zhai et al., 2023).

    python custom_objective.py faq.csv outputs/sigmoid

The CSV file has the columns question and answer. A third argument sets the number of steps, which is 100 by default.
"""

import sys

import torch
import torch.nn.functional as F

from contrastive_encoders import Objective, QuestionDataConfig, RunConfig, run
from contrastive_encoders.core import TripletBatch
from contrastive_encoders.encoders.model_configs import EmbeddingConfig


class Sigmoid(Objective):
    objective, consumes = "sigmoid", TripletBatch
    settings: EmbeddingConfig

    def views(self, batch):
        return [batch.anchors, batch.positives]

    def loss(self, vectors, batch):
        questions, answers = (F.normalize(vector, dim=-1) for vector in vectors)
        logits = 10 * questions @ answers.T - 10  # SigLIP's initial scale and bias
        targets = torch.eye(len(logits), device=logits.device)  # each question matches the answer of its row
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(logits)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, output, steps = (*sys.argv[1:], "100")[:3]
    model = EmbeddingConfig(target="custom_objective.Sigmoid", lr=2e-5, dropout=0.0)
    data, backbone = QuestionDataConfig(path=path), "sentence-transformers/all-MiniLM-L6-v2"
    keys = {"batch_size": 32, "max_steps": int(steps), "output_dir": output, "log_every_n_steps": 1}
    run(RunConfig(model=model, data=data, backbone=backbone, allow_targets=["custom_objective"], **keys))
    print(f'SentenceTransformer("{output}/encoder") loads the encoder.')
