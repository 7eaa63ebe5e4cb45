"""The guide: a frozen encoder that finds false negatives in a batch.

It is not part of the model: it is not trained, saved in checkpoints, or exported. Its embeddings are not cached between
batches: they differ in the seventh digit depending on the other texts of a batch, and a resumed run, which would start
with an empty cache, could exclude other candidates than an uninterrupted run. Equal texts of a batch are encoded once.

Shape letters: N texts, G width of the guide's embeddings.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contrastive_encoders.core import Ragged, Role
from contrastive_encoders.encoders.loading.load import load_encoder_of
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.io.model_names import prompt_ids


class GuideEncoder:
    """Callable that maps texts, as token ids of the trained model's tokenizer, to the guide's embeddings."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self.encoder = load_encoder_of("model.guide", name, "cpu")
        self.tokenizer = tokenizer
        for model in self.modules:
            model.requires_grad_(False)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The model of the guide as a tuple, which is empty if the guide has no weights (word vectors)."""
        model = self.encoder if isinstance(self.encoder, nn.Module) else getattr(self.encoder, "model", None)
        return () if model is None else (model,)

    def __call__(
        self, several: Sequence[Ragged], roles: Sequence[Role | None], prompts: Sequence[Collection[str]]
    ) -> list[Tensor]:
        """Return the embeddings of the N sequences of each view, (N, G) float32, where G is the guide's width, without
        gradients.

        There is no synchronization with the device if the ids are kept on the host and the guide is a
        `SentenceEncoder`.

        Args:
            several: Token sequences of each view, including special tokens.
            roles: Role of each view, which selects the prompt of the guide.
            prompts: Prompts in the sequences of each view, which are removed.
        """
        device = several[0].ids.device
        for model in self.modules:
            model.to(device)  # the device is known only when the first batch arrives
        texts = [self._decode(one, some) for one, some in zip(several, prompts, strict=True)]
        own = [self.encoder.prompts.for_role(role) for role in roles]
        found = dict[int, Tensor]()
        with torch.autocast(device.type, enabled=False):
            for prompt in dict.fromkeys(own):
                places = [place for place, other in enumerate(own) if other == prompt]
                vectors = self._embed([text for place in places for text in texts[place]], prompt, device)
                found |= zip(places, vectors.split([len(texts[place]) for place in places]), strict=True)
        return [found[place] for place in range(len(several))]

    def _decode(self, sequences: Ragged, prompts: Collection[str]) -> list[str]:
        """Decode token sequences to texts, without special tokens and without prompts."""
        ids = sequences.ids.cpu().numpy() if sequences.kept is None else sequences.kept
        rows = np.split(ids, np.cumsum(sequences.lengths)[:-1])
        before = [prompt_ids(self.tokenizer, prompt) for prompt in prompts]
        texts, decoded = (
            [text.strip() for text in self.tokenizer.batch_decode(some, skip_special_tokens=True)]
            for some in (rows, before)
        )
        longest_first = sorted(decoded, key=len, reverse=True)
        found = (next(prompt for prompt in [*longest_first, ""] if text.startswith(prompt)) for text in texts)
        return [text.removeprefix(prompt).strip() for text, prompt in zip(texts, found, strict=True)]

    def _embed(self, texts: list[str], prompt: str, device: torch.device) -> Tensor:
        if isinstance(self.encoder, SentenceEncoder):
            return self.encoder.embed_on_device(texts, prompt=prompt)
        return self.encoder.embed(texts, prompt=prompt, progress=False).to(device)


def keep_on_host(part: Any) -> Any:
    return part._replace(kept=part.ids.numpy()) if isinstance(part, Ragged) else part
