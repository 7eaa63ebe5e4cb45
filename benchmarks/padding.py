"""P5: a DeCLUTR step in chunks under a token budget, against padding every sequence to the longest of the batch.

    python -m benchmarks.padding [--quick] [--models tiny minilm] [--clock wall|cpu]

Same weights, same batches (A = P = 2, spans of 32..512 tokens, 16 documents), fp32, no recomputation on either side;
forward, both losses, backward, AdamW. Wanted: 1.4 times the real tokens/s.
"""

import copy
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import materials
from benchmarks.sides import CLOCKS, Line, alternate, arguments, rates, report
from contrastive_encoders.core import IGNORED_LABEL, Ragged, SpanBatch
from contrastive_encoders.encoders.kernels.chunks import Chunk, concatenate, padded
from contrastive_encoders.encoders.kernels.host_layout import places_in_chunks
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.losses.contrastive import nt_xent

Encode = Callable[[SentenceEncoder, Ragged, Tensor], tuple[Tensor, Tensor]]


def in_chunks(encoder: SentenceEncoder, sequences: Ragged, labels: Tensor) -> tuple[Tensor, Tensor]:
    vectors, mlm_sum, _ = encoder.encode_sequences(sequences, labels)
    return vectors, mlm_sum


def to_the_longest(encoder: SentenceEncoder, sequences: Ragged, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """All sequences at once, padded to the longest."""
    whole = [Chunk(np.arange(len(sequences.lengths)), int(sequences.lengths.max()))]
    ((ids, mask),) = padded(sequences.ids, sequences.lengths, whole, encoder.tokenizer.pad_token_id)
    if labels is None:
        return encoder.encode_chunk(ids, mask, None)
    predicted = np.flatnonzero(labels != IGNORED_LABEL)
    (places,) = places_in_chunks(predicted, sequences.lengths, whole, labels.device)
    return encoder.encode_chunk(ids, mask, (places, labels[places.flat_M]))


class Side:
    """One way to encode, with a copy of the weights and an optimiser of its own; calling it is a round."""

    def __init__(
        self, encoder: SentenceEncoder, encode: Encode, batches: Sequence[SpanBatch], clock: Callable[[], float]
    ) -> None:
        self.encoder, self.encode, self.batches, self.clock = copy.deepcopy(encoder), encode, batches, clock
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=5e-5)
        self.losses: list[float] = []

    def __call__(self) -> float:
        start = self.clock()
        for batch in self.batches:
            self.step(batch)
        return self.clock() - start

    def step(self, batch: SpanBatch) -> None:
        sequences = concatenate([batch.anchors._replace(ids=batch.masked_ids), batch.positives])
        labels = torch.cat([batch.labels, torch.full_like(batch.positives.ids, IGNORED_LABEL)])
        vectors, mlm_sum = self.encode(self.encoder, sequences, labels)
        number = len(batch.anchors.lengths)
        positives = vectors[number:].unflatten(0, (number, -1)).mean(1)
        contrast = nt_xent(vectors[:number], positives, temperature=0.05).loss
        loss = contrast + mlm_sum / (labels != IGNORED_LABEL).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def compare(backbone: Path, batches: Sequence[SpanBatch], rounds: int, clock: Callable[[], float]) -> Line:
    encoder = SentenceEncoder(
        load_masked_lm(str(backbone), lm_head=True), load_tokenizer(str(backbone)), recompute="off"
    )
    sides = {
        "ours": Side(encoder, in_chunks, batches, clock),
        "padded": Side(encoder, to_the_longest, batches, clock),
    }
    seconds = alternate(sides, rounds)
    ours, theirs = (torch.tensor(side.losses) for side in sides.values())
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=0)  # the same training, or the race means nothing
    tokens = sum(int(part.lengths.sum()) for batch in batches for part in (batch.anchors, batch.positives))
    case = f"{backbone.name} fp32, {tokens / len(batches):.0f} tokens a step"
    return rates("P5", case, "real tokens/s", tokens, list(seconds.values()), ">= 1.4x")


def main() -> None:
    parser = arguments(__doc__, rounds=3, clock=True)
    parser.add_argument("--models", nargs="+", choices=list(materials.BACKBONES), default=["tiny", "minilm"])
    options = parser.parse_args()
    models, rounds, number, documents = options.models, options.rounds, 2, 16
    if options.quick:
        models, rounds, number, documents = ["tiny"], 1, 1, 2
    materials.hush()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in models:
            backbone = materials.BACKBONES[name](Path(scratch) / name)
            data = materials.span_data(Path(scratch), backbone, documents, 32, 512)
            batches = [batch for batch, _ in zip(data.train_dataloader(), range(number), strict=False)]
            lines.append(compare(backbone, batches, rounds, CLOCKS[options.clock]))
    report(f"DeCLUTR step: chunks against one padded batch, {options.clock} time", lines, options.output)


if __name__ == "__main__":
    main()
