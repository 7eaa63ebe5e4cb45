"""Encoder whose linear layers compute with 8-bit integers in ONNX Runtime: ``precision="int8"`` (extra ``onnx``)."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from contrastive_encoders.core import InputError
from contrastive_encoders.core.onnx_packages import require_onnx
from contrastive_encoders.encoders.kernels.onnx_graph import (
    PROBES,
    check_graph,
    open_graph,
    quantize_graph,
    run_graph,
    write_graph,
)
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

MIN_COSINE = 0.9  # of embeddings in 8 bits and in float32; all-MiniLM-L6-v2 has 0.97


class Int8Encoder(SentenceEncoder):
    """`SentenceEncoder` for inference on a CPU, with weights of 8 bits and dynamically quantized activations.

    Tokenization, prompts, pooling, truncation, and normalization are those of `SentenceEncoder`. ONNX Runtime quantizes
    the activations of a batch with one range, so the embedding of a text depends slightly on the other texts of its
    batch. The float32 weights stay in memory, because the fingerprint is computed from them.
    """

    precision = "int8"
    session: Any = None

    def quantize(self) -> "Int8Encoder":
        """Export, check, and quantize the graph that `encode_chunk` runs, and return the encoder.

        Raises:
            InputError: If the packages of the extra ``onnx`` are not installed, the encoder cannot be exported, or its
                embeddings in 8 bits differ too much from those in float32.
        """
        require_onnx("precision", "int8")
        expected_ND = self.embed(PROBES, progress=False)
        with tempfile.TemporaryDirectory(prefix="contrastive-encoders-") as folder:
            graph, small = Path(folder) / "model.onnx", Path(folder) / "model_int8.onnx"
            try:
                write_graph(graph, self, finished=False)
                check_graph(graph, self, finished=False)
                quantize_graph(graph, small)
            except (RuntimeError, ValueError) as error:
                reason = str(error).strip().splitlines()[0]
                raise _invalid(f"fp32 or bf16, because this encoder cannot be exported to ONNX ({reason})") from error
            self.session = open_graph(small)
        cosines = cosine_similarity(self.embed(PROBES, progress=False), expected_ND, dim=-1)
        lowest = float(cosines[expected_ND.abs().sum(-1) > 0].min())  # a text without tokens is zero
        if not lowest >= MIN_COSINE:
            raise _invalid(
                "fp32 or bf16, because the embeddings of this encoder in 8 bits are too different from those in fp32 "
                f"(cosine similarity {lowest:.2f}; at least {MIN_COSINE} is required)"
            )
        return self

    def encode_chunk(self, ids_BT: Tensor, mask_BT: Tensor, target: object) -> tuple[Tensor, Tensor]:
        """Compute the embeddings of a chunk, shape (B, D), in ONNX Runtime. The MLM loss is 0."""
        if self.session is None:
            return super().encode_chunk(ids_BT, mask_BT, None)
        vectors_BD = run_graph(self.session, ids_BT.numpy(), mask_BT.long().numpy())
        return torch.from_numpy(vectors_BD), torch.zeros(())

    def _chunk_threads(self, chunks: int) -> int:
        return 1  # ONNX Runtime has its own threads

    def packed_weights(self, tokens: int) -> contextlib.AbstractContextManager[object]:
        return super().packed_weights(tokens) if self.session is None else contextlib.nullcontext()


def _invalid(expected: str) -> InputError:
    return InputError(key="precision", value="int8", expected=expected)
