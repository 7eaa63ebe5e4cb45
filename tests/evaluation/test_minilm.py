"""Known scores of all-MiniLM-L6-v2, MTEB's among them, through stock sentence-transformers."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from tests.embedders import OnTheCPU

STS = {  # Spearman of the cosine x 100 as published; sickr is SICK-R's test rows, sickr-all is what MTEB scores
    "sts12": {"sts12/all/spearman": 72.37},
    "sts13": {"sts13/all/spearman": 80.60},
    "sts14": {"sts14/all/spearman": 75.59},
    "sts15": {"sts15/all/spearman": 85.39},
    "sts16": {"sts16/all/spearman": 78.99},
    "stsb": {"stsb/cosine/spearman": 82.03},
    "sickr-all": {"sickr-all/cosine/spearman": 77.58},
    "sickr": {"sickr/cosine/spearman": 77.15},
}
DOMAIN = {
    "biosses": {"biosses/cosine/spearman": 81.25},  # the authors' own file; MTEB's copy, which differs, gives 81.64
    "pit": {"pit/cosine/spearman": 62.15, "pit/cosine/ap": 71.90},
    "twitterurl": {"twitterurl/cosine/ap": 77.12},
}


class SentenceTransformers(OnTheCPU):
    def __init__(self, path: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(path, device="cpu")

    def embed(self, texts: Sequence[str], **_: object) -> Tensor:
        return self.model.encode(list(texts), batch_size=64, convert_to_tensor=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def minilm(minilm_path) -> SentenceTransformers:
    pytest.importorskip("sentence_transformers", reason="comes with the dev extra")
    return SentenceTransformers(str(minilm_path))


def scores(root: Path, tasks: Sequence[str], minilm: SentenceTransformers) -> dict[str, float]:
    return Suite(load_tasks(root, tasks, EvaluateConfig()).tasks).run(minilm, intervals=False).values


@pytest.mark.parametrize(
    ("task", "near"),
    [
        ("biosses", 0.02),
        pytest.param("pit", 0.02, marks=pytest.mark.slow),
        pytest.param("twitterurl", 0.02, marks=pytest.mark.slow),
    ],
)
def test_a_set_is_the_known_figure(task, near, minilm, real_data):
    found, known = scores(real_data, [task], minilm), (STS | DOMAIN)[task]
    assert {name: found[name] for name in known} == pytest.approx(known, abs=near)


@pytest.mark.slow
def test_every_sts_set_is_the_published_figure(minilm, real_data):
    found = scores(real_data, list(STS), minilm)
    known = {name: value for one in STS.values() for name, value in one.items()}
    assert {name: found[name] for name in known} == pytest.approx(known, abs=0.05)
    seven = [value for name, value in known.items() if not name.startswith("sickr-all")]
    assert found["sts-avg7/all/spearman"] == pytest.approx(sum(seven) / 7, abs=0.05)


@pytest.mark.slow
def test_uniformity_and_alignment_are_wang_and_isola_s(minilm, real_data):
    """The two formulas are applied to all sentences of the development set."""
    found = scores(real_data, ["stsb-dev-geometry"], minilm)
    (task,) = load_tasks(real_data, "stsb-dev", EvaluateConfig()).tasks
    left, right = (torch.nn.functional.normalize(minilm.embed(side)) for side in (task.pairs.left, task.pairs.right))
    close = torch.from_numpy(task.pairs.gold) > 4
    align = (left - right)[close].norm(dim=1).pow(2).mean()
    uniform = torch.pdist(torch.cat([left, right])).pow(2).mul(-2).exp().mean().log()
    assert found["stsb-dev/geometry/alignment"] == pytest.approx(float(align), abs=1e-5)
    assert found["stsb-dev/geometry/uniformity"] == pytest.approx(float(uniform), abs=1e-4)
