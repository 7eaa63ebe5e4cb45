"""Paraphrase tasks, which classify pairs by their cosine (GenSE table 3), and BIOSSES, an STS task.

Twitter-URL and PIT-2015 (TwitterPara) follow the protocol of TSDAE (Wang et al. 2021, package useb). The scores are
average precision, without the pairs on which the annotators were undecided, and Spearman's correlation with the votes
over all pairs.

    TwitterURL/test_with_debatable  votes_of_6, sentence1, sentence2
    PIT2015/test                    score (0 to 5), sentence1, sentence2
    BIOSSES/test                    score (0 to 4), sentence1, sentence2
"""

import logging
from functools import partial
from pathlib import Path

import torch

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.evaluation.tasks.sts import RatedPairTask, STSLayout, cosines, read_pairs, read_similarity
from contrastive_encoders.statistics.bootstrap import Estimate, average_precision, best_f1, is_constant, spearman

log = logging.getLogger(__name__)

UNDECIDED = 3.0  # votes or rating: above it, a paraphrase; below it, not a paraphrase


class Paraphrases(RatedPairTask):
    """Task that identifies paraphrases by the cosine of a pair.

    ``pairs.gold`` contains votes or a rating. A pair above ``debatable`` is a paraphrase, and a pair at
    ``debatable`` counts only for Spearman. ``f1`` adds the best F1.
    """

    def __init__(self, pairs: RatedPairs, debatable: float = UNDECIDED, *, f1: bool = False) -> None:
        super().__init__(pairs)
        self.debatable, self.f1 = debatable, f1

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/{metric}" for metric in ("ap", "spearman", *(["f1"] if self.f1 else []))]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        cosine_N, gold_N = cosines(self.pairs, pool), torch.from_numpy(self.pairs.gold)
        if is_constant(cosine_N):
            log.warning("%s: all pairs have the same cosine (%.4f)", self.name, cosine_N[0])
        decided_N = gold_N != self.debatable
        is_paraphrase_N = (gold_N > self.debatable).long()
        key = self.name if options.intervals else None
        decided = cosine_N[decided_N], is_paraphrase_N[decided_N], key
        estimates = [average_precision(*decided), spearman(cosine_N, gold_N, key)]
        return dict(zip(self.score_names(), [*estimates, *([best_f1(*decided)] if self.f1 else [])], strict=True))


def _read(layout: STSLayout, column: str, root: Path, name: str, config: EvaluateConfig) -> Paraphrases:
    """Read a paraphrase task, whose gold values are the votes or ratings in ``column``; a value of 3 is undecided."""
    return Paraphrases(read_pairs(root, name, layout, column))


_BIOSSES = STSLayout({"BIOSSES/test": 100}, 0, 4)
_LAYOUTS = {
    "twitterurl": (STSLayout({"TwitterURL/test_with_debatable": 10120}, 0, 6), "votes_of_6"),
    "pit": (STSLayout({"PIT2015/test": 972}, 0, 5), "score"),
}
ENTRIES = {
    **{name: TaskEntry(layout.rows, partial(_read, layout, column)) for name, (layout, column) in _LAYOUTS.items()},
    "biosses": TaskEntry(_BIOSSES.rows, partial(read_similarity, _BIOSSES)),
}
