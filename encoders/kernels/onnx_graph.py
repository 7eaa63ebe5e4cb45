"""ONNX graphs of encoders, in float32 and with weights of 8 bits (extra ``onnx``).

Shape letters: N texts, B texts of a batch, T tokens, D width.
"""

import copy
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

OPSET = 18
TOLERANCE = 1e-4  # relative to the largest value: float32 in another order
PROBES = ("A sentence.", "", "Another one, which is quite a bit longer than the first: it goes on. " * 4)


class _Graph(nn.Module):
    def __init__(self, encoder: "SentenceEncoder", finished: bool) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).cpu().float().eval()
        self.encoder.trunk.set_attn_implementation("eager")
        self.finished = finished

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        vectors_BD = self.encoder.encode_chunk(ids_BT, mask_BT, None)[0]
        return self.encoder.finished(vectors_BD) if self.finished else vectors_BD


def write_graph(path: Path, encoder: "SentenceEncoder", *, finished: bool = True) -> None:
    """Write the graph that maps ``input_ids`` and ``attention_mask``, (B, T) int64, to ``sentence_embedding``, (B, D)
    float32.

    Args:
        path: Output file.
        encoder: Encoder, which is not changed.
        finished: Whether the graph truncates and normalizes embeddings as the encoder does.
    """
    example = torch.ones(2, 8, dtype=torch.long)
    rows, tokens = {0: "batch"}, {0: "batch", 1: "tokens"}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about paths that a trace does not take
        torch.onnx.export(
            _Graph(encoder, finished),
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["sentence_embedding"],
            dynamic_axes={"input_ids": tokens, "attention_mask": tokens, "sentence_embedding": rows},
            opset_version=OPSET,
            dynamo=False,
        )


def check_graph(path: Path, encoder: "SentenceEncoder", *, finished: bool = True) -> None:
    """Check that a float32 graph, which `write_graph` wrote with the same value of ``finished``, computes the
    embeddings of the encoder.

    Raises:
        RuntimeError: If they differ by more than `TOLERANCE`.
    """
    ids, lengths, _ = encoder.tokenize([encoder.prompt + text for text in PROBES])
    with_tokens = lengths > 0  # `embed` returns zeros for a text without tokens, and does not run the graph
    rows = [part.numpy() for part in ids.split(lengths.tolist())]
    ids_NT = np.full((len(rows), int(lengths.max())), encoder.tokenizer.pad_token_id, dtype=np.int64)
    for place, row in enumerate(rows):
        ids_NT[place, : len(row)] = row
    mask_NT = (np.arange(ids_NT.shape[1]) < lengths[:, None]).astype(np.int64)
    onnx_ND, expected_ND = run_graph(open_graph(path), ids_NT, mask_NT), encoder.embed(PROBES)
    if not finished:
        onnx_ND = encoder.finished(torch.from_numpy(onnx_ND)).numpy()
    onnx_ND, expected_ND = onnx_ND[with_tokens], expected_ND[with_tokens]
    difference = float(np.abs(onnx_ND - expected_ND.numpy()).max() / expected_ND.abs().max().clamp(min=1e-9))
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"the embeddings of the ONNX graph differ from the encoder's by {difference:.1e} times the largest value"
        )


def quantize_graph(graph: Path, small: Path) -> None:
    """Quantize a graph to 8 bits: linear layers' weights with one scale per channel, and activations dynamically."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it advises a step that makes no difference here
    try:
        options = {"weight_type": QuantType.QInt8, "per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm"]}
        quantize_dynamic(str(graph), str(small), **options)
    finally:
        logging.root.setLevel(level)


def open_graph(graph: Path) -> Any:
    """Return a session of ONNX Runtime on the CPU, with as many threads as torch uses."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as in `require_onnx`, which Python callers may skip
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait must not spin
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def run_graph(session: Any, ids_NT: np.ndarray, mask_NT: np.ndarray) -> np.ndarray:
    """Run a graph on token ids, and return the embeddings (N, D) float32."""
    vectors_ND: np.ndarray = session.run(None, {"input_ids": ids_NT, "attention_mask": mask_NT})[0]
    return vectors_ND
