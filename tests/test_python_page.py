"""The snippets of docs/python.md run, one after the other, with a tiny backbone, few steps, and small files."""

import json
import re
from pathlib import Path

import pytest

import contrastive_encoders
from benchmarks.texts import invented
from tests.guide import text_of

SNIPPETS = re.findall(r"^```python\n(.*?)^```", text_of("docs/python"), re.M | re.S)
NEEDS_THE_HUB = "load_dataset"
SIZES = {"vocab_size": 600, "hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64}
SMALL = {"backbone": "tiny", "tiny": SIZES, "batch_size": 8, "max_steps": 2, "quiet": True}
ROWS = [(f"What is thing number {n}?", f"Thing number {n} is a {'small ' * (n % 3)}boat.") for n in range(60)]


def write_files(folder: Path, tables: Path) -> None:
    """Write the files that the snippets name."""
    (folder / "faq.csv").write_text("question,answer\n" + "".join(f"{one},{other}\n" for one, other in ROWS))
    (folder / "questions.csv").write_text("query,document\n" + "".join(f"{one},{other}\n" for one, other in ROWS[:9]))
    documents = [{"text": invented(number, 200)} for number in range(40)]
    (folder / "my_texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for _, one in ROWS))
    queries = folder / "my_queries"
    (queries / "qrels").mkdir(parents=True)
    for name, side in (("queries", 0), ("corpus", 1)):
        lines = (json.dumps({"_id": str(number), "text": row[side]}) + "\n" for number, row in enumerate(ROWS[:9]))
        (queries / f"{name}.jsonl").write_text("".join(lines))
    relevant = "".join(f"{number}\t{number}\t1\n" for number in range(9))
    (queries / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{relevant}")
    (folder / "eval").symlink_to(tables)


def small(code: str) -> str:
    """Return the snippet with few steps, a small batch, short spans, and the tiny backbone."""
    code = re.sub(r"max_steps=\d+", "max_steps=2", re.sub(r"batch_size=(16|32),", "batch_size=8,", code))
    code = code.replace('"distilbert/distilroberta-base"', '"tiny"').replace("max_span=", "min_span=4, max_span=")
    code = code.replace(
        'data__path="my_texts.jsonl"', 'data__path="my_texts.jsonl", data__min_span=4, data__max_span=16'
    )
    overrides = "data.min_span=4 data.max_span=16 backbone=tiny max_steps=2 batch_size=8".split()
    return code.replace('"data.path=my_texts.jsonl"]', f'"data.path=my_texts.jsonl", *{overrides}]')


@pytest.mark.slow  # seven trainings
def test_the_snippets_run(small_tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, small_tables)
    train = contrastive_encoders.train
    monkeypatch.setattr(contrastive_encoders, "train", lambda *rows, **keys: train(*rows, **SMALL | keys))
    names: dict = {}
    for code in (code for code in SNIPPETS if NEEDS_THE_HUB not in code):
        exec(small(code), names)
        if "verdict" in code:
            assert names["result"].verdict["outcome"] in ("better", "inconclusive", "worse")
        if not Path("outputs/my-run").exists():
            Path("outputs/my-run").symlink_to(names["result"].directory.resolve())
            assert names["embeddings"].shape == (2, 32)
    assert names["vectors"].shape == (2, 32)
    assert names["path"] == Path("vectors.npy")
    assert names["path"].is_file()
    assert "stsb/cosine/spearman" in names["results"]["scores"] or "cost" in names["results"]
    assert Path("scores.json").is_file()
