"""Truth: transformers on each sentence alone; the batch without chunks; the entire LM head."""

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from tests.encoders.test_poolers import FAMILIES


def make(path, **options):
    torch.manual_seed(0)
    return SentenceEncoder(load_masked_lm(str(path), lm_head=True), load_tokenizer(str(path)), **options)


def ragged(lengths, vocabulary, seed=0):
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(5, vocabulary, sum(lengths)))
    labels = torch.where(torch.from_numpy(rng.random(sum(lengths)) < 0.2), ids, IGNORED_LABEL)
    return Ragged(ids, np.array(lengths)), labels


def gradients(encoder, sequences, labels, seed=3):
    encoder.zero_grad()
    torch.manual_seed(seed)
    encoded = encoder.encode_sequences(sequences, labels)
    weights = torch.linspace(-1, 1, encoded.vectors.numel()).view_as(encoded.vectors)
    ((encoded.vectors * weights).sum() + encoded.mlm_sum).backward()
    return torch.cat([p.grad.flatten() for p in encoder.parameters()]), encoded


LENGTHS = [3, 50, 7, 7, 31, 12, 4, 50, 22, 9]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_mlm_loss_are_those_of_the_whole_model(family):
    torch.manual_seed(1)
    model = transformers.AutoModelForMaskedLM.from_config(FAMILIES[family]()).eval()
    tokenizer = type("Pads", (), {"pad_token_id": 1, "model_max_length": 60})()
    encoder = SentenceEncoder(model, tokenizer, token_budget=64)
    sequences, labels = ragged([5, 20, 9, 33], 60)
    encoded = encoder.encode_sequences(sequences, labels)
    loss = torch.zeros(())
    for i, (ids, targets) in enumerate(
        zip(sequences.ids.split([5, 20, 9, 33]), labels.split([5, 20, 9, 33]), strict=True)
    ):
        states = model.base_model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).last_hidden_state
        logits = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).logits
        loss = loss + cross_entropy(logits[0], targets, reduction="sum")
        torch.testing.assert_close(encoded.vectors[i], states[0].mean(0), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(encoded.mlm_sum, loss, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("activation_checkpointing", "budget"), [("on", 60), ("layers", 10**6), ("layers", 60)])
def test_what_is_recomputed_repeats_its_own_dropout(tiny_mlm_with_dropout, activation_checkpointing, budget):
    kept, again = (
        make(tiny_mlm_with_dropout, token_budget=budget, activation_checkpointing=r).train()
        for r in ("off", activation_checkpointing)
    )
    sequences, labels = ragged(LENGTHS, 300)
    expected, first = gradients(kept, sequences, labels)
    found, second = gradients(again, sequences, labels)
    assert torch.equal(first.vectors, second.vectors)
    assert (found - expected).norm() <= 1e-6 * expected.norm()  # chunks are summed in another order
    other, _ = gradients(kept, sequences, labels, seed=4)
    assert (other - expected).norm() > 0.01 * expected.norm()  # dropout was active


def test_auto_recomputes_only_what_exceeds_the_budget(tiny_mlm, monkeypatch):
    import contrastive_encoders.encoders.kernels.chunks as module

    calls = []

    def counted(function, *args, **options):
        calls.append(options)
        return function(*args)

    monkeypatch.setattr(module, "checkpoint", counted)
    sequences, labels = ragged([20] * 4, 300)
    make(tiny_mlm, token_budget=80).encode_sequences(sequences, labels)
    assert not calls
    make(tiny_mlm, token_budget=79).encode_sequences(sequences, labels)
    assert len(calls) == 2
    with torch.no_grad():
        make(tiny_mlm, token_budget=79).encode_sequences(sequences, labels)
    assert len(calls) == 2


def test_a_batch_without_a_predicted_token_still_reaches_every_weight(tiny_mlm):
    encoder = make(tiny_mlm)
    sequences, _ = ragged([5, 9], 300)
    found, encoded = gradients(encoder, sequences, torch.full_like(sequences.ids, IGNORED_LABEL))
    assert encoded.mlm_sum.item() == 0
    assert found.isfinite().all()
    assert all(p.grad is not None for p in encoder.parameters())


def test_embed_is_each_text_alone_and_leaves_the_mode(tiny_mlm_with_dropout):
    encoder = make(tiny_mlm_with_dropout).train()
    texts = ["", "  ", "rain", "The ferry leaves. " * 400, "🎻 كمان", "<s> <mask> </s>", " two  blanks "]
    vectors = encoder.embed(texts)
    assert encoder.training
    model = transformers.AutoModel.from_pretrained(tiny_mlm_with_dropout).eval()
    for text, vector in zip(texts, vectors, strict=True):
        inputs = encoder.tokenizer(text, return_tensors="pt", truncation=True, max_length=encoder.max_length)
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)
    assert encoder.embed([]).shape == (0, 32)


def test_max_length_stays_below_the_position_table(tiny_mlm, tiny_bert):
    assert make(tiny_mlm, max_length=10_000).max_length == 512  # 514 positions, two of them below the first token's
    assert make(tiny_bert, max_length=128).max_length == 128


def test_a_sequence_beyond_the_position_table_is_refused(tiny_mlm):
    sequences, _ = ragged([513], 300)
    with pytest.raises(InputError) as error:
        make(tiny_mlm).encode_sequences(sequences)
    assert error.value.value == 513
    assert "512" in error.value.expected
