"""LoRA: the adapted layer against the paper's equation, the contents of checkpoints, and what other libraries load.

h = W x + (alpha / r) B A x (Hu et al. 2021, eq. 3), so with M = W + (alpha / r) B A the gradients are dB = (alpha / r)
dM A^T and dA = (alpha / r) B^T dM.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModel
from transformers.pytorch_utils import Conv1D

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.encoders.lora import is_adapter, merged, record_of, restore
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from tests.decoders import save_decoder
from tests.objectives import built

LORA = {"rank": 4, "alpha": 12.0, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
TEXTS = ["The ferry leaves the harbour.", "", "Rain fell on the orchard for the third day in a row.", "A violin."]
DECODER = {"pooling": "last", "append_eos": True, "attention": "bidirectional", "max_length": 24}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert, tiny_t5):
    made = {family: save_decoder(family, tmp_path_factory.mktemp(family)) for family in ("llama", "gpt2")}
    return {"bert": tiny_bert, "t5": tiny_t5, **made}


def adapted(folder, family="llama", **keys):
    """Return an objective whose adapter has nonzero weights."""
    own = {"llama": DECODER, "gpt2": DECODER, "bert": {"pooling": "mean"}, "t5": {"pooling": "first_decoder"}}[family]
    return unzeroed(built("gense" if family == "t5" else "sroberta", folder, **own, **{"lora": LORA} | keys))


def unzeroed(model):
    drawn = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight.data, std=0.1, generator=drawn)
    return model.eval()


def by_hand(plain, model):
    """Return an objective without adapters, with the products of ``model`` added to its weights one by one."""
    trained = dict(model.named_parameters())
    for name, weight in plain.named_parameters():
        stem = name.removesuffix(".weight")
        if f"{stem}.lora_A.1.weight" in trained:
            product = trained[f"{stem}.lora_B.1.weight"] @ trained[f"{stem}.lora_A.1.weight"]
            owner = plain.get_submodule(stem)
            weight.data += 12.0 / 4 * (product.T if isinstance(owner, Conv1D) else product).detach()
    return plain


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5"])
def test_vectors_and_gradients_are_those_of_the_equation(folders, family):
    model = adapted(folders[family], family)
    plain = by_hand(adapted(folders[family], family, lora=LORA | {"rank": None, "alpha": None}), model)
    np.testing.assert_allclose(model.encoder.embed(TEXTS), plain.encoder.embed(TEXTS), atol=2e-5)
    sequences = model.encoder.tokenize(TEXTS)
    if model.encoder.appended:
        sequences = model.encoder.appended(sequences)
    direction = torch.linspace(-1, 1, len(TEXTS) * model.encoder.width).view(len(TEXTS), -1)
    for one in (model, plain):
        (one.encoder.encode_sequences(sequences).vectors * direction).sum().backward()
    trained, whole = dict(model.named_parameters()), dict(plain.named_parameters())
    adapters = {name for name, weight in trained.items() if weight.requires_grad}
    assert adapters == {name for name in trained if is_adapter(name)}
    linears = [name for name, one in plain.encoder.trunk.named_modules() if isinstance(one, torch.nn.Linear | Conv1D)]
    assert len(adapters) == 2 * len(linears) > 0
    for name in linears:
        stem = f"encoder.transformer.{name}"
        a, b = (trained[f"{stem}.lora_{side}.1.weight"] for side in "AB")
        gradient = whole[f"{stem}.weight"].grad
        gradient = gradient.T if isinstance(plain.get_submodule(stem), Conv1D) else gradient
        torch.testing.assert_close(b.grad, 3.0 * gradient @ a.T, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(a.grad, 3.0 * b.T @ gradient, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_what_writes_learns_by_the_same_equation(folders, family):
    model = unzeroed(built("gense_generator", folders[family], lora=LORA))
    plain = by_hand(built("gense_generator", folders[family]), model)
    sources, targets = (Ragged(torch.arange(5, 5 + sum(n)), np.array(n)) for n in ([7, 4, 9], [3, 5, 1]))
    ours, wanted = (one.seq2seq.write(sources, targets).losses_N for one in (model, plain))
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-4)
    ours.sum().backward()
    moved = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert moved == {name for name in dict(model.named_parameters()) if is_adapter(name)}


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_weights_held_in_16_bits_are_rounded_and_no_more(folders, family):
    """The embeddings are those of a float32 model whose frozen matrices were rounded beforehand."""
    held = adapted(folders[family], family, frozen_dtype="bf16")
    rounded = adapted(folders[family], family)
    halved = {name for name, weight in held.named_parameters() if weight.dtype == torch.bfloat16}
    assert any("q" in name for name in halved)
    assert not any(is_adapter(name) or "norm" in name.lower() for name in halved)
    for name, weight in rounded.named_parameters():
        weight.data = weight.data.bfloat16().float() if name in halved else weight.data
    np.testing.assert_allclose(held.encoder.embed(TEXTS), rounded.encoder.embed(TEXTS), atol=1e-5)
    sequences = held.encoder.tokenize(TEXTS)
    for one in (held, rounded):
        one.encoder.encode_sequences(
            sequences if family != "t5" else one.encoder.appended(sequences)
        ).vectors.square().sum().backward()
    wanted = dict(rounded.named_parameters())
    for name, weight in held.named_parameters():
        if weight.requires_grad:
            torch.testing.assert_close(weight.grad, wanted[name].grad, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("frozen_dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5"])
def test_the_export_has_the_adapter_in_its_weights(folders, tmp_path, family, frozen_dtype):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    encoder = adapted(folders[family], family, frozen_dtype=frozen_dtype).encoder
    folder = export_encoder(tmp_path / "encoder", **parts_of(encoder))
    stock = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(stock.encode(TEXTS), encoder.embed(TEXTS), atol=2e-5)
    assert any(map(is_adapter, encoder.state_dict()))  # it is unchanged


def test_first_weights_are_a_function_of_the_seed_and_change_nothing(folders):
    first, again = (built("sroberta", folders["llama"], **DECODER, lora=LORA) for _ in range(2))
    other = built("sroberta", folders["llama"], **DECODER, lora=LORA | {"seed": 4})
    plain = built("sroberta", folders["llama"], **DECODER)
    torch.testing.assert_close(first.encoder.embed(TEXTS), plain.encoder.embed(TEXTS), atol=1e-6, rtol=0)
    weights, same, others = (dict(one.named_parameters()) for one in (first, again, other))
    for name, weight in weights.items():
        assert torch.equal(weight, same[name])
        assert torch.equal(weight, others[name]) == (".lora_A." not in name)


def test_a_checkpoint_holds_adapters_and_knows_what_they_stand_on(folders, tmp_path):
    model = adapted(folders["llama"])
    checkpoint = {"state_dict": dict(model.state_dict())}
    model.on_save_checkpoint(checkpoint)
    assert all(map(is_adapter, checkpoint["state_dict"]))
    other = adapted(folders["llama"], lora=LORA | {"seed": 9})
    other.on_load_checkpoint(loaded := {**checkpoint, "state_dict": dict(checkpoint["state_dict"])})
    other.load_state_dict(loaded["state_dict"])  # strict
    assert torch.equal(other.encoder.embed(TEXTS), model.encoder.embed(TEXTS))

    changed = AutoModel.from_pretrained(folders["llama"])
    changed.layers[0].mlp.up_proj.weight.data[0, 0] += 1e-3
    with pytest.raises(InputError) as error:
        restore(changed, record_of(model), checkpoint["state_dict"], "encoder=x")
    assert error.value.location == "encoder=x"
    assert "trunk" in error.value.expected
    again = restore(
        AutoModel.from_pretrained(folders["llama"]), record_of(model), checkpoint["state_dict"], "encoder=x"
    )
    for name, weight in merged(model.encoder.trunk).named_parameters():
        torch.testing.assert_close(again.get_parameter(name), weight)


def test_another_language_model_head_below_an_adapter_is_refused(tiny_mlm):
    """The head is frozen, so no checkpoint contains it, although the masked-LM loss passes through it."""
    model, other = (unzeroed(built("declutr", tiny_mlm, lora=LORA)) for _ in range(2))
    checkpoint = {"state_dict": dict(model.state_dict())}
    model.on_save_checkpoint(checkpoint)
    other.on_load_checkpoint({**checkpoint, "state_dict": dict(checkpoint["state_dict"])})
    changed = built("declutr", tiny_mlm, lora=LORA)
    changed.transformer.lm_head.dense.weight.data[0, 0] += 1e-3
    with pytest.raises(InputError) as error:
        changed.on_load_checkpoint(checkpoint)
    assert error.value.location == "resume"
    assert "head" in error.value.expected


@pytest.mark.parametrize("name", ["sroberta", "tsdae"])
def test_a_new_stacked_adapter_does_not_change_embeddings(tiny_bert, tmp_path, name):
    before = unzeroed(built(name, tiny_bert, pooling="mean", lora=LORA))
    before.on_save_checkpoint(checkpoint := {"state_dict": dict(before.state_dict())})
    (tmp_path / "checkpoints").mkdir()
    torch.save(checkpoint, tmp_path / "checkpoints" / "best.ckpt")
    export_encoder(tmp_path / "encoder", **parts_of(before.encoder))
    stacked = built(name, tmp_path, pooling="mean", lora=LORA | {"stages": "stack"})
    np.testing.assert_allclose(stacked.encoder.embed(TEXTS), before.encoder.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "field", "part"),
    [
        ({"lora": LORA | {"targets": ["q_proj", "query"]}}, ("model.lora.targets", ["q_proj", "query"]), "query"),
        ({"lora": LORA | {"rank": None}}, ("model.lora.alpha", 12.0), "model.lora.rank"),
        ({"frozen_dtype": "bf16"}, ("model.frozen_dtype", "bf16"), "model.lora.rank"),
    ],
)
def test_invalid_settings_are_refused(folders, keys, field, part):
    with pytest.raises(InputError) as error:
        built("sroberta", folders["llama"], **DECODER, **keys)
    assert (error.value.key, error.value.value) == field
    assert part in error.value.expected
