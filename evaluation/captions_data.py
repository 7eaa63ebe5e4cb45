"""Image vectors and captions of COCO under ``data_root``.

``COCO/{train,valid,test}.safetensors`` hold ``images``, (images, width) float32; SentEval's are of a ResNet-101, 2,048
wide. Beside each lies a table ``.tsv`` (or ``.tsv.gz``) with the columns ``image``, the row of its vector counted from
0, and ``caption``, as SentEval cleaned it; every image has five rows. The task adds the full stop that SentEval adds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from contracts import InputError
from evaluation.captions import CAPTIONS, SENTEVAL_SIZES, Captioned, CaptionRetrieval, Sizes
from evaluation.task import Entry, Options, Task
from evaluation.tsv import read_rows, read_text, table

IMAGES = {"train": 113_287, "valid": 5_000, "test": 5_000}  # Karpathy's split
FILES = tuple(f"COCO/{split}.safetensors" for split in IMAGES)  # needed beside the tables
_ROWS_AT_A_TIME = 4096


def read_captions(root: Path, name: str, options: Options, sizes: Sizes = SENTEVAL_SIZES) -> Task:
    """Checks all files; the vectors of the images are read when they are scored."""
    train, dev, test = (_read_split(root, split) for split in IMAGES)
    widths = [_check_vectors(one) for one in (train, dev, test)]
    if len(set(widths)) > 1:
        raise InputError(
            f"{train.vectors.parent}: images are {widths[0]}, {widths[1]} and {widths[2]} wide in train, valid and "
            "test; wanted vectors of one network. Make the files anew."
        )
    wanted = sizes.folds * sizes.fold_images
    for one in (dev, test):
        if len(one.captions) < CAPTIONS * wanted:
            raise InputError(
                f"{one.vectors}: {len(one.captions) // CAPTIONS} images; wanted {wanted}, for {sizes.folds} folds of "
                f"{sizes.fold_images}. Copy the whole split."
            )
    if len(train.captions) <= sizes.batch:
        raise InputError(f"{train.vectors}: wanted more than {sizes.batch} captions to train on. Copy the whole split.")
    return CaptionRetrieval(name, train, dev, test, options.seed, sizes)


def _read_split(root: Path, split: str) -> Captioned:
    path = table(root, f"COCO/{split}")
    of_image: dict[int, list[str]] = {}
    for where, (image, caption) in read_rows(path, ["image", "caption"]):
        if not (image.isascii() and image.isdigit()):
            raise InputError(f"{where}: image is {image!r}; wanted the row of its vector, counted from 0. Correct it.")
        of_image.setdefault(int(image), []).append(read_text(where, "caption", caption) + " .")
    _check_counts(path, of_image)
    captions = [caption for image in sorted(of_image) for caption in of_image[image]]
    return Captioned(f"coco {split}", root / f"COCO/{split}.safetensors", captions)


def _check_counts(path: Path, of_image: Mapping[int, Sequence[str]]) -> None:
    if not of_image:
        raise InputError(f"{path}: a header but no rows; wanted captions. Copy it again.")
    for image in range(max(of_image) + 1):
        if len(of_image.get(image, ())) != CAPTIONS:
            raise InputError(
                f"{path}: image {image} has {len(of_image.get(image, ()))} captions; wanted {CAPTIONS} of each image, "
                "the first five where there are more. Correct the table."
            )


def _check_vectors(one: Captioned) -> int:
    """The width of the vectors."""
    images = len(one.captions) // CAPTIONS
    wanted = f"wanted 'images' of shape ({images}, width), float32, finite"
    if not one.vectors.is_file():
        raise InputError(f"{one.vectors} is not there; {wanted}. Put it beside the table.")
    try:
        with safe_open(one.vectors, framework="pt") as stored:
            if "images" not in stored.keys():  # noqa: SIM118  # not a mapping
                raise InputError(f"{one.vectors}: holds {', '.join(stored.keys()) or 'nothing'}; {wanted}. Rename it.")
            rows = stored.get_slice("images")
            shape, kind = rows.get_shape(), rows.get_dtype()
            if kind != "F32" or len(shape) != 2 or shape[0] != images or shape[1] == 0:
                raise InputError(f"{one.vectors}: 'images' is {kind} of shape {tuple(shape)}; {wanted}. Write it anew.")
            for start in range(0, images, _ROWS_AT_A_TIME):
                finite_N = rows[start : start + _ROWS_AT_A_TIME].isfinite().all(1)
                if not finite_N.all():
                    lost = start + int(finite_N.int().argmin())
                    raise InputError(
                        f"{one.vectors}: image {lost} has a value that is not finite; {wanted}. Write it anew."
                    )
    except SafetensorError as error:
        raise InputError(
            f"{one.vectors}: no safetensors file, or cut short ({error}); {wanted}. Copy it again."
        ) from None
    return shape[1]


ENTRIES: dict[str, Entry] = {
    "coco": Entry({f"COCO/{split}": CAPTIONS * count for split, count in IMAGES.items()}, read_captions, beside=FILES)
}
