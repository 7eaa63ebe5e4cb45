"""Read COCO captions and ResNet-101 embeddings from SentEval's pickles, with a restricted unpickler.

A pickle names functions to call. Only the functions by which NumPy rebuilds an array of numbers are allowed. Any other
name is refused before it is looked up.
"""

import io
import pickle
from functools import partial
from typing import Any

import numpy as np

from contrastive_encoders.evaluation.download.dataset_specs import DatasetSpec, DownloadLocation, Maker, Rows, TableSpec
from contrastive_encoders.evaluation.tasks.captions import CAPTIONS, IMAGES
from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.download import File

_BASE = "https://dl.fbaipublicfiles.com/senteval/coco_r101_feat"
_ALLOWED = {
    (module, name)
    for package in ("numpy.core", "numpy._core")
    for module, name in ((f"{package}.multiarray", "_reconstruct"), (f"{package}.multiarray", "scalar"))
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"), ("collections", "OrderedDict")}


class Arrays(pickle.Unpickler):
    """Unpickler that only accepts dictionaries, lists, strings, numbers, and arrays of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise InvalidArchiveError(f"the pickle refers to {module}.{name}, but only arrays of numbers are accepted")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _load(split: str, members: Members) -> dict[str, Any]:
    name = f"{split}.pkl"
    try:
        data = Arrays(io.BytesIO(members.read(name)), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError, ImportError) as error:
        raise InvalidArchiveError(f"{name}: expected a pickle of arrays, got: {error}") from None
    expected = {"features", "captions", "image_to_caption_ids"}
    if not isinstance(data, dict) or expected - set(data):
        raise InvalidArchiveError(f"{name}: expected a dictionary with the keys {', '.join(sorted(expected))}")
    return data


def _captions(split: str, members: Members) -> Rows:
    data = _load(split, members)
    for image in range(len(data["features"])):
        keys = data["image_to_caption_ids"][image][:CAPTIONS]  # some images have more
        if len(keys) != CAPTIONS:
            raise InvalidArchiveError(f"{split}.pkl: image {image} has {len(keys)} captions, expected {CAPTIONS}")
        for key in keys:
            yield str(image), data["captions"][key]["cleaned_caption"]


def _vectors(split: str, members: Members) -> np.ndarray:
    """Return the image embeddings, (images, width) float32."""
    features = _load(split, members)["features"]
    rows = [np.asarray(features[image], dtype=np.float32).reshape(-1) for image in range(len(features))]
    return np.stack(rows)


def _origin() -> DatasetSpec:
    tables, places = [], []
    for split, images in IMAGES.items():
        texts = TableSpec(f"COCO/{split}", ("image", "caption"), CAPTIONS * images, packed=split == "train")
        vectors = TableSpec(f"COCO/{split}", ("images",), images, format="safetensors")
        tables += [texts, vectors]
        made: dict[str, Maker] = {texts.key: partial(_captions, split), vectors.key: partial(_vectors, split)}
        file = File(f"COCO/{split}.pkl", f"{_BASE}/{split}.pkl")
        places.append(DownloadLocation("SentEval (dl.fbaipublicfiles.com)", (file,), made))
    return DatasetSpec("COCO", "captions CC BY 4.0 (COCO); images: Flickr's terms", tuple(tables), tuple(places))


ORIGINS = (_origin(),)
