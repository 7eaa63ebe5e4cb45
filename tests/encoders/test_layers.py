"""Frozen weights and the learning rates of the others, by the names of each family's parts."""

import copy
import re
from types import SimpleNamespace

import pytest
import torch
import transformers

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.layers import NO_SEPARATE_LAYERS, choose_layers, depths, keep_layers
from contrastive_encoders.encoders.lora import is_adapter
from tests.decoders import FAMILIES, save_decoder
from tests.objectives import built

BERT = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 90}
T5 = {"d_model": 32, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 2, "d_ff": 48, "d_kv": 16, "vocab_size": 90}
NAMES = {  # family -> config, number of layers, name of the embeddings, and name of a layer with its number
    "BertForMaskedLM": (
        transformers.BertConfig(**BERT),
        3,
        r"bert\.embeddings|cls.*decoder\.weight",
        r"encoder\.layer\.(\d)",
    ),
    "DistilBertModel": (
        transformers.DistilBertConfig(dim=32, n_layers=3, n_heads=2, hidden_dim=48, vocab_size=90),
        3,
        r"embeddings\.",
        r"transformer\.layer\.(\d)",
    ),
    "ElectraModel": (
        transformers.ElectraConfig(embedding_size=16, **BERT),
        3,
        r"embeddings\.|embeddings_project",
        r"layer\.(\d)",
    ),
    "DebertaV2Model": (
        transformers.DebertaV2Config(relative_attention=True, position_buckets=8, **BERT),
        3,
        r"^embeddings\.|rel_embeddings",
        r"encoder\.layer\.(\d)",
    ),
    "MPNetModel": (
        transformers.MPNetConfig(**BERT),
        3,
        r"^embeddings\.|relative_attention_bias",
        r"encoder\.layer\.(\d)",
    ),
    "ModernBertModel": (transformers.ModernBertConfig(pad_token_id=0, **BERT), 3, r"^embeddings\.", r"^layers\.(\d)"),
    "XLNetModel": (
        transformers.XLNetConfig(d_model=32, n_layer=3, n_head=2, d_inner=48, vocab_size=90),
        3,
        r"word_embedding|mask_emb",
        r"^layer\.(\d)",
    ),
    "T5EncoderModel": (transformers.T5Config(**T5), 3, r"shared|embed_tokens", r"encoder\.block\.(\d)"),
    "T5ForConditionalGeneration": (
        transformers.T5Config(**T5),
        5,
        r"^shared|embed_tokens|lm_head",
        r"(?:encoder|(decoder))\.block\.(\d)",
    ),
    **{
        f"{kind}Model": (FAMILIES[family](vocab_size=90), 2, embeddings, layer)
        for kind, family, embeddings, layer in (
            ("GPT2", "gpt2", r"^w[tp]e\.", r"^h\.(\d)"),
            ("OPT", "opt", r"embed_", r"decoder\.layers\.(\d)"),
            ("Gemma3Text", "gemma3", r"embed_tokens", r"^layers\.(\d)"),
        )
    },
}


@pytest.mark.parametrize("kind", NAMES)
def test_depths_are_those_of_the_names(kind):
    config, layers, embeddings, layer = NAMES[kind]
    found = depths(model := getattr(transformers, kind)(config))
    assert found.layers == layers
    expected = {}
    for name, weight in model.named_parameters():
        if number := re.search(layer, name):
            below = 3 if number[1] == "decoder" else 0  # the encoder's
            expected[weight] = 1 + below + int(number[number.lastindex])
        else:
            expected[weight] = 0 if re.search(embeddings, name) else layers + 1
    for name, weight in model.named_parameters():
        assert found.of[weight] == expected[weight], name
    assert set(expected.values()) >= set(range(layers + 1))


KEPT = [0, 2]  # of three layers
CUT = [kind for kind in NAMES if kind != "T5ForConditionalGeneration"]  # which has two stacks


@pytest.mark.parametrize("kind", CUT)
def test_a_model_that_lost_layers_is_the_same_read_from_its_folder(kind, tmp_path):
    """Its weights are those of the full model, by their names; its states are not."""
    config, layers, _, layer = NAMES[kind]
    kept = KEPT if layers == 3 else [0]
    torch.manual_seed(2)
    model = getattr(transformers, kind)(copy.deepcopy(config)).eval()
    whole = {name: weight.clone() for name, weight in model.state_dict().items()}
    ids = torch.randint(3, 90, (2, 7))
    states = model(input_ids=ids)[0]
    assert keep_layers(model, kept, "this") == kept
    cut = model(input_ids=ids)[0]
    assert not torch.allclose(cut, states, atol=1e-3)
    model.save_pretrained(tmp_path)
    read = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(read(input_ids=ids)[0], cut)
    assert depths(read).layers == len(kept)
    for name, weight in read.state_dict().items():
        number = re.search(layer, name)
        if number:
            at = number.start(number.lastindex)
            name = f"{name[:at]}{kept[int(name[at])]}{name[at + 1 :]}"
        torch.testing.assert_close(weight, whole[name])


def test_a_number_of_layers_is_spaced_evenly_from_the_first_to_the_last():
    spaced = {(4, 6): [0, 2, 3, 5], (6, 12): [0, 2, 4, 7, 9, 11], (1, 6): [0], (2, 6): [0, 5], (6, 6): [*range(6)]}
    assert {key: choose_layers(*key, "this") for key in spaced} == spaced


@pytest.mark.parametrize("wanted", [0, 7, -1, [], [0, 6], [-1, 2], [2, 0], [1, 1]])
def test_missing_layers_are_refused(wanted):
    with pytest.raises(InputError) as error:
        choose_layers(wanted, 6, "this")
    assert (error.value.key, error.value.value) == ("model.keep_layers", wanted)
    assert "6" in error.value.expected


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("T5ForConditionalGeneration", "decoder"),
        ("T5EncoderModel", "layer 0"),
        ("Albert", NO_SEPARATE_LAYERS),
    ],
)
def test_models_that_need_these_layers_are_refused(kind, part):
    sizes = {**BERT, "embedding_size": 16}
    model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)) if kind == "Albert" else None
    with pytest.raises(InputError) as error:
        keep_layers(model or getattr(transformers, kind)(copy.deepcopy(NAMES[kind][0])), [1, 2], "this")
    assert (error.value.key, error.value.value) == ("model.keep_layers", [1, 2])
    assert part in error.value.expected


def optimizer_of(model):
    model.trainer = SimpleNamespace(
        datamodule=SimpleNamespace(train_dataloader=lambda: range(9), num_examples=9), max_steps=9, max_epochs=-1
    )
    return model.configure_optimizers()["optimizer"]


DECODER = {"pooling": "last", "append_eos": True}
LORA = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
FROZEN = [  # objective, its keys, freeze, names of frozen weights
    ("simcse", {}, "embeddings", r"\.embeddings\."),
    ("simcse", {}, "layers:1", r"\.embeddings\.|layer\.0\."),
    ("declutr", {}, "layers:1", r"\.embeddings\.|layer\.0\.|decoder\.weight"),
    ("tsdae", {}, "layers:2", r"\.embeddings\.|encoder\.transformer\.encoder\.layer\."),
    ("gense", {"backbone": "t5"}, "layers:3", r"shared|encoder\.block|decoder\.block\.0\."),
    ("gense_generator", {"backbone": "t5"}, "layers:2", r"shared|encoder\.block"),
    ("sroberta", {"backbone": "llama", **DECODER}, "layers:1", r"embed_tokens|layers\.0\."),
    ("sroberta", {"backbone": "llama", **DECODER, "lora": LORA}, "layers:1", r"^(?!.*lora_)|layers\.0\."),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert, tiny_t5):
    return {"bert": tiny_bert, "t5": tiny_t5, "llama": save_decoder("llama", tmp_path_factory.mktemp("llama"))}


@pytest.mark.parametrize(("name", "keys", "what", "still"), FROZEN)
def test_what_is_frozen_is_not_trained(folders, name, keys, what, still, caplog):
    keys = dict(keys)
    with caplog.at_level("INFO"):
        model = built(name, folders[keys.pop("backbone", "bert")], **keys, freeze=what)
    weights = dict(model.named_parameters(remove_duplicate=False))
    expected = {weight for one, weight in weights.items() if re.search(still, one)}
    assert {weight for weight in weights.values() if not weight.requires_grad} == expected
    assert {w for group in optimizer_of(model).param_groups for w in group["params"]} == set(
        weights.values()
    ) - expected
    count = sum(weight.numel() for weight in set(model.transformer.parameters()) & expected) / 1e6
    assert re.search(rf"freeze={what}: .* {count:.1f} .*\b{what.partition(':')[2] or 0} of", caplog.text)


@pytest.mark.parametrize(("name", "backbone"), [("simcse", "bert"), ("gense", "t5"), ("sroberta", "llama")])
def test_rates_fall_with_the_depth(folders, name, backbone):
    """lr x 0.5^(number of layers above), embeddings below the lowest layer, heads at lr; written out for each name."""
    keys = DECODER if backbone == "llama" else {}
    model = built(name, folders[backbone], lr=0.08, layer_decay=0.5, **keys)
    layers, of = {
        "bert": (2, r"encoder\.layer\.(\d)"),
        "t5": (4, r"(encoder|decoder)\.block\.(\d)"),
        "llama": (2, r"layers\.(\d)"),
    }[backbone]
    rates = {w: group["lr"] for group in optimizer_of(model).param_groups for w in group["params"]}
    for one, weight in model.named_parameters():
        if number := re.search(of, one):
            above = layers - 1 - int(number[number.lastindex]) - (2 if number[1] == "decoder" else 0)
        elif re.search(r"\.embeddings\.|shared|embed_tokens", one):
            above = layers
        else:
            above = 0
        assert rates[weight] == pytest.approx(0.08 * 0.5**above, rel=1e-12), one
    assert len(set(rates.values())) == layers + 1


def test_adapters_have_the_rate_of_their_layer(folders):
    model = built("sroberta", folders["llama"], **DECODER, lora=LORA, lr=0.1, layer_decay=0.1)
    rates = {w: group["lr"] for group in optimizer_of(model).param_groups for w in group["params"]}
    for one, weight in model.named_parameters():
        if is_adapter(one):
            assert rates[weight] == pytest.approx(0.1 if ".layers.1." in one else 0.01), one


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"freeze": "layers:3"}, {"freeze": "layers:3"}),
        ({"freeze": "2"}, {"freeze": "2"}),
        ({"layer_decay": 0.0}, {"model.layer_decay": 0.0}),
        ({"freeze": "layers:2", "mlp": False}, {"freeze": "layers:2"}),
    ],
)
def test_invalid_settings_are_refused(folders, keys, expected):
    with pytest.raises(InputError) as error:
        optimizer_of(built("simcse", folders["bert"], **keys))
    assert (error.value.key, error.value.value) == next((key, value) for key, value in expected.items())


def test_layers_that_share_their_weights_are_none():
    model = transformers.AlbertModel(transformers.AlbertConfig(embedding_size=16, num_hidden_groups=1, **BERT))
    found = depths(model)
    assert found.layers == 0
    assert {found.of[weight] for weight in model.embeddings.parameters()} == {0}
    assert torch.equal(torch.tensor(sorted(set(found.of.values()))), torch.tensor([0, 1]))
