"""Perplexity by both definitions and accuracy, against slow versions of them; selection as published."""

import numpy as np
from torch import nn

from contrastive_encoders.core import HeldOutTexts
from contrastive_encoders.evaluation.callback import choose_suites
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig

LOSSES = np.array([3.0, 10.0, 1.5, 8.0, 2.0])
TOKENS = np.array([3, 5, 1, 4, 2])
RIGHT = np.array([True, True, False, True])


class Writer(nn.Module):
    def __init__(self, batch_size=None):
        super().__init__()
        self.batch_size = batch_size

    def held_out_texts(self):
        return HeldOutTexts(LOSSES, TOKENS, RIGHT, self.batch_size)


def test_a_model_that_writes_is_scored_without_tables_and_by_name():
    whole, during = choose_suites(Writer(), [], None, ["sts"], ["generator-dev"], EvaluateConfig(), [])
    assert [task.name for task in whole] == [task.name for task in during] == ["generator-dev"]
    assert "generator-dev/selection" in during.score_names()
    assert not len(choose_suites(Writer(), [], None, ["sts"], ["stsb-dev"], EvaluateConfig(), []).during)
    assert whole.sentences() == whole.baselines() == {}
