"""A guide: another encoder, frozen, whose vectors tell which texts of a batch are no negatives of each other.

It is no part of the model: neither trained, nor in checkpoints, nor exported. Its vectors are not kept between batches:
they move in the seventh digit with the texts that they are computed beside, and a run that was continued, without what
was kept before, would leave out other candidates than one that was not. Equal texts of a batch are encoded once.

Shape letters: N texts, G width of the guide's vectors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contracts import InputError, Ragged
from encoders.load import load_encoder
from encoders.sentence_encoder import SentenceEncoder


class GuideEncoder:
    """``guide(several)`` are its vectors of the texts that these token ids of ``tokenizer`` spell."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        try:
            self.encoder = load_encoder(name, device="cpu")
        except InputError as error:
            raise InputError(f"model.guide: {error}") from error
        self.tokenizer = tokenizer
        for model in self.modules:
            model.requires_grad_(False)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """What has weights of it."""
        model = self.encoder if isinstance(self.encoder, nn.Module) else getattr(self.encoder, "model", None)
        return () if model is None else (model,)

    def __call__(self, several: Sequence[Ragged]) -> list[Tensor]:
        """Lists of sequences, special tokens included -> (N, G) float32 of each, without a gradient.

        Where the host has kept the ids, and the guide is an encoder of ours, the device is not waited for.
        """
        device = several[0].ids.device
        for model in self.modules:
            model.to(device)  # where the batch is: that is known when the first one comes
        ids = [one.ids.cpu().numpy() if one.kept is None else one.kept for one in several]
        lengths = np.concatenate([one.lengths for one in several])
        rows = np.split(np.concatenate(ids), np.cumsum(lengths)[:-1])
        texts = [text.strip() for text in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]
        with torch.autocast(device.type, enabled=False):
            if isinstance(self.encoder, SentenceEncoder):
                vectors = self.encoder.embed_there(texts)
            else:
                vectors = self.encoder.embed(texts, progress=False).to(device)
        return list(vectors.split([len(one.lengths) for one in several]))


def kept_on_host(part: Any) -> Any:
    return part._replace(kept=part.ids.numpy()) if isinstance(part, Ragged) else part
