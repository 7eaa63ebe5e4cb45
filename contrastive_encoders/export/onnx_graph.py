"""ONNX export: a directory with the graph, its tokenizer, and a model card (extra ``onnx``).

Shape letters: B texts, T tokens, D width.
"""

import copy
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.kernels.onnx_graph import check_graph, quantize_graph, write_graph
from contrastive_encoders.encoders.prompt_suffix import BLANKS
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.atomic_export import export_folder

GRAPH, INT8_GRAPH = "model.onnx", "model_int8.onnx"


def export_onnx(folder: Path, encoder: SentenceEncoder, *, int8: bool = True, card: str | None = None) -> Path:
    """Write ``folder`` atomically: the graph, its tokenizer with padding and truncation, and README.md.

    The graph's inputs are ``input_ids`` and ``attention_mask``, (B, T) int64, and its output is ``sentence_embedding``,
    (B, D) float32, with dynamic B and T.

    Raises:
        InputError: the tokenizer does not run without transformers.
        RuntimeError: the embeddings of onnxruntime differ from those of the encoder.
    """
    if getattr(encoder.tokenizer, "backend_tokenizer", None) is None:
        expected = "another format, because this tokenizer has no tokenizer.json, which onnx requires"
        raise InputError(key="format", value="onnx", expected=expected)
    with export_folder(Path(folder)) as unfinished:
        _write_tokenizer(unfinished / "tokenizer.json", encoder)
        write_graph(unfinished / GRAPH, encoder)
        check_graph(unfinished / GRAPH, encoder)
        if int8:
            quantize_graph(unfinished / GRAPH, unfinished / INT8_GRAPH)
        if card is not None:
            (unfinished / "README.md").write_text(card, encoding="utf-8")
    return Path(folder)


def onnx_example(encoder: SentenceEncoder) -> str:
    """Return a code block that computes embeddings with tokenizers, onnxruntime, and numpy."""
    ids, comment = _tokenization_code(encoder)
    return f'''```python
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path("PATH_OF_THIS_FOLDER")
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))  # {comment}
session = onnxruntime.InferenceSession(folder / "{GRAPH}")  # or {INT8_GRAPH}: smaller, faster, less exact


def embed(texts):
{ids}
    return session.run(None, {{"input_ids": ids, "attention_mask": mask}})[0]


vectors = embed(["A sentence.", "Another one."])
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
print(vectors @ vectors.T)
```'''


def _tokenization_code(encoder: SentenceEncoder) -> tuple[str, str]:
    """Return the code lines that compute ``ids`` and ``mask``, and a comment about the tokenizer."""
    text = f"{encoder.prompt!r} + text" if encoder.prompt else "text"
    appended = encoder.appended
    if appended is None:
        return (
            f"    encoded = tokenizer.encode_batch([{text} for text in texts])\n"
            "    ids = np.array([one.ids for one in encoded], dtype=np.int64)\n"
            "    mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)",
            f"pads, and truncates to {encoder.max_length} tokens",
        )
    text = f"({text}).rstrip({BLANKS!r})" if appended.joins else text
    truncation = f"[-{appended.room}:]" if appended.keeps_end else f"[:{appended.room}]"
    one = "i" if appended.end is None else f"{appended.unknown} if i == {appended.end} else i"
    before = f"{appended.before} + " if appended.before else ""
    return (
        f"    encoded = tokenizer.encode_batch([{text} for text in texts], add_special_tokens=False)\n"
        f"    rows = [{before}[{one} for i in e.ids{truncation}] + {appended.ids + appended.after} for e in encoded]\n"
        f"    ids = np.full((len(rows), max(map(len, rows))), {encoder.tokenizer.pad_token_id}, dtype=np.int64)\n"
        "    mask = np.zeros_like(ids)\n"
        "    for place, row in enumerate(rows):\n"
        "        ids[place, : len(row)], mask[place, : len(row)] = row, 1",
        "the prompt after the text is added below",
    )


def _write_tokenizer(path: Path, encoder: SentenceEncoder) -> None:
    tokenizer = encoder.tokenizer
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()
    backend.no_padding()
    if encoder.appended is None:
        backend.enable_truncation(encoder.max_length, direction=tokenizer.truncation_side)
        backend.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    backend.save(str(path))
