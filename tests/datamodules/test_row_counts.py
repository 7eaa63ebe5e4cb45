"""Counts while rows are stored, against plain counts over all rows."""

import numpy as np
import pytest
from transformers import AutoTokenizer

from contrastive_encoders.datamodules.sources.row_schemas import PAIRS, QA, TRIPLETS
from contrastive_encoders.datamodules.store.row_statistics import LONGEST_COUNTED, TextLengths
from contrastive_encoders.datamodules.store.token_store import LENGTHS, build_or_open
from contrastive_encoders.datamodules.store.tokenization import WholeRows
from tests.data import RecordSource, data_module, write_rows

ROWS = [
    {"question": f"Why {'rain ' * (n % 7)}?", "answer": f"Because of {'fog ' * (n % 50)}number {n % 30}."}
    for n in [*range(90), 3, 4, 5]
]


@pytest.fixture(scope="module")
def lengths_RC():
    """A few texts are longer than any that is counted by its length."""
    lengths = np.random.default_rng(3).geometric(0.01, size=(400, 2))
    lengths[::97] += LONGEST_COUNTED
    return lengths


@pytest.fixture(scope="module")
def counted(lengths_RC):
    found = TextLengths(2)
    for part in np.array_split(lengths_RC, 7):
        found.add(part.reshape(-1))
    return found


@pytest.mark.parametrize("columns", [None, [0], [1], [0, 1]])
@pytest.mark.parametrize("room", [1, 2, 30, 99, 2000, LONGEST_COUNTED])
def test_tokens_behind_a_length(room, columns, counted, lengths_RC):
    for one in (counted, TextLengths.from_json(counted.to_json())):
        some = lengths_RC[:, slice(None) if columns is None else columns]
        assert one.tokens(columns) == some.sum()
        assert one.behind(room, columns) == sum(max(0, length - room) for length in some.reshape(-1).tolist())


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.985])
def test_the_length_that_covers_is_the_least(share, counted, lengths_RC):
    found = counted.covering(share)
    assert (lengths_RC <= found).mean() >= share
    assert (lengths_RC <= found - 1).mean() < share


def test_a_store_that_is_there_says_what_was_counted(tmp_path, tiny_bert):
    path = write_rows(tmp_path / "qa.jsonl", ROWS)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)

    def opened():
        return build_or_open(RecordSource(path, QA), WholeRows(tokenizer), tmp_path / "cache", quiet=True)

    texts = [text for row in ROWS for text in row.values()]
    wanted = [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    built = opened()
    assert built.manifest["repeated"] == len(ROWS) - len({tuple(row.values()) for row in ROWS}) > 0
    assert LENGTHS not in built.account
    ids = (built.directory / "ids.bin").stat()
    assert opened().lengths.behind(5) == sum(max(0, length - 5) for length in wanted)
    assert (built.directory / "ids.bin").stat() == ids


def test_rows_with_the_texts_of_an_earlier_row_and_another_label_are_counted(tmp_path, tiny_bert):
    pairs = [("a", "b", 1), ("c", "d", 0.5), ("a", "b", 0), ("a", "b", "1.0"), ("c", "d", 0.5), ("d", "c", 0)]
    rows = [{"sentence1": left, "sentence2": right, "score": label} for left, right, label in pairs]
    source = RecordSource(write_rows(tmp_path / "pairs.jsonl", rows), PAIRS)
    tokenizer = WholeRows(AutoTokenizer.from_pretrained(tiny_bert), labeled=1)
    found = build_or_open(source, tokenizer, tmp_path / "cache", quiet=True).manifest
    assert (found["repeated"], found["relabeled"]) == (3, 1)


def test_rows_with_their_positive_as_a_negative_are_counted(tmp_path, tiny_bert):
    rows = [{"anchor": f"a{n}", "positive": f"b{n}", "negative": f"b{n}" if n < 3 else f"c{n}"} for n in range(9)]
    source = RecordSource(write_rows(tmp_path / "t.jsonl", rows), TRIPLETS)
    tokenizer = WholeRows(AutoTokenizer.from_pretrained(tiny_bert))
    assert build_or_open(source, tokenizer, tmp_path / "cache", quiet=True).manifest["own_negatives"] == 3


@pytest.mark.parametrize("prompts", [None, "query: "])
def test_the_length_that_is_chosen_holds_99_of_100_texts_of_the_tokenizer(prompts, tmp_path, tiny_bert):
    path = write_rows(tmp_path / "qa.jsonl", ROWS)
    data = data_module("qa", path=path, tokenizer=tiny_bert, prompts=prompts, cache_dir=tmp_path / "cache")
    data.prepare_data()
    data.setup()
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    texts = [f"{prompts or ''}{text}" for row in ROWS for text in row.values()]
    lengths = np.array([len(ids) for ids in tokenizer(texts)["input_ids"]])
    assert (lengths <= data.max_length).mean() >= 0.99 > (lengths <= data.max_length - 1).mean()
    (cut,) = data.manifest()["cuts"]
    behind = np.maximum(lengths - data.max_length, 0).sum() / (lengths - 2).sum()
    assert cut == {"of": "texts", "max_length": data.max_length, "wanted": data.max_length} | {
        "share_behind": pytest.approx(behind)
    }


def test_what_is_cut_of_spans_is_what_the_first_pass_lacks(tmp_path, tiny_bert, corpus_file):
    keys = {"path": corpus_file, "tokenizer": tiny_bert, "min_span": 4, "max_span": 40, "cache_dir": tmp_path}
    whole, cut = (data_module("text", max_length=length, **keys) for length in (64, 20))
    tokens = list[int]()
    for data in (whole, cut):
        data.prepare_data()
        data.setup()
        batch = data.batch(0, np.arange(data.num_examples))
        number = len(batch.anchors.lengths) + len(batch.positives.lengths)
        tokens.append(int(batch.anchors.lengths.sum() + batch.positives.lengths.sum()) - 2 * number)
    assert whole.cuts()[0].share_behind == 0
    assert cut.cuts()[0].share_behind == pytest.approx(1 - tokens[1] / tokens[0])
