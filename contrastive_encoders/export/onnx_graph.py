"""ONNX export: one graph from token ids and mask to the embedding, also quantized to 8 bits (extra ``onnx``).

Shape letters: B texts, T tokens, D width.
"""

import copy
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.prompt_suffix import BLANKS
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.atomic_export import export_folder

GRAPH, INT8_GRAPH = "model.onnx", "model_int8.onnx"
OPSET = 18
TOLERANCE = 1e-4  # relative to the largest value: float32 in another order
PROBES = ("A sentence.", "", "Another one, which is quite a bit longer than the first: it goes on. " * 4)


class _Graph(nn.Module):
    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).cpu().float().eval()
        self.encoder.trunk.set_attn_implementation("eager")

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        return self.encoder.finished(self.encoder.encode_chunk(ids_BT, mask_BT, None)[0])


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
        _write_graph(unfinished / GRAPH, encoder)
        _compare(unfinished, encoder)
        if int8:
            _quantize(unfinished / GRAPH, unfinished / INT8_GRAPH)
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


def _write_graph(path: Path, encoder: SentenceEncoder) -> None:
    example = torch.ones(2, 8, dtype=torch.long)
    rows, tokens = {0: "batch"}, {0: "batch", 1: "tokens"}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about paths that a trace does not take
        torch.onnx.export(
            _Graph(encoder),
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["sentence_embedding"],
            dynamic_axes={"input_ids": tokens, "attention_mask": tokens, "sentence_embedding": rows},
            opset_version=OPSET,
            dynamo=False,
        )


def _compare(folder: Path, encoder: SentenceEncoder) -> None:
    ids, lengths, _ = encoder.tokenize([encoder.prompt + text for text in PROBES])
    rows = [part.numpy() for part in ids.split(lengths.tolist())]
    ids_NT = np.full((len(rows), int(lengths.max())), encoder.tokenizer.pad_token_id, dtype=np.int64)
    for place, row in enumerate(rows):
        ids_NT[place, : len(row)] = row
    mask_NT = (np.arange(ids_NT.shape[1]) < lengths[:, None]).astype(np.int64)
    onnx_ND, expected_ND = run_graph(folder / GRAPH, ids_NT, mask_NT), encoder.embed(PROBES)
    difference = float(np.abs(onnx_ND - expected_ND.numpy()).max() / expected_ND.abs().max().clamp(min=1e-9))
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"The embeddings of the ONNX graph differ from the encoder's by {difference:.1e}, so the graph was not "
            "written."
        )


def run_graph(graph: Path, ids_NT: np.ndarray, mask_NT: np.ndarray) -> np.ndarray:
    """Run an ONNX graph on token ids, and return the embeddings (N, D) float32."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": ids_NT, "attention_mask": mask_NT})[0]


def _quantize(graph: Path, small: Path) -> None:
    """Quantize the weights of linear layers to 8 bits with a scale per channel, and activations dynamically."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it advises a step that makes no difference here
    try:
        options = {"weight_type": QuantType.QInt8, "per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm"]}
        quantize_dynamic(str(graph), str(small), **options)
    finally:
        logging.root.setLevel(level)
