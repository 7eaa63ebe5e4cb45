"""P23: a training step on one long text whose layers are computed again (``model.recompute=layers``).

    python -m benchmarks.layer_memory [--quick] [--tokens 4096]

SmolLM2-135M reads one text of so many tokens: forward and backward, fp32, each way in a process of its own. Memory is
the peak resident size above that before the step, so the gradients (538 MB) count; time is the second step's. A text
cannot be cut into chunks, so ``recompute=on`` computes all of it again and saves nothing here.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import materials, texts
from benchmarks.sides import Line, arguments, in_a_process, report, resident
from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

WAYS = ("off", "on", "layers")


def step(backbone: str, tokens: int, recompute: str) -> None:
    """Print the bytes of a step, its seconds and the norm of its gradient."""
    transformer, tokenizer = load_masked_lm(backbone, lm_head=False), load_tokenizer(backbone)
    encoder = SentenceEncoder(transformer, tokenizer, max_length=tokens, recompute=recompute).train()
    ids = np.concatenate([encoder.tokenize([text]).ids.numpy() for text in texts.sentences(tokens)])[:tokens]
    sequences, before = Ragged(torch.from_numpy(ids), np.array([tokens])), resident("VmRSS")
    for _ in range(2):
        encoder.zero_grad(set_to_none=False)
        start = time.perf_counter()
        encoder.encode_sequences(sequences).vectors.square().sum().backward()
        seconds = time.perf_counter() - start
    norm = torch.nn.utils.get_total_norm(weight.grad for weight in encoder.parameters() if weight.grad is not None)
    print(resident("VmHWM") - before, seconds, float(norm))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--step", nargs=3, metavar=("BACKBONE", "TOKENS", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        backbone, tokens, how = options.step
        materials.hush()
        return step(backbone, int(tokens), how)
    tokens, lines = 512 if options.quick else options.tokens, []
    with tempfile.TemporaryDirectory() as name:
        folder, said = materials.smollm2(Path(name))
        found = {
            how: [float(word) for word in in_a_process("benchmarks.layer_memory", "--step", folder, tokens, how)[-3:]]
            for how in WAYS
        }
    memory, seconds, norm = found["layers"]
    for how in ("off", "on"):
        case = f"{said}, one text of {tokens} tokens, layers / {how}"
        other, others_seconds, others_norm = found[how]
        lines.append(Line("P23", f"{case}: memory", "MiB", memory / 2**20, other / 2**20, memory / other, ""))
        lines.append(Line("P23", f"{case}: a step", "s", seconds, others_seconds, seconds / others_seconds, ""))
        lines.append(Line("P23", f"{case}: norm of the gradient", "", norm, others_norm, norm / others_norm, "1.00x"))
    report("Layers that are computed again", lines, options.output)


if __name__ == "__main__":
    main()
