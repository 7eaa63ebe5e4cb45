"""The store has the ids that the tokenizer gives, whatever is cut, and opening it costs no memory."""

import json
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from contracts import InputError
from datamodules.record_kinds import PAIRS, QA, TRIPLETS
from datamodules.records import RecordSource
from datamodules.row_store import RowStore, RowWriter, build_or_open_rows
from datamodules.sequences import Sequences, text_groups

TEXTS = [
    "The ferry leaves the harbour  before\tthe market opens.",
    " Rain.",
    "rain. ",
    "She repaired the clock with a spoon and two hairpins, and Nobody in the choir could remember it; " * 3,
    "line\nbreak, 家 and 🙂, None, é and é",
    "a",
]


@pytest.fixture(scope="module")
def t5_like():
    """Unigram with one special token behind a text, as T5 has it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=100
    )


@pytest.fixture(params=["bert", "roberta", "t5"])
def tokenizer(request, tiny_bert, tiny_mlm, t5_like):
    if request.param == "t5":
        return t5_like
    return AutoTokenizer.from_pretrained(tiny_bert if request.param == "bert" else tiny_mlm)


def rows_file(path, texts, names=("premise", "entailment", "contradiction")):
    rows = [[texts[(i + k) % len(texts)] for k in range(len(names))] for i in range(len(texts))]
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return rows


def build(path, tokenizer, cache, kind=TRIPLETS, labelled=False, **options):
    return build_or_open_rows(RecordSource(path, kind, **options), tokenizer, cache, labelled=labelled, quiet=True)


def sequences_of(ragged):
    ends = np.cumsum(ragged.lengths)
    return [part.tolist() for part in np.split(ragged.ids.numpy(), ends[:-1])]


@pytest.mark.parametrize("max_length", [4, 7, 24, 100, 5000])
@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_are_those_of_the_tokenizer(tmp_path, tokenizer, max_length, side):
    rows = rows_file(tmp_path / "d.jsonl", TEXTS)
    store = build(tmp_path / "d.jsonl", tokenizer, tmp_path)
    before, tokenizer.truncation_side = tokenizer.truncation_side, side
    try:
        sequences = Sequences(tokenizer, max_length)
        limit = min(max_length, tokenizer.model_max_length)
        order = np.array([4, 0, 5, 3, 3, 1, 2])
        for column in range(3):
            expected = tokenizer([rows[row][column] for row in order], truncation=True, max_length=limit)["input_ids"]
            assert sequences_of(sequences(store, order, column)) == expected
    finally:
        tokenizer.truncation_side = before


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=8), st.integers(4, 40)
)
def test_any_text_that_has_a_token(tmp_path_factory, tokenizer, texts, max_length):
    folder = tmp_path_factory.mktemp("any")
    texts = [f"x{text}" for text in texts]
    rows_file(folder / "d.jsonl", texts)
    store = build(folder / "d.jsonl", tokenizer, folder)
    assert len(store) == len(texts)
    found = sequences_of(Sequences(tokenizer, max_length)(store, np.arange(len(texts)), 0))
    assert found == tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]


def test_special_tokens_spelled_in_a_text_are_read_as_the_tokenizer_reads_them(tmp_path, tokenizer):
    texts = [f"a {token} b" for token in tokenizer.all_special_tokens]
    rows_file(tmp_path / "d.jsonl", texts)
    store = build(tmp_path / "d.jsonl", tokenizer, tmp_path)
    assert sequences_of(Sequences(tokenizer, 50)(store, np.arange(len(texts)), 0)) == tokenizer(texts)["input_ids"]


def test_the_tokenizer_is_left_as_it_was(tmp_path, tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer(["x"], truncation=True, max_length=5, padding=True)
    before = tokenizer.backend_tokenizer.to_str()
    rows_file(tmp_path / "d.jsonl", TEXTS)
    store = build(tmp_path / "d.jsonl", tokenizer, tmp_path)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert len(store.text(0, 0)) == len(tokenizer(TEXTS[0])["input_ids"]) - 2


def test_rows_without_a_token_are_left_out_with_their_labels(tmp_path, tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    rows = [
        ("rain", "fog", 0.25),
        ("rain", "\u200b", 0.5),
        ("clock", "spoon", 0.75),
    ]  # BERT drops a lone format character
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({"text_a": a, "text_b": b, "label": s}) + "\n" for a, b, s in rows))
    store = build(path, tokenizer, tmp_path, PAIRS, labelled=True)
    assert store.labels.tolist() == [0.25, 0.75]
    assert store.manifest["without_tokens"] == 1
    assert store.text(1, 1).tolist() == tokenizer("spoon", add_special_tokens=False)["input_ids"]
    path.write_text(json.dumps({"text_a": "\u200b", "text_b": "\u200b", "label": 0}))
    with pytest.raises(InputError, match="none of the 1 rows has a token"):
        build(path, tokenizer, tmp_path, PAIRS, labelled=True)


def test_a_store_is_built_once_and_again_for_other_content(tmp_path, tiny_bert, tiny_mlm, monkeypatch):
    path = tmp_path / "d.jsonl"
    rows_file(path, TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    first = build(path, tokenizer, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(RecordSource, "__iter__", lambda self: pytest.fail("read again"))
        assert build(path, tokenizer, tmp_path).directory == first.directory
    other = build(path, AutoTokenizer.from_pretrained(tiny_mlm), tmp_path)
    assert other.directory != first.directory
    rows_file(path, TEXTS[:3])
    third = build(path, tokenizer, tmp_path)
    assert len(third) == 3
    assert third.manifest["rows_sha256"] != first.manifest["rows_sha256"]
    rows_file(tmp_path / "copy.jsonl", TEXTS[:3])
    assert build(tmp_path / "copy.jsonl", tokenizer, tmp_path).manifest["rows_sha256"] == third.manifest["rows_sha256"]


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "meta.json"])
def test_a_store_that_is_cut_short_is_refused_and_built_anew(tmp_path, tiny_bert, name):
    rows_file(tmp_path / "d.jsonl", TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    store = build(tmp_path / "d.jsonl", tokenizer, tmp_path)
    whole = (store.directory / name).read_bytes()
    (store.directory / name).write_bytes(whole[:-1])
    with pytest.raises(InputError, match="not a whole store of rows"):
        RowStore(store.directory)
    assert (build(tmp_path / "d.jsonl", tokenizer, tmp_path).directory / name).read_bytes() == whole


def test_groups_are_equal_where_the_texts_are(tmp_path, tiny_mlm):
    texts = ["rain", "fog", "rain", " rain", "fog", "rain fog"]
    rows_file(tmp_path / "d.jsonl", texts, ("question", "answer"))
    store = build(tmp_path / "d.jsonl", AutoTokenizer.from_pretrained(tiny_mlm), tmp_path, QA)
    groups = text_groups(store, np.arange(6), 0).tolist()
    assert [[a == b for a in groups] for b in groups] == [[a == b for a in texts] for b in texts]
    assert text_groups(store, np.array([4, 0]), 0).tolist() == [groups[4], groups[0]]
    assert text_groups(store, np.arange(0), 0).shape == (0,)


def test_no_room_for_text_is_refused(tiny_bert, t5_like):
    with pytest.raises(InputError, match=r"data\.max_length=2: 2 special tokens"):
        Sequences(AutoTokenizer.from_pretrained(tiny_bert), 2)
    assert Sequences(t5_like, 2).room == 1
    assert Sequences(t5_like, 10**6).longest == 100


def test_opening_millions_of_rows_takes_no_time_and_no_memory_for_each(tmp_path, t5_like):
    rows, block = 2_000_000, 100_000
    with RowWriter(tmp_path, 3, np.dtype("<u2"), labelled=False) as writer:
        for first in range(0, rows, block):
            ids = np.arange(first * 3, (first + block) * 3) % 60_000
            writer.write(ids, np.ones(block * 3, np.int64))
        (tmp_path / "meta.json").write_text(json.dumps(writer.totals()))
    tracemalloc.start()
    began = time.perf_counter()
    store = RowStore(tmp_path)
    batch = Sequences(t5_like, 8)(store, np.array([0, rows - 1]), 2)
    seconds, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sequences_of(batch) == [[2, t5_like.eos_token_id], [(rows * 3 - 1) % 60_000, t5_like.eos_token_id]]
    assert peak < 1_000_000
    assert seconds < 5


def test_a_writer_refuses_parts_of_rows(tmp_path):
    with RowWriter(tmp_path, 2, np.dtype("<u2"), labelled=True) as writer:
        for ids, lengths, labels in [
            ([1, 2, 3], [1, 1, 1], [0]),
            ([1], [1, 1], [0]),
            ([1, 2], [1, 1], None),
            ([1, 2], [1, 1], []),
        ]:
            with pytest.raises(ValueError, match="whole rows"):
                writer.write(np.array(ids), np.array(lengths), None if labels is None else np.array(labels))
