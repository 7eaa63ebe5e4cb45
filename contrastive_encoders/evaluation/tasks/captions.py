"""SentEval's retrieval of COCO images by captions and of captions by images, with two learned linear maps.

The task is that of Conneau and Kiela 2018, after Kiros et al. 2014. Maps to 1,000 dimensions are trained so that the
cosine of an image and its caption exceeds their cosines with random others by a margin. Then, among 1,000 images, each
image is a query for its five captions, and each caption for its image. With SentEval's seed, the initial weights, the
batches, and the random others are identical to SentEval's.

``COCO/{train,valid,test}.safetensors`` contain ``images``, (images, width) float32. SentEval's are the features of a
ResNet-101, with width 2,048. Next to each file is a table ``.tsv`` (or ``.tsv.gz``) with the columns ``image``, the
0-based row of the image in ``images``, and ``caption``, as SentEval cleaned it. Every image has five rows. The task
adds the full stop that SentEval adds.

Ties are broken as by SentEval's reversed sort if that is stable: of equal scores, the later candidate comes first.

The full set takes about 4e15 operations: minutes on a GPU, half a day on a CPU.

Shape letters: I images, C = 5 I captions in the order of their images, V and D the widths of their embeddings, P the
width of both maps, B captions of a batch, K random others of each caption.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.functional import linear, normalize

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, finite_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table, table
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.evaluation.tasks.probe_optimizers import initial_layer
from contrastive_encoders.statistics.bootstrap import Estimate, average, mean_of_queries

log = logging.getLogger(__name__)

CAPTIONS = 5  # captions of an image
CUTOFFS = (1, 5, 10)
MAX_FAILURES = 4  # total number of epochs, not necessarily consecutive, without improvement of the best score
MAX_EPOCHS = 21


class CaptionedImages(NamedTuple):
    """Images, given by a file of their embeddings, and the captions of the images."""

    name: str
    vectors: Path  # a safetensors file with ``images`` (I, V) float32
    captions: list[str]  # C captions


class Sizes(NamedTuple):
    """Sizes and other hyperparameters of caption retrieval; the defaults are SentEval's constants. Tests use smaller
    values.
    """

    width: int = 1000
    margin: float = 0.2
    batch: int = 128  # number of captions
    others: int = 30
    folds: int = 5
    fold_images: int = 1000


SENTEVAL_SIZES = Sizes()


@dataclass
class CaptionRetrieval:
    """Caption retrieval task, whose linear maps are trained on one set, with early stopping on a second, and scored on
    a third.
    """

    name: str
    train: CaptionedImages
    dev: CaptionedImages
    test: CaptionedImages
    seed: int = 1111
    sizes: Sizes = SENTEVAL_SIZES

    def texts(self) -> Iterator[Sequence[str]]:
        for one in (self.train, self.dev, self.test):
            yield one.captions

    def score_names(self) -> list[str]:
        metrics = [f"recall@{cutoff}" for cutoff in CUTOFFS] + ["median-rank"]
        both = [f"{self.name}/default/{metric}-{way}" for way in ("i2t", "t2i") for metric in metrics]
        return [f"{self.name}/default/recall", *both, f"{self.name}-dev/default/recall"]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        """Return the recalls in percent, their mean ``recall``, and the ``median-rank``.

        ``median-rank`` counts from 1 and has no interval.
        """
        # A callback scores in inference mode, in which tensors cannot be trained
        with torch.inference_mode(False), torch.enable_grad():
            train, dev, test = (self._load(one, pool, options.device) for one in (self.train, self.dev, self.test))
            maps = fit(train, dev, self.sizes, self.seed)
        ranks_on_test = fold_ranks(maps, test, self.sizes)
        test_recalls = _recalls(ranks_on_test, self.name if options.intervals else None)
        scores = {f"{self.name}/default/{metric}": one for metric, one in test_recalls.items()}
        for way, ranks in (("i2t", ranks_on_test.images_I), ("t2i", ranks_on_test.captions_C)):
            scores[f"{self.name}/default/median-rank-{way}"] = Estimate(median_rank(ranks, self.sizes.folds))
        dev_name = f"{self.name}-dev"
        dev_recalls = _recalls(fold_ranks(maps, dev, self.sizes), dev_name if options.intervals else None)
        scores[f"{dev_name}/default/recall"] = dev_recalls["recall"]
        return {name: scores[name] for name in self.score_names()}

    def _load(self, one: CaptionedImages, pool: EmbeddingPool, device: torch.device) -> "CaptionEmbeddings":
        captions_CD = finite_rows(
            pool.lookup(one.captions), one.name, "captions have an embedding with NaN or infinity"
        )
        with safe_open(one.vectors, framework="pt") as stored:
            images_IV = stored.get_tensor("images")
        return CaptionEmbeddings(images_IV.to(device), captions_CD.to(device))


class CaptionEmbeddings(NamedTuple):
    images_IV: Tensor
    captions_CD: Tensor


class Maps(NamedTuple):
    """Weights and biases of the linear maps of images and captions."""

    image_PV: Tensor
    image_P: Tensor
    caption_PD: Tensor
    caption_P: Tensor

    def map_images(self, rows_NV: Tensor) -> Tensor:
        return normalize(linear(rows_NV, self.image_PV, self.image_P), dim=-1)

    def map_captions(self, rows_ND: Tensor) -> Tensor:
        return normalize(linear(rows_ND, self.caption_PD, self.caption_P), dim=-1)


class CaptionRanks(NamedTuple):
    """Ranks of the correct candidates: the number of candidates in the same fold that are ranked before the correct
    one.
    """

    images_I: Tensor  # rank of the best of an image's captions
    captions_C: Tensor


def fit(train: CaptionEmbeddings, dev: CaptionEmbeddings, sizes: Sizes, seed: int) -> Maps:
    """Train the two linear maps, and return the maps of the epoch with the highest sum of six recalls on ``dev``.

    The training stops after the fourth epoch, consecutive or not, that has not exceeded the best sum.
    """
    maps = initial_maps(train.images_IV.shape[1], train.captions_CD.shape[1], sizes.width, seed)
    maps = Maps(*(one.to(train.images_IV).requires_grad_() for one in maps))
    optimizer = torch.optim.Adam(list(maps))
    draws = np.random.RandomState(seed)  # random numbers of numpy.random.seed, as in SentEval
    best, highest, failures, epoch = maps, -1, 0, 0
    while failures < MAX_FAILURES and epoch < MAX_EPOCHS:
        for picked_B, other_images_BK, other_captions_BK in epoch_of_indices(len(train.captions_CD), sizes, draws):
            loss = hinge(maps, train, (picked_B, other_images_BK, other_captions_BK), sizes.margin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        epoch += 1
        hits = _hits(fold_ranks(maps, dev, sizes))
        log.info("epoch %d: mean of six recalls on dev %.2f", epoch, 100 * hits / (6 * len(dev.captions_CD)))
        if hits > highest:
            best, highest = Maps(*(one.detach().clone() for one in maps)), hits
        else:
            failures += 1
    return best


def initial_maps(image_width: int, caption_width: int, width: int, seed: int) -> Maps:
    """Initialize the maps of images and captions with the values of two ``torch.nn.Linear`` that are created in this
    order after ``torch.manual_seed(seed)``.
    """
    generator = torch.Generator().manual_seed(seed)
    image, caption = (initial_layer(incoming, width, generator) for incoming in (image_width, caption_width))
    return Maps(*(part.contiguous() for one in (image, caption) for part in (one[:, :-1], one[:, -1])))


def epoch_of_indices(captions: int, sizes: Sizes, draws: np.random.RandomState) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of caption indices (B,), with the indices of K negative images (B, K) and K negative captions (B,
    K) for each.

    Negatives are drawn from outside the batch. They may include another caption of the same image.
    """
    order_C = draws.permutation(captions)
    for start in range(0, captions, sizes.batch):
        picked_B = order_C[start : start + sizes.batch]
        others = []
        for _ in range(2):
            place = draws.choice(captions - len(picked_B), sizes.others * len(picked_B))
            others.append(order_C[np.where(place < start, place, place + len(picked_B))].reshape(-1, sizes.others))
        yield tuple(torch.from_numpy(one) for one in (picked_B, *others))


def hinge(maps: Maps, data: CaptionEmbeddings, indices: tuple[Tensor, ...], margin: float) -> Tensor:
    """Return the hinge loss, summed over the captions c, their images i, and the negative captions c' and images i'.

    Each term is max(0, margin - s(i, c) + s(i, c')) + max(0, margin - s(i, c) + s(i', c)), where s(i, c) is the cosine
    of image i and caption c.
    """
    picked_B, other_images_BK, other_captions_BK = (one.to(data.images_IV.device) for one in indices)
    shape = (*other_images_BK.shape, -1)
    image_rows = torch.cat([picked_B, other_images_BK.flatten()]) // CAPTIONS
    caption_rows = torch.cat([picked_B, other_captions_BK.flatten()])
    images = maps.map_images(data.images_IV[image_rows])
    captions = maps.map_captions(data.captions_CD[caption_rows])
    image_BP, caption_BP = images[: len(picked_B)], captions[: len(picked_B)]
    correct_B1 = (image_BP * caption_BP).sum(1, keepdim=True)
    wrong_captions_BK = torch.einsum("bp,bkp->bk", image_BP, captions[len(picked_B) :].view(shape))
    wrong_images_BK = torch.einsum("bp,bkp->bk", caption_BP, images[len(picked_B) :].view(shape))
    costs = [(margin - correct_B1 + wrong_BK).clamp(min=0).sum() for wrong_BK in (wrong_captions_BK, wrong_images_BK)]
    return costs[0] + costs[1]


@torch.no_grad()
def fold_ranks(maps: Maps, data: CaptionEmbeddings, sizes: Sizes) -> CaptionRanks:
    """Return the ranks of the correct candidates within each fold of ``fold_images`` images. Images after the last full
    fold are ignored.
    """
    image_ranks, caption_ranks = [], []
    for fold in range(sizes.folds):
        first, last = fold * sizes.fold_images, (fold + 1) * sizes.fold_images
        images_IP = maps.map_images(data.images_IV[first:last])
        captions_CP = maps.map_captions(data.captions_CD[CAPTIONS * first : CAPTIONS * last])
        ranks = ranks_of(images_IP @ captions_CP.T)
        image_ranks.append(ranks.images_I)
        caption_ranks.append(ranks.captions_C)
    return CaptionRanks(torch.cat(image_ranks).cpu(), torch.cat(caption_ranks).cpu())


def ranks_of(score_IC: Tensor) -> CaptionRanks:
    """Rank images for captions and captions for images, given the scores between I images and 5 I captions. NaN comes
    last.
    """
    score_IC = score_IC.nan_to_num(nan=-math.inf)
    image_C = torch.arange(score_IC.shape[1], device=score_IC.device) // CAPTIONS
    own_I5 = torch.arange(score_IC.shape[1], device=score_IC.device).view(-1, CAPTIONS)
    each_5I = [_count_before(score_IC, own_I5[:, caption]) for caption in range(CAPTIONS)]
    return CaptionRanks(torch.stack(each_5I).amin(0), _count_before(score_IC.T, image_C))


def _count_before(score_QN: Tensor, correct_Q: Tensor) -> Tensor:
    """Return, for each of Q queries, the number of its N candidates that are ranked before the correct one, (Q,)."""
    place_N, correct_Q1 = torch.arange(score_QN.shape[1], device=score_QN.device), correct_Q[:, None]
    correct_score_Q1 = score_QN.gather(1, correct_Q1)
    return ((score_QN > correct_score_Q1) | ((score_QN == correct_score_Q1) & (place_N > correct_Q1))).sum(1)


def median_rank(ranks_N: Tensor, folds: int) -> float:
    """Return the mean over the folds of the median rank, counted from 1."""
    return float(np.mean(np.floor(np.median(ranks_N.numpy().reshape(folds, -1), axis=1)) + 1))


def _hits(ranks: CaptionRanks) -> int:
    """Return the sum of the six recalls times the number of captions, which is an exact integer."""
    return sum(
        CAPTIONS * int((ranks.images_I < cutoff).sum()) + int((ranks.captions_C < cutoff).sum()) for cutoff in CUTOFFS
    )


def _recalls(ranks: CaptionRanks, key: str | None) -> dict[str, Estimate]:
    """Return each recall with its bootstrap interval. An image is resampled together with its captions."""
    recalls = {}
    for cutoff in CUTOFFS:
        recalls[f"recall@{cutoff}-i2t"] = mean_of_queries((ranks.images_I < cutoff).double(), key)
        hits_IC = (ranks.captions_C < cutoff).double().view(-1, CAPTIONS)
        recalls[f"recall@{cutoff}-t2i"] = mean_of_queries(hits_IC.mean(1), key)
    # All use the same resamples and images, so their average can be computed for each resample
    values = [one.values_N for one in recalls.values() if one.values_N is not None]
    values_I = torch.stack(values).mean(0) if values else None
    recalls["recall"] = average(list(recalls.values()))._replace(values_N=values_I)
    return recalls


IMAGES = {"train": 113_287, "valid": 5_000, "test": 5_000}  # Karpathy's split
EMBEDDING_FILES = tuple(f"COCO/{split}.safetensors" for split in IMAGES)  # needed in addition to the tables


def read_captions(root: Path, name: str, config: EvaluateConfig, sizes: Sizes = SENTEVAL_SIZES) -> CaptionRetrieval:
    """Read the captions, and check all files. The image embeddings are read when they are scored."""
    train, dev, test = (_read_split(root, split) for split in IMAGES)
    for one in (train, dev, test):
        _check_vectors(one)
    min_images = sizes.folds * sizes.fold_images
    for one in (dev, test):
        if len(one.captions) < CAPTIONS * min_images:
            raise InputError(
                location=str(one.vectors),
                value=f"{len(one.captions) // CAPTIONS} images",
                expected=f"at least {min_images} images, for {sizes.folds} folds of {sizes.fold_images} images",
                hint="Copy the complete split.",
            )
    return CaptionRetrieval(name, train, dev, test, config.seed, sizes)


def _read_split(root: Path, split: str) -> CaptionedImages:
    path = table(root, f"COCO/{split}")
    captions_of: dict[int, list[str]] = {}
    for row in read_table(path, ["image", "caption"]):
        image = row.values["image"]
        if not (image.isascii() and image.isdigit()):
            expected = "the row number of the image's embedding, counted from 0"
            raise InputError(location=row.where, key="image", value=repr(image), expected=expected)
        captions_of.setdefault(int(image), []).append(row.text("caption") + " .")
    for number in range(max(captions_of, default=-1) + 1):
        if (count := len(captions_of.get(number, []))) != CAPTIONS:
            raise InputError(
                location=f"{path}, image {number}",
                value=f"{count} captions",
                expected=f"exactly {CAPTIONS} captions",
                hint=f"If the image has more captions, keep only the first {CAPTIONS}.",
            )
    captions = [caption for number in sorted(captions_of) for caption in captions_of[number]]
    return CaptionedImages(f"coco {split}", root / f"COCO/{split}.safetensors", captions)


def _check_vectors(one: CaptionedImages) -> None:
    """Raise InputError if the file does not contain an embedding of each image."""
    expected = f"'images' of shape ({len(one.captions) // CAPTIONS}, width), float32"
    try:
        with safe_open(one.vectors, framework="pt") as stored:
            rows = stored.get_slice("images")
            shape, kind = rows.get_shape(), rows.get_dtype()
    except (SafetensorError, OSError) as error:
        raise InputError(
            location=str(one.vectors),
            value=error,
            expected=f"a safetensors file with {expected}",
            hint="Copy the file again.",
        ) from None
    if kind != "F32" or len(shape) != 2 or shape[0] != len(one.captions) // CAPTIONS:
        raise InputError(location=str(one.vectors), value=f"{kind} of shape {tuple(shape)}", expected=expected)


ENTRIES: dict[str, TaskEntry] = {
    "coco": TaskEntry(
        {f"COCO/{split}": CAPTIONS * count for split, count in IMAGES.items()},
        read_captions,
        extra_files=EMBEDDING_FILES,
    )
}
