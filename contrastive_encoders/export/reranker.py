"""Export of a cross-encoder: a transformers folder that ``CrossEncoder`` of sentence-transformers also reads."""

import copy
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from contrastive_encoders.core import Results
from contrastive_encoders.encoders.lora import merged
from contrastive_encoders.export.atomic_export import export_folder
from contrastive_encoders.export.front_matter import hub_dataset_ids, is_hub_id
from contrastive_encoders.export.transformers_folder import write_tokenizer
from contrastive_encoders.reports.tables import Column, Table, markdown

USE = """```python
from sentence_transformers import CrossEncoder

reranker = CrossEncoder("PATH_OR_ID_OF_THIS_FOLDER")
print(reranker.rank("a query", ["a document", "another one"]))
```"""


def write_reranker(folder: Path, model: Any, results: Results) -> None:
    """Write the cross-encoder of ``model`` to a folder atomically. Its scores in the library are the logits, as in this
    project.
    """
    cross_encoder = model.cross_encoder
    with export_folder(folder) as unfinished:
        exported = merged(copy.deepcopy(cross_encoder.transformer).cpu().float())
        exported.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
        exported.save_pretrained(unfinished)
        write_tokenizer(unfinished, cross_encoder.tokenizer, cross_encoder.max_length)
        (unfinished / "README.md").write_text(reranker_card(results), encoding="utf-8")


def reranker_card(results: Results) -> str:
    """Return the model card of a reranker: Markdown with YAML front matter for the Hub."""
    backbone = results["backbone"]
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="text-ranking",
        tags=["sentence-transformers", "cross-encoder", "reranker"],
        base_model=backbone if is_hub_id(backbone) else None,
        datasets=hub_dataset_ids(results["data"]) or None,
    )
    encoder_scores = results.get("scores_before", {})
    rows = [(name, encoder_scores.get(name), score) for name, score in sorted(results["scores"].items())]
    scores = Table([Column("score"), Column("encoder alone", ".2f"), Column("reranked", ".2f")], rows)
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# A reranker trained with model={results['objective']}",
        "A cross-encoder that reads a query and a document together and returns one score, a logit. Higher is better. "
        f"The weights are from step {results['best_step']}, after {results['cost']['examples']:,} queries.",
        USE,
        *([SCORES, markdown(scores)] if rows else []),
    ]
    return "\n\n".join(parts) + "\n"


SCORES = "Scores from 0 to 100 of the encoder that retrieved the documents, and after reranking by this model."
