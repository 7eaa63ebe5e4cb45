"""Fine-tune an encoder on the questions and answers of a CSV file, and search the answers with FAISS.

    pip install faiss-cpu
    python improve_and_search.py faq.csv "How do I change my password?"

The CSV file has the columns question and answer. A tenth of the rows is held out, and the training ends with a
verdict that compares the encoder before and after training on the held-out rows. Keys of `contrastive-encoders train`
may follow, such as max_steps=50.
"""

import csv
import sys
from pathlib import Path

import faiss

from contrastive_encoders import train

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, text, *overrides = sys.argv[1:]

    result = train(data__path=path, experiment="improve", overrides=overrides)
    with Path(path).open(newline="", encoding="utf-8") as file:
        answers = [row["answer"] for row in csv.DictReader(file)]
    embeddings = result.encoder.encode_document(answers, normalize_embeddings=True)
    index = faiss.IndexFlatIP(embeddings.shape[1])  # the inner product of normalized embeddings is the cosine
    index.add(embeddings)
    faiss.write_index(index, "answers.faiss")

    query = result.encoder.encode_query([text], normalize_embeddings=True)
    cosines, rows = index.search(query, 3)
    for cosine, row in zip(cosines[0], rows[0], strict=True):
        print(f"{cosine:.3f}  {answers[row]}")
