"""Fine-tune an encoder on the questions and answers of a CSV file, and search the answers with FAISS.

    pip install faiss-cpu
    python improve_and_search.py faq.csv question answer "How do I change my password?"

The words after the file name the columns of the questions and the answers. A tenth of the rows is held out, and the
training ends with a verdict that compares the encoder before and after training on the held-out rows. Keys of
`contrastive-encoders train` may follow, such as max_steps=50.
"""

import sys

import faiss
import pandas

from contrastive_encoders import train

if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    path, question, answer, text, *overrides = sys.argv[1:]

    # sep=None detects the separator; utf-8-sig is UTF-8, with or without a byte-order mark
    table = pandas.read_csv(path, sep=None, engine="python", encoding="utf-8-sig", dtype=str)
    rows = table[[question, answer]].dropna()
    result = train(rows, experiment="improve", data__columns=[question, answer], overrides=overrides)

    answers = list(rows[answer].unique())
    embeddings = result.encoder.encode_document(answers, normalize_embeddings=True)
    index = faiss.IndexFlatIP(embeddings.shape[1])  # the inner product of normalized embeddings is the cosine
    index.add(embeddings)
    faiss.write_index(index, "answers.faiss")

    query = result.encoder.encode_query([text], normalize_embeddings=True)
    cosines, places = index.search(query, 3)
    for cosine, place in zip(cosines[0], places[0], strict=True):
        print(f"{cosine:.3f}  {answers[place]}")
