"""Fine-tune an encoder on a CSV file or documents with several processes, such as one per GPU.

    torchrun --nproc-per-node 4 train_distributed.py faq.csv outputs/faq

batch_size counts the rows of all processes, so losses, scores, and the encoder are the same as with a single process:

    python train_distributed.py faq.csv outputs/faq

Keys of `contrastive-encoders train` may follow, such as batch_size=512 or trainer=fsdp.
"""

import json
import os
import sys
from pathlib import Path

from contrastive_encoders.cli.main import main

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    texts, output, *overrides = sys.argv[1:]

    main(["improve", texts, f"output_dir={output}", *overrides])  # in each process

    if os.environ.get("RANK", "0") == "0":
        results = json.loads(Path(output, "results.json").read_text())
        print(f"{results['cost']['steps']} steps on {os.environ.get('WORLD_SIZE', 1)} processes. The encoder:")
        print(f"SentenceTransformer({str(Path(output, 'encoder'))!r})")
