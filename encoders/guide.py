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
from encoders.chunks import concatenate
from encoders.load import load_encoder
from encoders.sentence_encoder import SentenceEncoder


class GuideEncoder:
    """``guide(sequences)`` are its vectors of the texts that these token ids of ``tokenizer`` spell."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        try:
            self.encoder = load_encoder(name, device="cpu")
        except InputError as error:
            raise InputError(f"model.guide: {error}") from error
        if isinstance(self.encoder, SentenceEncoder):
            self.encoder.progress = False  # a bar for each batch
        self.tokenizer = tokenizer

    def __call__(self, sequences: Ragged) -> Tensor:
        """N sequences, special tokens included -> (N, G) float32, without a gradient."""
        device = sequences.ids.device
        self._move(device)
        rows = np.split(sequences.ids.cpu().numpy(), np.cumsum(sequences.lengths)[:-1])
        texts = [text.strip() for text in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]
        with torch.autocast(device.type, enabled=False):
            return self.encoder.embed(texts).to(device)

    def views(self, several: Sequence[Ragged]) -> list[Tensor]:
        """The same of several lists of sequences."""
        return list(self(concatenate(list(several))).split([len(one.lengths) for one in several]))

    def _move(self, device: torch.device) -> None:
        """To where the batch is: that is known when the first one comes."""
        model = self.encoder if isinstance(self.encoder, nn.Module) else getattr(self.encoder, "model", None)
        if model is not None:
            model.to(device)
