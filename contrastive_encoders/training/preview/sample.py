"""Sample batches of a run without its weights: the tokenizer of ``backbone=tiny``, the batches, and facts about the
data.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra.utils import get_class, get_object
from transformers.utils import logging as transformers_logging

from contrastive_encoders.core import Seq2SeqBatch, SpanBatch
from contrastive_encoders.core.config_schema import as_mapping
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.encoders.kernels.chunks import chunk_cost, plan_chunks
from contrastive_encoders.encoders.loading.tiny import TINY_BACKBONES
from contrastive_encoders.training.build import make_data
from contrastive_encoders.training.data_summary import account_of
from contrastive_encoders.training.max_length import lengths_of_models, settle_without_weights
from contrastive_encoders.training.prepare import fit_to_rows, rows_of
from contrastive_encoders.training.preview.span_positions import ROLES, SpanLayout
from contrastive_encoders.training.preview.summary import Preview, summaries
from contrastive_encoders.training.resolve import ResolvedRun


class Sample(NamedTuple):
    """Sample of a run's training data.

    Attributes:
        summaries: summaries of the batches.
        documents: positions of the spans in the documents of the first batch; empty if the batch contains no spans.
        facts: names and values of facts about the data.
    """

    summaries: list[Preview]
    documents: list[SpanLayout]
    facts: list[tuple[str, str]]


def write_tokenizer(run: ResolvedRun, folder: Path) -> str:
    """Write the same model folder, including the tokenizer, as a training run with ``backbone=tiny``; return the path
    of the folder.
    """
    transformers_logging.disable_progress_bar()
    model: Any = get_class(run.model.target) if run.model is not None else None
    texts_to_write = any(get_object(one.target).yields is Seq2SeqBatch for one in run.datasets.values())
    family = model.tiny_backbone if model else "t5" if texts_to_write else "masked_lm"
    texts = make_data(run).texts()
    TINY_BACKBONES[family](folder, texts, seed=run.seed, **as_mapping(run.tiny))
    return str(folder)


def read_sample(run: ResolvedRun, num_batches: int, num_examples: int) -> Sample:
    """Read ``num_batches`` batches of training data, and summarize them with ``num_examples`` examples."""
    data = make_data(run)
    data.prepare_data()
    if run.few_rows_epochs:
        run = fit_to_rows(run, rows_of(data))
        data = make_data(run)
        data.prepare_data()
    settle_without_weights(run, data)
    data.setup()
    batches = list(islice(iter(data.train_dataloader()), num_batches))
    cost = chunk_cost(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    budget = run.token_budget or sys.maxsize  # a batch may also be split to save memory

    def chunked(lengths: np.ndarray) -> int:
        return sum(chunk.total_tokens for chunk in plan_chunks(lengths, budget, cost))

    documents = list[SpanLayout]()
    if isinstance(batches[0], SpanBatch) and hasattr(data, "span_builder"):
        documents = [_spans_of(data, row) for row in batches[0].rows.tolist()]
    found = summaries(batches, load_tokenizer(str(run.backbone)), num_examples, chunked)
    return Sample(found, documents, [*account_of(data.manifest(), data.yields), *_length_facts(run)])


def _length_facts(run: ResolvedRun) -> list[tuple[str, str]]:
    """Return a line that lists the default maximum lengths of training texts by model. The actual length depends on the
    model, which a preview need not have.
    """
    models: dict[int, list[str]] = {}
    for name, length in sorted(lengths_of_models(run).items()):
        models.setdefault(length, []).append(name)
    lengths = [f"{length} with model={' or '.join(names)}" for length, names in sorted(models.items())]
    return [("length", f"default maximum in training: {', '.join(lengths)}")] if lengths else []


def _spans_of(data: Any, row: int) -> SpanLayout:
    """Return the positions of the spans that are sampled from a document in the first epoch."""
    tokens, spans = data.span_builder.places(0, row)
    places = (spans.anchor_starts, spans.anchor_lengths), (spans.positive_starts, spans.positive_lengths)
    found = [
        (role, int(start), int(length))
        for role, starts_and_lengths in zip(ROLES, places, strict=True)
        for start, length in zip(*starts_and_lengths, strict=True)
    ]
    return SpanLayout(row, tokens, found)
