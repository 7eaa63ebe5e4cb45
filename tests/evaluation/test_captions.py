"""Caption retrieval against loops: the ranking, the loss, the random negatives, and an entire training."""

import copy
import errno
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.captions import (
    EMBEDDING_FILES,
    CaptionEmbeddings,
    CaptionRetrieval,
    Sizes,
    fit,
    fold_ranks,
    median_rank,
    ranks_of,
    read_captions,
)

CPU = torch.device("cpu")
SMALL = Sizes(width=7, batch=16, others=3, folds=2, fold_images=12)


def vectors(images: int, seed: int, dtype=torch.float64) -> CaptionEmbeddings:
    """Make captions that are noisy views of the image's content."""
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((images, 4))
    to_image, to_caption = np.random.default_rng(99).standard_normal((2, 4, 6))
    pictures = meaning @ to_image
    told = np.repeat(meaning, 5, 0) @ to_caption[:, :5] + rng.standard_normal((5 * images, 5))
    return CaptionEmbeddings(torch.from_numpy(pictures).to(dtype), torch.from_numpy(told).to(dtype))


# ---------------------------------------------------------------------------------------- slow


def slow_ranks(scores: np.ndarray) -> tuple[list[int], list[int]]:
    """Rank with one sorted list per question; of equal items, the last is first."""
    images, captions = scores.shape
    of_images, of_captions = [], []
    for i in range(images):
        listed = list(np.argsort(scores[i], kind="stable")[::-1])
        of_images.append(min(listed.index(c) for c in range(5 * i, 5 * i + 5)))
    for c in range(captions):
        listed = list(np.argsort(scores[:, c], kind="stable")[::-1])
        of_captions.append(listed.index(c // 5))
    return of_images, of_captions


def slow_loss(image_map, caption_map, data, picked, other_images, other_captions, margin):
    def unit(rows):
        return rows / rows.pow(2).sum(-1, keepdim=True).sqrt()

    total = torch.zeros((), dtype=torch.float64)
    for place, c in enumerate(picked):
        image, caption = unit(image_map(data.images_IV[c // 5])), unit(caption_map(data.captions_CD[c]))
        for wrong in other_captions[place]:
            total = total + torch.relu(margin - image @ caption + image @ unit(caption_map(data.captions_CD[wrong])))
        for wrong in other_images[place]:
            total = total + torch.relu(margin - image @ caption + caption @ unit(image_map(data.images_IV[wrong // 5])))
    return total


def slow_recalls(image_map, caption_map, data, sizes) -> list[float]:
    sums = [0.0] * 6
    for fold in range(sizes.folds):
        span = range(fold * sizes.fold_images, (fold + 1) * sizes.fold_images)
        with torch.no_grad():
            images = nn.functional.normalize(image_map(data.images_IV[list(span)]), dim=1)
            told = data.captions_CD[5 * span.start : 5 * span.stop]
            scores = images @ nn.functional.normalize(caption_map(told), dim=1).T
        for side, ranks in enumerate(slow_ranks(scores.numpy())):
            for place, cutoff in enumerate((1, 5, 10)):
                sums[3 * side + place] += 100 * sum(rank < cutoff for rank in ranks) / len(ranks) / sizes.folds
    return sums


def slow_fit(train, dev, sizes, seed):
    """Train with modules, autograd, and the random calls that a list of the captions outside the batch leads to."""
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    image_map = nn.Linear(train.images_IV.shape[1], sizes.width)
    caption_map = nn.Linear(train.captions_CD.shape[1], sizes.width)
    both = nn.ModuleList([image_map, caption_map]).double()
    optimizer = torch.optim.Adam(both.parameters())
    best, kept, failures, epochs, stop = -1.0, None, 0, 0, False
    while not stop and epochs <= 20:
        order = list(rng.permutation(len(train.captions_CD)))
        for start in range(0, len(order), sizes.batch):
            picked = order[start : start + sizes.batch]
            outside = order[:start] + order[start + sizes.batch :]
            others = [rng.choice(outside, sizes.others * len(picked)).reshape(len(picked), -1) for _ in range(2)]
            optimizer.zero_grad()
            slow_loss(image_map, caption_map, train, picked, *others, sizes.margin).backward()
            optimizer.step()
        epochs += 1
        value = sum(slow_recalls(image_map, caption_map, dev, sizes))
        if value > best + 1e-9:  # a sum of fractions may exceed itself in the last bit
            best, kept = value, copy.deepcopy(both)
        else:
            stop = failures >= 3
            failures += 1
    return kept


# ------------------------------------------------------------------------------------- against it


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_ranks_are_those_of_sorted_lists(images, levels, seed):
    """With few levels, nearly all scores tie."""
    scores = np.random.default_rng(seed).integers(0, 3**levels, (images, 5 * images)).astype(np.float32)
    found = ranks_of(torch.from_numpy(scores))
    of_images, of_captions = slow_ranks(scores)
    assert found.images_I.tolist() == of_images
    assert found.captions_C.tolist() == of_captions


def test_a_collapsed_or_broken_encoder_is_not_perfect():
    for value in (0.3, float("nan")):
        found = ranks_of(torch.full((40, 200), value))
        assert int((found.images_I < 1).sum()) <= 1  # of 40
        assert int((found.captions_C < 1).sum()) <= 5  # of 200


def test_median_rank_counts_from_one_and_averages_folds():
    # medians 1.5 and 4: floored and counted from 1 they are 2 and 5
    assert median_rank(torch.tensor([0, 1, 2, 9, 4, 4, 4, 0]), folds=2) == 3.5


@pytest.mark.rotates
def test_training_equals_a_slow_one_in_float64():
    train, dev, test = vectors(20, 1), vectors(24, 2), vectors(25, 3)
    wanted = slow_fit(train, dev, SMALL, seed=1111)
    maps = fit(train, dev, SMALL, seed=1111)
    for ours, theirs in zip(maps, wanted.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-10)
    found = fold_ranks(maps, test, SMALL)
    assert (len(found.images_I), len(found.captions_C)) == (24, 120), "those of all folds"
    recalls = slow_recalls(*wanted, test, SMALL)
    for side, ranks in enumerate((found.images_I, found.captions_C)):
        for place, cutoff in enumerate((1, 5, 10)):
            assert 100 * float((ranks < cutoff).double().mean()) == pytest.approx(recalls[3 * side + place])


# ------------------------------------------------------------------------------------------ files


def write_split(root, split, images, seed=0, width=6):
    rng = np.random.default_rng(seed)
    folder = root / "COCO"
    folder.mkdir(exist_ok=True)
    names = "tea salt gull drum moss lamp rope fern coal bell".split()
    topics = rng.integers(0, len(names), (images, 2))
    lines = [f"{i}\t{names[a]} {names[b]} {k}" for i, (a, b) in enumerate(topics) for k in range(5)]
    (folder / f"{split}.tsv").write_text("\n".join(["image\tcaption", *lines]) + "\n")
    of_name = np.random.default_rng(7).standard_normal((len(names), width))
    rows = of_name[topics[:, 0]] + of_name[topics[:, 1]] + 0.1 * rng.standard_normal((images, width))
    save_file({"images": torch.from_numpy(rows.astype(np.float32))}, folder / f"{split}.safetensors")


@pytest.fixture
def coco(tmp_path):
    for seed, (split, images) in enumerate({"train": 60, "valid": 24, "test": 26}.items()):
        write_split(tmp_path, split, images, seed)
    return tmp_path


def read(root, sizes=SMALL) -> CaptionRetrieval:
    return read_captions(root, "coco", EvaluateConfig(seed=11), sizes)


def test_scores_of_files(coco, bag_of_words):
    task = read(coco, SMALL._replace(width=32))
    assert task.test.captions[:2] == [
        line.split("\t")[1] + " ." for line in (coco / "COCO/test.tsv").read_text().split("\n")[1:3]
    ]
    pool = embed_pool(bag_of_words, task.texts())
    scores = task.score(pool, ScoringOptions(CPU))
    assert list(scores) == task.score_names()
    with torch.inference_mode():  # as in a callback
        again = task.score(pool, ScoringOptions(CPU, intervals=False))
    assert {name: one.value for name, one in again.items()} == {name: one.value for name, one in scores.items()}
    recalls = [one.value for name, one in scores.items() if name.startswith("coco/default/recall@")]
    assert len(recalls) == 6
    assert scores["coco/default/recall"].value == pytest.approx(np.mean(recalls))
    assert float(scores["coco/default/recall"].values_N.mean()) == pytest.approx(np.mean(recalls))
    chance = np.mean(
        [1 - np.prod([(60 - 5 - j) / (60 - j) for j in range(k)]) for k in (1, 5, 10)] + [1 / 12, 5 / 12, 10 / 12]
    )
    assert scores["coco/default/recall"].value > 120 * chance
    low, high = scores["coco/default/recall"].interval()
    assert low < scores["coco/default/recall"].value < high
    assert scores["coco/default/median-rank-i2t"].interval() is None
    assert scores["coco/default/median-rank-i2t"].value >= 1


def test_order_of_rows_does_not_matter_between_images(coco):
    wanted = read(coco).dev.captions
    path = coco / "COCO/valid.tsv"
    header, *lines = path.read_text().splitlines()
    lines.sort(key=lambda line: -int(line.split("\t")[0]))
    path.write_text("\n".join([header, *lines]) + "\n")
    assert read(coco).dev.captions == wanted


@pytest.mark.parametrize(
    ("change", "location", "key", "value"),
    [
        ({"tensor": torch.zeros(23, 6)}, "valid.safetensors", None, "(23, 6)"),
        ({"table": "image\tcaption\n" + "0\tone\n" * 4}, "valid.tsv, image 0", None, "4 "),
        ({"table": "image\tcaption\n-1\tone\n"}, "valid.tsv:2", "image", "'-1'"),
        ({"table": "image\tcaption\n0\t \n"}, "valid.tsv:2", "caption", "empty"),
    ],
)
def test_damaged_files_are_refused(coco, change, location, key, value):
    if "tensor" in change:
        save_file({"images": change["tensor"]}, coco / "COCO/valid.safetensors")
    if "table" in change:
        (coco / "COCO/valid.tsv").write_text(change["table"])
    with pytest.raises(InputError) as refused:
        read(coco)
    assert refused.value.location == str(coco / "COCO" / location)
    assert (refused.value.key, value in refused.value.value) == (key, True)


def test_missing_truncated_or_short_files_are_refused(coco):
    path = coco / EMBEDDING_FILES[2]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError) as refused:
        read(coco)
    assert refused.value.location == str(path)
    path.unlink()
    with pytest.raises(InputError) as refused:
        read(coco)
    assert refused.value.location == str(path)
    assert os.strerror(errno.ENOENT) in str(refused.value.value)
