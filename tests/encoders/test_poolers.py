"""Poolers against the hidden states of transformers, one sentence at a time; and export and import of each."""

import json

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged
from contrastive_encoders.encoders.loading.backbones import load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.pooling import POOLERS, Pooler, TokenPooling
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from contrastive_encoders.export.transformers_folder import transformers_example
from tests.objectives import built
from tests.variations import slow_after

OF_THE_TRUNK = [name for name, pooler in POOLERS.items() if not pooler.decodes and not pooler.is_shipped]
BY_HAND = {  # of hidden states (layers + 1, tokens, width)
    "mean": lambda h: h[-1].mean(0),
    "cls": lambda h: h[-1][0],
    "max": lambda h: h[-1].amax(0),
    "last": lambda h: h[-1][-1],
    "weighted_mean": lambda h: sum(i * state for i, state in enumerate(h[-1], 1)) / sum(range(1, len(h[-1]) + 1)),
    "cls_before_pooler": lambda h: h[-1][0],
    "avg_top2": lambda h: (h[-1].mean(0) + h[-2].mean(0)) / 2,
    "avg_first_last": lambda h: (h[1].mean(0) + h[-1].mean(0)) / 2,
    "avg_embedding_last": lambda h: (h[0].mean(0) + h[-1].mean(0)) / 2,
}
SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 60}
FAMILIES = {
    "roberta": lambda: transformers.RobertaConfig(**SMALL, max_position_embeddings=64),
    "bert": lambda: transformers.BertConfig(**SMALL),
    "mpnet": lambda: transformers.MPNetConfig(**SMALL),
    "electra": lambda: transformers.ElectraConfig(**SMALL, embedding_size=16),
    "albert": lambda: transformers.AlbertConfig(**SMALL, embedding_size=16),
    "distilbert": lambda: transformers.DistilBertConfig(vocab_size=60, dim=16, n_layers=3, n_heads=2, hidden_dim=24),
    "modernbert": lambda: transformers.ModernBertConfig(
        **SMALL, pad_token_id=1, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, reference_compile=False
    ),
}
LENGTHS = [5, 20, 9, 2, 33]
TEXTS = ["The ferry leaves the harbour.", "", "Rain fell on the orchard.", "rain " * 200]


def test_every_pooler_is_tried():
    assert BY_HAND.keys() == set(OF_THE_TRUNK)


@pytest.mark.rotates
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("with_mlm", "activation_checkpointing"), slow_after(1, [(True, "on"), (False, "off"), (True, "layers")])
)
def test_poolers_take_the_states_of_transformers(family, with_mlm, activation_checkpointing):
    torch.manual_seed(1)
    model = transformers.AutoModelForMaskedLM.from_config(FAMILIES[family]()).eval()
    tokenizer = type("Pads", (), {"pad_token_id": 1, "model_max_length": 60})()
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 60, sum(LENGTHS)))
    labels = torch.where(torch.arange(len(ids)) % 4 == 0, ids, IGNORED_LABEL) if with_mlm else None
    states = []
    for sequence in ids.split(LENGTHS):
        output = model.base_model(
            input_ids=sequence[None], attention_mask=torch.ones_like(sequence)[None], output_hidden_states=True
        )
        states.append(torch.stack(output.hidden_states)[:, 0])
    losses = set()
    if family == "albert" and activation_checkpointing == "layers":
        with pytest.raises(InputError) as error:
            SentenceEncoder(model, tokenizer, activation_checkpointing=activation_checkpointing)
        assert (error.value.key, error.value.value) == ("model.activation_checkpointing", "layers")
        return
    for pooling, by_hand in BY_HAND.items():
        encoder = SentenceEncoder(
            model, tokenizer, pooling=pooling, token_budget=64, activation_checkpointing=activation_checkpointing
        )
        encoded = encoder.encode_sequences(Ragged(ids, np.array(LENGTHS)), labels)
        expected = torch.stack([by_hand(h) for h in states])
        torch.testing.assert_close(encoded.vectors, expected, atol=3e-6, rtol=1e-5)
        model.zero_grad()
        (encoded.vectors.sum() + encoded.mlm_sum).backward()
        losses.add(round(encoded.mlm_sum.item(), 4))
    assert len(losses) == 1  # MLM is independent of the pooling
    assert (losses != {0.0}) == with_mlm


def build(backbone, **options):
    return SentenceEncoder(load_masked_lm(str(backbone), lm_head=False), load_tokenizer(str(backbone)), **options)


def export(encoder, folder):
    return export_encoder(folder, **parts_of(encoder))


@pytest.mark.parametrize("pooling", OF_THE_TRUNK)
def test_an_exported_encoder_is_read_back_by_ourselves(tiny_bert, pooling, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)  # not by the library
    encoder = build(tiny_bert, pooling=pooling, max_length=40)
    again = load_encoder(export(encoder, tmp_path / "encoder"))
    torch.testing.assert_close(again.embed(TEXTS), encoder.embed(TEXTS), atol=1e-6, rtol=0)


@pytest.fixture
def supervised(tiny_bert):
    return built("simcse", tiny_bert, mlp_only_train=False, seed=3)


def test_a_head_is_read_back_and_belongs_to_its_pooling(supervised, tiny_bert, tmp_path):
    folder = export(supervised.encoder, tmp_path / "encoder")
    again = load_encoder(folder)
    expected = supervised.encoder.embed(TEXTS)
    torch.testing.assert_close(again.embed(TEXTS), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(load_encoder(folder, pooling="cls").embed(TEXTS), expected, atol=1e-6, rtol=0)
    assert again.description["pooling"] == "cls + tanh layer"
    assert again.fingerprint != load_encoder(folder, pooling="cls_before_pooler").fingerprint
    for pooling in ("cls_before_pooler", "mean"):
        plain = build(tiny_bert, pooling=pooling).embed(TEXTS)
        torch.testing.assert_close(load_encoder(folder, pooling=pooling).embed(TEXTS), plain, atol=1e-6, rtol=0)
    half = load_encoder(folder, precision="bf16").embed(TEXTS)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("mlp_only_train", [True, False])
def test_a_checkpoint_has_the_head_where_the_encoder_has_it(tiny_bert, mlp_only_train, tmp_path):
    model = built("simcse", tiny_bert, mlp_only_train=mlp_only_train, seed=3)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.strategy.connect(model)
    path = tmp_path / "checkpoints" / "best.ckpt"
    trainer.save_checkpoint(path)
    found = load_encoder(path)
    assert found.description["pooling"] == ("cls" if mlp_only_train else "cls + tanh layer")
    torch.testing.assert_close(found.embed(TEXTS), model.encoder.embed(TEXTS), atol=1e-6, rtol=0)


def test_a_damaged_head_is_refused(supervised, tmp_path):
    folder = export(supervised.encoder, tmp_path / "encoder")
    weights = folder / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.ones(3, 3)}, weights)
    with pytest.raises(InputError) as error:
        load_encoder(folder)
    assert error.value.location.endswith("2_Dense")
    assert error.value.value == "linear.weight [3, 3]"
    weights.write_bytes(b"cut short")
    with pytest.raises(InputError) as error:
        load_encoder(folder)
    assert "2_Dense" in error.value.expected
    weights.unlink()
    with pytest.raises(InputError) as error:
        load_encoder(folder)
    assert "2_Dense" in error.value.expected
    assert "model.safetensors" in error.value.expected


@pytest.mark.parametrize("change", ["weights", "residual"])
def test_unsupported_modules_are_run_by_the_library(tiny_bert, change, tmp_path):
    """The truth is the library's own answer."""
    library = pytest.importorskip("sentence_transformers")
    pooling = "avg_top2" if change == "weights" else "mean"
    model = built("simcse", tiny_bert, pooling=pooling, mlp_only_train=False, mlp=change != "weights")
    folder = export(model.encoder, tmp_path / "encoder")
    if change == "weights":
        path = folder / "1_WeightedLayerPooling" / "model.safetensors"
        save_file({"layer_weights": load_file(path)["layer_weights"] * torch.tensor([1.0, 2.0, 1.0])}, path)
    else:
        path = folder / "2_Dense" / "config.json"
        options = json.loads(path.read_text())
        path.write_text(json.dumps({**options, "use_residual": True}))
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True)
    found = load_encoder(folder)
    torch.testing.assert_close(found.embed(TEXTS), expected, atol=1e-5, rtol=0)
    assert found.description["kind"] == "sentence-transformers library"


@pytest.mark.parametrize("pooling", ["cls_before_pooler", "pooler_output"])
def test_a_pooling_without_the_mlp_cannot_keep_it(tiny_bert, pooling):
    with pytest.raises(InputError) as error:
        built("simcse", tiny_bert, pooling=pooling, mlp_only_train=False)
    assert (error.value.key, error.value.value) == ("model.pooling", pooling)
    assert "model.mlp_only_train=true" in error.value.hint


# ----------------------------------------------------------------- the layer that a checkpoint ships


@pytest.fixture(scope="module", params=["bert", "roberta", "albert"])
def with_pooler(request, tiny_bert, tmp_path_factory):
    """Make a folder like SimCSE's published ones: a transformers folder whose pooler has its own weights."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = load_tokenizer(str(tiny_bert))
    config = FAMILIES[request.param]()
    config.update({"vocab_size": len(tokenizer), "max_position_embeddings": 514})
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = transformers.AutoModel.from_config(config)
        for weight in model.pooler.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)
    if request.param == "roberta":  # as the only file of roberta-base that has it
        (folder / "model.safetensors").unlink()
        weights = {f"roberta.{name}": weight for name, weight in model.state_dict().items()}
        torch.save(weights, folder / "pytorch_model.bin")
    tokenizer.save_pretrained(folder)
    return folder


def pooler_outputs(folder):
    model, tokenizer = transformers.AutoModel.from_pretrained(folder).eval(), load_tokenizer(str(folder))
    with torch.no_grad():
        inputs = [tokenizer(text, truncation=True, max_length=512, return_tensors="pt") for text in TEXTS]
        return torch.cat([model(**one).pooler_output for one in inputs])


def test_the_shipped_layer_gives_the_pooler_output_of_transformers_and_is_exported(with_pooler, tmp_path):
    expected = pooler_outputs(with_pooler)
    encoder = load_encoder(with_pooler, pooling="pooler_output")
    torch.testing.assert_close(encoder.embed(TEXTS), expected, atol=1e-5, rtol=0)
    assert encoder.description["pooling"] == "pooler_output"
    assert (expected - load_encoder(with_pooler, pooling="cls").embed(TEXTS)).abs().max() > 0.1
    folder = export_encoder(tmp_path / "out", **parts_of(encoder))
    for pooling in (None, "cls", "pooler_output"):
        torch.testing.assert_close(load_encoder(folder, pooling=pooling).embed(TEXTS), expected, atol=1e-5, rtol=0)
    library = pytest.importorskip("sentence_transformers")
    stock = library.SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in stock] == ["Transformer", "Pooling", "Dense"]
    torch.testing.assert_close(stock.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("objective", ["simcse", "declutr"])
def test_training_begins_with_the_shipped_layer_and_keeps_it(tiny_bert, objective, tmp_path):
    """DeCLUTR's backbone is loaded with its masked-LM head, which has no pooler."""
    folder = tmp_path / "backbone"
    model = transformers.BertForPreTraining(transformers.AutoConfig.from_pretrained(tiny_bert))
    model.save_pretrained(folder)
    load_tokenizer(str(tiny_bert)).save_pretrained(folder)
    options = {"mlp": False} if objective == "simcse" else {}
    model = built(objective, folder, pooling="pooler_output", **options).eval()
    torch.testing.assert_close(model.encoder.embed(TEXTS), pooler_outputs(folder), atol=1e-5, rtol=0)
    with torch.no_grad():
        model.encoder.head.linear.weight.mul_(0.5)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(tmp_path / "checkpoints" / "best.ckpt")
    export_encoder(tmp_path / "encoder", **parts_of(model.encoder))
    for place in (tmp_path / "checkpoints" / "best.ckpt", tmp_path):
        torch.testing.assert_close(load_encoder(place).embed(TEXTS), model.encoder.embed(TEXTS), atol=1e-6, rtol=0)
    again = built(objective, tmp_path, pooling="pooler_output", **options)  # the next stage
    torch.testing.assert_close(again.eval().encoder.embed(TEXTS), model.encoder.embed(TEXTS), atol=1e-6, rtol=0)


def test_a_missing_pooler_is_never_initialized_randomly(tiny_bert, tiny_mlm, tmp_path):
    transformers.BertForMaskedLM.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    load_tokenizer(str(tiny_bert)).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        load_encoder(tmp_path, pooling="pooler_output")
    assert (error.value.key, error.value.value) == ("pooling", "pooler_output")
    assert "pooler.dense" in error.value.expected
    with pytest.raises(InputError) as error:
        built("sroberta", tiny_mlm, pooling="pooler_output")
    assert (error.value.key, error.value.value) == ("model.pooling", "pooler_output")
    assert "pooler.dense" in error.value.expected
    config = FAMILIES["distilbert"]()
    config.vocab_size = len(load_tokenizer(str(tiny_bert)))
    transformers.DistilBertModel(config).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        load_encoder(tmp_path, pooling="pooler_output")
    assert (error.value.key, error.value.value) == ("pooling", "pooler_output")
    assert "distilbert" in error.value.expected


def mean_sqrt_len(states, mask):
    weight = mask.unsqueeze(-1).float()
    return (states.float() * weight).sum(1) / weight.sum(1).sqrt()


MEAN_SQRT_LEN = TokenPooling(
    mean_sqrt_len, "mean_sqrt_len_tokens", "(states * mask).sum(1) / mask.sum(1).to(states.dtype).sqrt()"
)


@pytest.mark.parametrize("layers", [(-1,), (0, 1, -1)])
def test_a_pooling_of_a_user_is_one_object(layers, tiny_bert, tmp_path, monkeypatch):
    """The pooling of a user is trained with, exported, read by both libraries, and shown in the card."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setitem(POOLERS, "own", Pooler("own", MEAN_SQRT_LEN, layers))
    encoder = built("pairs", tiny_bert, pooling="own").encoder.eval()
    states = AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    ids = encoder.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        hidden = states(**ids, output_hidden_states=True).hidden_states
    by_hand = torch.stack([hidden[layer][0] for layer in layers]).mean(0)
    by_hand = by_hand.sum(0) / len(by_hand) ** 0.5
    vectors = encoder.embed(TEXTS)
    torch.testing.assert_close(vectors[0], by_hand, atol=1e-5, rtol=1e-5)
    folder = export(encoder, tmp_path / "encoder")
    again = load_encoder(folder)
    assert again.pooling == "own"
    torch.testing.assert_close(again.embed(TEXTS), vectors, atol=1e-6, rtol=0)
    library = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(library.encode(TEXTS, convert_to_numpy=True), vectors, atol=1e-5, rtol=1e-5)
    assert MEAN_SQRT_LEN.formula in transformers_example(encoder)
