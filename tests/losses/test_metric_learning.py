"""Losses of pytorch-metric-learning by name: the same number as calling the library, and clear refusals."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor

from contrastive_encoders.losses.metric_learning import UNFIT, metric_loss

FIT = [
    "AngularLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "FastAPLoss",
    "GeneralizedLiftedStructureLoss",
    "IntraPairVarianceLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "NPairsLoss",
    "NTXentLoss",
    "PNPLoss",
    "SignalToNoiseRatioContrastiveLoss",
    "SmoothAPLoss",
    "SupConLoss",
    "ThresholdConsistentMarginLoss",
    "TripletMarginLoss",
    "TupletMarginLoss",
]


def views(pairs: int = 8, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(pairs, 6, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("name", FIT)
def test_is_the_librarys_loss_with_the_pair_as_label(name):
    ours, theirs = views(), views()
    loss = metric_loss(name)(*ours)
    expected = getattr(losses, name)()(torch.cat(theirs), torch.arange(8).repeat(2))
    loss.backward()
    expected.backward()
    assert torch.equal(loss, expected)
    assert loss.item() > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine.grad, other.grad)


@pytest.mark.parametrize("miner", ["PairMarginMiner", "TripletMarginMiner", "MultiSimilarityMiner", "BatchHardMiner"])
def test_a_miner_chooses_what_the_loss_sees(miner):
    left, right = views()
    rows, labels = torch.cat([left, right]), torch.arange(8).repeat(2)
    expected = losses.ContrastiveLoss()(rows, labels, getattr(miners, miner)()(rows, labels))
    assert torch.equal(metric_loss("ContrastiveLoss", miner)(left, right), expected)


def test_options_reach_loss_and_miner():
    left, right = views()
    rows, labels = torch.cat([left, right]), torch.arange(8).repeat(2)
    mined = miners.TripletMarginMiner(margin=0.7)(rows, labels)
    expected = losses.TripletMarginLoss(margin=0.9)(rows, labels, mined)
    found = metric_loss("TripletMarginLoss", "TripletMarginMiner", {"margin": 0.7}, margin=0.9)(left, right)
    assert torch.equal(found, expected)
    assert not torch.equal(found, metric_loss("TripletMarginLoss", "TripletMarginMiner")(left, right))


def test_autocast_and_bfloat16_are_computed_in_float32():
    left, right = (view.detach().bfloat16() for view in views())
    loss = metric_loss("SupConLoss")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(left, right)
    assert torch.equal(found, loss(left.float(), right.float()))


REFUSED = [
    (("NTXent",), {}, "'NTXent'.* NTXentLoss"),
    (("TripletLoss",), {}, "'TripletLoss'.* TripletMarginLoss"),
    (("qqqq",), {}, "'qqqq'.* AngularLoss, ArcFaceLoss"),
    (("ArcFaceLoss",), {}, "num_classes"),
    (("ProxyNCALoss",), {"num_classes": 3, "embedding_size": 6}, "ProxyNCALoss .*weights"),
    (("SelfSupervisedLoss",), {}, "'SelfSupervisedLoss'"),
    (("VICRegLoss",), {}, UNFIT["VICRegLoss"]),
    (("GenericPairLoss",), {}, UNFIT["GenericPairLoss"]),
    (("DynamicSoftMarginLoss",), {}, UNFIT["DynamicSoftMarginLoss"]),
    (("RankedListLoss",), {"margin": 0.1}, "Tn"),
    (("TripletMarginLoss",), {"marign": 0.1}, "marign"),
    (("MarginLoss",), {"learn_beta": True, "num_classes": 3}, "MarginLoss .*weights"),
    (("TripletMarginLoss", "TripletMiner"), {}, "miner 'TripletMiner'.* TripletMarginMiner"),
    (("TripletMarginLoss", "BaseMiner"), {}, UNFIT["BaseMiner"]),
    (
        ("TripletMarginLoss", "EmbeddingsAlreadyPackagedAsTriplets"),
        {},
        UNFIT["EmbeddingsAlreadyPackagedAsTriplets"],
    ),
    (("TripletMarginLoss", None, {"margin": 0.1}), {}, "^miner_options="),
]


@pytest.mark.parametrize(("names", "options", "message"), REFUSED)
def test_unsuitable_losses_and_miners_are_refused(names, options, message):
    with pytest.raises(ValueError, match=message):
        metric_loss(*names, **options)


def test_an_unknown_name_lists_those_that_fit():
    with pytest.raises(ValueError, match="'qqqq'") as refusal:
        metric_loss("qqqq")
    assert set(FIT) <= set(re.findall(r"\w+", str(refusal.value)))


@pytest.mark.rotates
def test_importing_our_losses_does_not_import_the_library():
    code = (
        "import sys\n"
        "from contrastive_encoders.losses import contrastive, cross_entropy, metric_learning\n"
        "assert 'pytorch_metric_learning' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
