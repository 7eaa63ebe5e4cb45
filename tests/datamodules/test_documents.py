"""Documents as span batches: complete sequences, identical on any number of processes, new in every epoch."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from contrastive_encoders.core import IGNORED_LABEL, InputError, SpanBatch
from contrastive_encoders.datamodules.documents import passes_per_epoch
from contrastive_encoders.datamodules.sampling.span_batches import SpanBatchBuilder, choose_max_span
from contrastive_encoders.datamodules.sampling.spans import SpanRule
from contrastive_encoders.datamodules.store.tokenizer import special_tokens
from tests.data import as_rank, batches, data_module, sequences_of

RULE = SpanRule(anchors=2, positives=2, min_span=4, max_span=16, anchor_placement="grid", positive_sampling="nearby")


@pytest.fixture
def documents(corpus_file, tiny_mlm, tmp_path):
    """``documents(batch_size=4, ...)`` is the data module of the small corpus."""
    small = {"path": corpus_file, "tokenizer": tiny_mlm, "cache_dir": tmp_path}
    small |= {"min_span": 4, "max_span": 16, "batch_size": 6}
    return lambda **keys: data_module("text", **(small | keys))


def ready(data):
    return as_rank(data, 0, 1)


def by_document(batch):
    """Return a mapping: document -> its anchors, masked anchors, labels and positives."""
    n, a = len(batch.rows), len(batch.anchors.lengths) // len(batch.rows)
    p = len(batch.positives.lengths) // (n * a)
    anchors, positives = sequences_of(batch.anchors), sequences_of(batch.positives)
    masked, labels = sequences_of(batch.anchors, batch.masked_ids), sequences_of(batch.anchors, batch.labels)
    return {
        int(row): (
            anchors[i * a : (i + 1) * a],
            masked[i * a : (i + 1) * a],
            labels[i * a : (i + 1) * a],
            positives[i * a * p : (i + 1) * a * p],
        )
        for i, row in enumerate(batch.rows)
    }


@pytest.mark.parametrize("backbone", ["tiny_mlm", "tiny_bert"])
def test_a_batch_holds_pieces_of_its_documents_in_special_tokens(backbone, documents, corpus_file, request):
    folder = request.getfixturevalue(backbone)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    [batch] = batches(documents(tokenizer=folder), 1)
    assert isinstance(batch, SpanBatch)
    assert batch.anchors.lengths.shape == (12,)
    assert batch.positives.lengths.shape == (24,)
    assert batch.anchors.ids.dtype == batch.positives.ids.dtype == batch.masked_ids.dtype == torch.int64
    for ragged in (batch.anchors, batch.positives):
        assert ragged.lengths.sum() == len(ragged.ids)
        assert ragged.lengths.dtype == np.int64
    texts = corpus_file.read_text().splitlines()
    for row, (anchors, _, _, positives) in by_document(batch).items():
        # Oracle: the tokenizer itself, on the line; RoBERTa's reader puts a space before the first word
        around = tokenizer(texts[row])["input_ids"]
        whole = {tuple(tokenizer(prefix + texts[row])["input_ids"][1:-1]) for prefix in ("", " ")}
        for sequence in anchors + positives:
            assert (sequence[0], sequence[-1]) == (around[0], around[-1])
            piece = sequence[1:-1]
            assert 4 <= len(piece) <= 16
            assert any(
                list(ids[at : at + len(piece)]) == piece for ids in whole for at in range(len(ids) - len(piece) + 1)
            )


def test_masks_spare_special_tokens_and_labels_are_the_originals(documents):
    batch = batches(documents(mlm_probability=0.5, batch_size=30), 1)[0]
    special = np.isin(batch.anchors.ids, [0, 1, 2, 3, 4])
    predicted = batch.labels.numpy() != IGNORED_LABEL
    assert not predicted[special].any()
    assert predicted[~special].mean() == pytest.approx(0.5, abs=0.06)
    assert torch.equal(batch.labels[predicted], batch.anchors.ids[predicted])
    assert torch.equal(batch.masked_ids[~predicted], batch.anchors.ids[~predicted])


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("passes", [{}, {"anchors_per_document": 1, "match_span_count_of": 2}])
def test_two_or_three_ranks_see_what_one_sees(world, passes, documents):
    whole = batches(documents(**passes), 4)
    ranks = [batches(documents(**passes), 4, rank, world) for rank in range(world)]
    for batch, *shares in zip(whole, *ranks, strict=True):
        assert len({len(share.rows) for share in shares}) == 1
        together = {row: spans for share in shares for row, spans in by_document(share).items()}
        assert together == by_document(batch)


def test_an_epoch_draws_new_spans_and_a_repetition_the_same(documents):
    first, again, later = (batches(documents(), 6, epoch=epoch) for epoch in (0, 0, 1))
    assert [by_document(batch) for batch in first] == [by_document(batch) for batch in again]
    spans = {row: spans for batch in first for row, spans in by_document(batch).items()}
    spans_later = {row: spans for batch in later for row, spans in by_document(batch).items()}
    assert len(spans) == 36
    assert all(spans[row][0] != spans_later[row][0] for row in spans.keys() & spans_later.keys())
    assert list(spans) != list(spans_later)


def test_equalized_epochs_go_over_the_documents_twice_with_new_spans(documents):
    two = ready(documents())
    one = ready(documents(anchors_per_document=1, match_span_count_of=2))
    epoch = batches(one, 100)
    assert one.passes == 2
    assert {len(batch.anchors.lengths) for batch in epoch} == {12} == {len(batches(two, 1)[0].anchors.lengths)}
    assert len(epoch) == 2 * (40 // 12)
    passes = [
        {row: spans[0] for batch in half for row, spans in by_document(batch).items()}
        for half in (epoch[: len(epoch) // 2], epoch[len(epoch) // 2 :])
    ]
    both = passes[0].keys() & passes[1].keys()
    assert len(both) >= 30
    assert sum(passes[0][row] == passes[1][row] for row in both) <= 1
    for anchors, number in ((2, 3), (4, 2)):
        with pytest.raises(InputError) as error:
            passes_per_epoch(anchors, number)
        assert (error.value.key, error.value.value) == ("data.match_span_count_of", number)
        assert f"data.anchors_per_document={anchors}" in error.value.expected


@pytest.mark.parametrize("max_span", [300, "auto"])
@pytest.mark.parametrize("window", ["grid", "uniform"])
def test_equalized_runs_draw_from_the_same_documents(max_span, window, documents):
    settings = {"max_span": max_span, "anchor_placement": window, "batch_size": 2}
    two = ready(documents(**settings))
    one = ready(documents(anchors_per_document=1, match_span_count_of=2, **settings))
    assert one.num_examples == two.num_examples
    assert one.rule.max_span == two.rule.max_span
    wanted = two.num_examples // 2
    assert len(two.train_dataloader()) == wanted
    assert len(one.train_dataloader()) == wanted - wanted % 2  # two passes with batches of twice the documents
    if max_span == 300:
        assert two.num_examples < 40  # some are too short for two anchors ...
        assert ready(documents(anchors_per_document=1, **settings)).num_examples > two.num_examples  # ... not for one


def test_auto_takes_the_largest_span_that_leaves_nine_of_ten(documents):
    rule = RULE
    assert choose_max_span(np.array([64] * 5 + [400] * 95), rule) == 100
    assert choose_max_span(np.array([64] * 15 + [400] * 85), rule) == 16
    assert choose_max_span(np.array([5000] * 10), rule) == 512
    data = ready(documents(max_span="auto", min_span=32))
    chosen, lengths = data.rule.max_span, np.diff(data.store.offsets)
    assert np.mean(lengths >= 4 * chosen) >= 0.9 > np.mean(lengths >= 4 * (chosen + 1))
    assert data.manifest()["spans"]["max_span"] == chosen
    assert data.rule.min_span == min(32, chosen // 4)
    assert len(batches(data, 2)) == 2


def test_a_tokenizer_with_code_of_its_own_is_refused_without_asking(documents, tiny_mlm, tmp_path, monkeypatch):
    folder = shutil.copytree(tiny_mlm, tmp_path / "foreign")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config |= {"tokenizer_class": "ForeignTokenizer", "auto_map": {"AutoTokenizer": [None, "foreign.ForeignTokenizer"]}}
    path.write_text(json.dumps(config))
    model = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**model, "model_type": "foreign"}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked at a prompt"))
    with pytest.raises(InputError) as error:
        ready(documents(tokenizer=folder))
    assert (error.value.key, error.value.value) == ("backbone", str(folder))
    assert "tokenizer" in error.value.expected


def test_short_documents_are_counted_with_advice(documents, caplog):
    caplog.set_level("INFO")
    data = ready(documents(max_span=200, min_span=8, anchors_per_document=1, quiet=False))
    manifest = data.manifest()
    assert manifest["read"] == 40
    assert 0 < manifest["used"] == manifest["long_enough"] == int((np.diff(data.store.offsets) >= 400).sum())
    with pytest.raises(InputError) as error:
        ready(documents(max_span=2000, max_length=3000))
    assert "data.max_span=auto" in str(error.value)


@pytest.mark.parametrize(
    ("settings", "key", "value", "numbers"),
    [
        ({"min_span": 32}, "data.min_span", 32, ["16"]),
        ({"min_document_length": 63}, "data.min_document_length", 63, ["64", "2", "16"]),
        ({"max_length": 5}, "data.max_length", 5, ["6", "4", "2"]),
        ({"batch_size": 41}, "batch_size", 41, ["40"]),
    ],
)
def test_invalid_settings_are_refused(settings, key, value, numbers, documents):
    with pytest.raises(InputError) as error:
        ready(documents(**settings)).train_dataloader()
    assert (error.value.key, error.value.value) == (key, value)
    assert re.findall(r"\d+", error.value.expected) == numbers


def test_without_a_mask_token_nothing_is_masked():
    class Store:
        def text(self, row):
            return np.arange(100)

    specials = special_tokens_of_a_causal_model()
    spans = SpanBatchBuilder(Store(), specials, RULE, seed=0, max_length=512, mlm_probability=0.15)
    batch = spans.build(3, np.array([0]))
    assert len(batch.anchors.lengths) == 2
    assert torch.equal(batch.masked_ids, batch.anchors.ids)
    assert set(batch.labels.tolist()) == {IGNORED_LABEL}
    tokens, drawn = spans.places(3, 0)  # ids are positions in this document
    assert tokens == 100
    for ids, starts, lengths in (
        (batch.anchors.ids, drawn.anchor_starts, drawn.anchor_lengths),
        (batch.positives.ids, drawn.positive_starts, drawn.positive_lengths),
    ):
        ends = zip(starts, lengths, strict=True)
        assert [one for one in ids.tolist() if one] == [at for start, n in ends for at in range(start, start + n) if at]


def special_tokens_of_a_causal_model():
    class Causal:
        all_special_ids, mask_token = [0], None

        def get_vocab(self):
            return {"a": 7}

        def __len__(self):
            return 100

        def __call__(self, text, add_special_tokens):
            return {"input_ids": [7]}

    return special_tokens(Causal())


@pytest.mark.parametrize(("long", "setting"), [(1, "data=sentences"), (3, "data.max_span=auto")])
def test_shorter_spans_are_advised_if_most_documents_are_long_enough_for_them(long, setting, tmp_path, tiny_bert):
    """One of five documents, or three, has 200 words; spans of 512 tokens need more of each."""
    texts = [" ".join(["word"] * (200 if place < long else 3)) for place in range(5)]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    with pytest.raises(InputError) as refused:
        data_module(
            "text", path=tmp_path / "texts.txt", cache_dir=tmp_path / "cache", tokenizer=str(tiny_bert)
        ).prepare_data()
    assert setting in refused.value.hint
