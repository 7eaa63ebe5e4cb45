"""Write the folder that a run exports: a sentence encoder, or the language model of a generator."""

import copy
from pathlib import Path
from typing import Any

from contrastive_encoders.core import Results
from contrastive_encoders.core.gense_prompts import write_generator_prompts
from contrastive_encoders.encoders.lora import merged
from contrastive_encoders.export.atomic_export import export_folder
from contrastive_encoders.export.model_card import model_card
from contrastive_encoders.export.reranker import write_reranker
from contrastive_encoders.reports.tables import Column, Table, markdown


def export_product(folder: Path, model: Any, results: Results) -> None:
    """Write the trained model atomically to a directory in ``folder`` that is named after its kind.

    The kind, ``model.product``, is encoder, generator, or reranker.
    """
    write = {"encoder": _write_encoder, "generator": _write_generator, "reranker": write_reranker}[model.product]
    write(folder / model.product, model, results)


def _write_encoder(folder: Path, model: Any, results: Results) -> None:
    from contrastive_encoders.export.sentence_transformers import (  # imports the library, which takes a second
        export_encoder,
        parts_of,
    )

    export_encoder(folder, **parts_of(model.encoder), card=model_card(results))


def _write_generator(folder: Path, model: Any, results: Results) -> None:
    """Write a transformers folder, and ``generator.json``, which contains the trained prompts and how they are joined
    with sentences.
    """
    with export_folder(folder) as unfinished:
        merged(copy.deepcopy(model.seq2seq.transformer).cpu().float()).save_pretrained(unfinished)
        model.seq2seq.tokenizer.save_pretrained(unfinished)
        write_generator_prompts(unfinished, model.prompts)
        (unfinished / "README.md").write_text(_generator_card(results), encoding="utf-8")


def _generator_card(results: Results) -> str:
    scores = Table([Column("on held-out triplets"), Column("", ".2f")], sorted(results["scores"].items()))
    parts = [
        f"# A generator and discriminator trained with {results['objective']}",
        "The model generates sentences that a sentence entails or contradicts, and predicts for two sentences whether "
        "the first entails the second. Prompts: `generator.json`. Use it as `generator` of the recipe `gense`.",
        *([markdown(scores)] if scores.rows else []),
        f"Best step {results['best_step']}, {results['cost']['examples']:,} training examples. Without "
        "pretraining or with little data, generated sentences are unreliable: check the accuracy.",
    ]
    return "\n\n".join(parts) + "\n"
