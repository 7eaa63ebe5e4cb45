"""Adapt an encoder to documents without labels, and embed the documents with the adapted encoder if it is better.

    python adapt_to_documents.py my_documents adapted

A language model generates questions about the documents, several encoders are trained, and the best one is compared
with the initial encoder on questions about held-out documents. If it isn't better, the initial encoder embeds the
documents. Keys of `contrastive-encoders adapt` may follow, such as seeds=[1].
"""

import sys
from pathlib import Path

from contrastive_encoders import embed
from contrastive_encoders.cli.main import main

BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    documents, output, *overrides = sys.argv[1:]

    main(["adapt", documents, f"output_dir={output}", f"race.backbone={BACKBONE}", *overrides])

    adapted = Path(output, "encoder")  # exists if the best encoder is better than the initial one
    passages = Path(output, "data", "questions", "held_out", "corpus.jsonl")  # of all documents
    path = embed(adapted if adapted.exists() else BACKBONE, passages, Path(output, "passages.npy"), role="document")
    print(f"Wrote {path}, a row for each passage of {passages}.")
