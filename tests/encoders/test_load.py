"""Truth: the results of sentence-transformers and transformers for the same folder."""

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from contrastive_encoders.core import RECORD_VERSION, EncoderPrompts, InputError
from contrastive_encoders.encoders.loading.backbones import POST_POOLING_KEY, load_masked_lm, load_tokenizer
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.sentence_transformers import export_encoder
from tests.conftest import SENTENCES
from tests.decoders import save_decoder

TEXTS = [
    "The ferry leaves the harbour before the market opens.",
    "the ferry leaves the harbour before the market opens.",
    "",
    "   ",
    "rain " * 10_000,
    "🎻 needs a string 👩‍👩‍👧",
    "العبارة تغادر المرفأ",
    "[MASK] [SEP] [PAD] <s> </s> <pad> <mask>",
    " two  blanks ",
    "line\nbreak\ttab\x00null",
]


def by_the_library(folder, texts=TEXTS, **options):
    from sentence_transformers import SentenceTransformer

    with torch.random.fork_rng():
        model = SentenceTransformer(str(folder), device="cpu")
    return model.encode(texts, convert_to_tensor=True, show_progress_bar=False, **options)


def same(found, expected):
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=0)


def export(folder, backbone, **options):
    encoder = SentenceEncoder(load_masked_lm(str(backbone), lm_head=False), load_tokenizer(str(backbone)))
    settings = {"pooling": "mean", "max_length": 40, **options}
    return export_encoder(folder, transformer=encoder.trunk, tokenizer=encoder.tokenizer, **settings)


def change(path: Path, **entries):
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **entries}))


# ------------------------------------------------------------------------------ sentence-transformers


def test_the_packaged_minilm_gives_the_librarys_vectors(minilm_path):
    encoder = load_encoder(minilm_path)
    assert isinstance(encoder, SentenceEncoder)
    same(encoder.embed(TEXTS), by_the_library(minilm_path))
    assert (encoder.description["pooling"], encoder.description["max_length"]) == ("mean", "256")


@pytest.mark.parametrize("backbone", ["tiny_mlm", "tiny_bert"])
def test_folders_that_version_6_writes(tmp_path, request, backbone):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(export(tmp_path / "e", request.getfixturevalue(backbone))), device="cpu").save(
        str(tmp_path / "six"), create_model_card=False
    )
    modules = json.loads((tmp_path / "six" / "modules.json").read_text())
    assert modules[0]["type"].startswith("sentence_transformers.base.")  # the layout is the new one
    encoder = load_encoder(tmp_path / "six")
    assert isinstance(encoder, SentenceEncoder)
    assert encoder.max_length == 40
    same(encoder.embed(TEXTS), by_the_library(tmp_path / "six"))


def test_the_transformer_may_lie_in_a_folder_of_its_own(tmp_path, tiny_mlm):
    flat = export(tmp_path / "e", tiny_mlm)
    deep = tmp_path / "deep"
    (deep / "0_Transformer").mkdir(parents=True)
    for path in flat.iterdir():
        target = deep if path.name in ("modules.json", "1_Pooling", "config_sentence_transformers.json") else None
        shutil.move(path, (target or deep / "0_Transformer") / path.name)
    modules = json.loads((deep / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (deep / "modules.json").write_text(json.dumps(modules))
    assert isinstance(load_encoder(deep), SentenceEncoder)
    same(load_encoder(deep).embed(TEXTS), by_the_library(deep))


def test_lower_case_of_the_folder(tmp_path, tiny_mlm):
    folder = export(tmp_path / "e", tiny_mlm)
    plain = load_encoder(folder)
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    encoder = load_encoder(folder)
    texts = ["The FERRY Leaves", "the ferry leaves", "ΟΔΟΣ İstanbul"]
    same(encoder.embed(texts), by_the_library(folder, texts))
    assert torch.equal(*encoder.embed(texts[:2]))
    assert not torch.equal(*plain.embed(texts[:2]))
    assert encoder.fingerprint != plain.fingerprint


def test_max_length_is_limited_by_the_backbone(tmp_path, tiny_mlm, caplog):
    folder = export(tmp_path / "e", tiny_mlm, max_length=20)
    long = [" ".join(TEXTS) * 3]
    found = load_encoder(folder, max_length=200).embed(long)
    assert not torch.allclose(found, load_encoder(folder).embed(long), atol=1e-3)
    same(found, load_encoder(tiny_mlm, max_length=200).embed(long))
    assert caplog.text == ""
    assert load_encoder(folder, max_length=10_000).max_length == 512
    assert [record.args[:2] for record in caplog.records] == [(10_000, 512)]


def test_prompts(tmp_path, tiny_mlm):
    folder = export(tmp_path / "e", tiny_mlm, prompts=EncoderPrompts({"default": "query: "}, "default"))
    plain = export(tmp_path / "p", tiny_mlm)
    same(load_encoder(folder).embed(TEXTS), by_the_library(folder))
    assert load_encoder(folder).description["prompt"] == "query: "
    same(load_encoder(folder, prompt="").embed(TEXTS), by_the_library(plain))
    same(load_encoder(plain, prompt="x: ").embed(TEXTS), by_the_library(plain, prompt="x: "))
    prints = {load_encoder(plain, prompt=prompt).fingerprint for prompt in (None, "", "x: ", "x:")}
    assert len(prints) == 3


def with_norm_of_layers(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    model = SentenceTransformer(str(folder), device="cpu")
    model.append(LayerNorm(dimension=32))
    model.save(str(folder.with_name("norm")), create_model_card=False)
    return folder.with_name("norm")


def cut_unit_vectors(folder):
    """Make a folder that cuts embeddings after normalization, which only the library does."""
    change(folder / "config_sentence_transformers.json", truncate_dim=7)
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def two_poolings(folder):
    change(folder / "1_Pooling" / "config.json", pooling_mode=["cls", "mean"])
    return folder


def root_of_length(folder):
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"embedding_dimension": 32, "pooling_mode": "mean_sqrt_len_tokens"})
    )
    return folder


def prompt_left_out(folder):
    change(folder / "1_Pooling" / "config.json", include_prompt=False)
    change(folder / "config_sentence_transformers.json", prompts={"q": "query: "}, default_prompt_name="q")
    return folder


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("make", "width", "why"),
    [
        (with_norm_of_layers, 32, "LayerNorm"),
        (cut_unit_vectors, 7, "normalized"),
        (two_poolings, 64, "cls and mean"),
        (root_of_length, 32, "mean_sqrt_len_tokens"),
        (prompt_left_out, 32, "prompt"),
    ],
)
def test_unsupported_models_are_run_by_the_library(tmp_path, tiny_mlm, make, width, why):
    folder = make(export(tmp_path / "e", tiny_mlm))
    encoder = load_encoder(folder)
    assert not isinstance(encoder, SentenceEncoder)
    assert why in encoder.description["pooling"]
    texts = [*TEXTS, TEXTS[0]]
    found = encoder.embed(texts)
    assert found.shape == (len(texts), width)
    same(found, by_the_library(folder, texts))
    assert encoder.fingerprint == load_encoder(folder).fingerprint != load_encoder(folder, prompt="a").fingerprint
    with pytest.raises(InputError) as error:
        load_encoder(folder, pooling="mean")
    assert (error.value.key, error.value.value) == ("pooling", "mean")


@pytest.mark.parametrize("router", [False, True])
def test_code_of_the_folder_is_never_run(tmp_path, tiny_mlm, router):
    folder = export(tmp_path / "e", tiny_mlm)
    (folder / "evil.py").write_text(
        f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\nclass Bad: pass\n"
    )
    modules = json.loads((folder / "modules.json").read_text())
    if router:
        modules[1] = {"idx": 1, "name": "1", "path": "1_R", "type": "sentence_transformers.models.Router"}
        (folder / "1_R").mkdir()
        (folder / "1_R" / "router_config.json").write_text(json.dumps({"types": {"a": "evil.Bad"}, "structure": {}}))
    else:
        modules.append({"idx": 2, "name": "2", "path": "", "type": "evil.Bad"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError) as error:
        load_encoder(folder)
    assert (error.value.key, error.value.value) == ("encoder", str(folder))
    assert "evil.Bad" in error.value.expected
    assert not (tmp_path / "ran").exists()


# --------------------------------------------------------------------------------------- transformers


def mean_by_transformers(model, tokenizer, texts, length=512):
    rows = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=length, return_token_type_ids=False)
        with torch.no_grad():
            rows.append(model(**inputs).last_hidden_state[0].mean(0))
    return torch.stack(rows)


def test_a_transformers_folder_is_pooled_by_its_mean(tiny_mlm):
    encoder = load_encoder(tiny_mlm)
    model = transformers.AutoModel.from_pretrained(tiny_mlm).eval()
    same(encoder.embed(TEXTS), mean_by_transformers(model, transformers.AutoTokenizer.from_pretrained(tiny_mlm), TEXTS))
    assert encoder.description["kind"] == "transformers"
    assert encoder.description["pooling"] == "mean"
    assert encoder.description["max_length"] == "512"
    assert load_encoder(tiny_mlm, pooling="cls").description["pooling"] == "cls"


SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24, "d_kv": 8, "vocab_size": 400}
FAMILIES = {
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES)),
    "t5 encoder": lambda: transformers.T5EncoderModel(transformers.T5Config(**SIZES)),
    "bart": lambda: transformers.BartModel(
        transformers.BartConfig(
            vocab_size=400,
            d_model=16,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=600,
        )
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=400, n_embd=16, n_layer=2, n_head=2, n_positions=600)
    ),
}


def save(folder, family, tokenizer_from):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = FAMILIES[family]().eval()
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tokenizer_from).save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_encoder_of_an_encoder_decoder_and_decoders_alone(tmp_path, tiny_bert, family):
    model = save(tmp_path, family, tiny_bert)
    trunk = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
    encoder = load_encoder(tmp_path)
    expected = mean_by_transformers(trunk, encoder.tokenizer, TEXTS)
    same(encoder.embed(TEXTS), expected)
    if family.startswith("t5"):
        assert not any("decoder" in name for name in encoder.state_dict())


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_text_without_tokens_is_the_zero_vector(tmp_path, tiny_mlm, pooling):
    save(tmp_path, "gpt2", tiny_mlm)
    encoder = load_encoder(tmp_path, pooling=pooling)
    encoder.tokenizer.backend_tokenizer.post_processor = None  # no special tokens, as GPT-2 has none
    found = encoder.embed(["", "rain", ""])
    assert torch.equal(found[0], torch.zeros(16))
    assert torch.equal(found[2], torch.zeros(16))
    assert found[1].norm() > 0


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_read_without_running_it(tmp_path, tiny_mlm):
    folder = shutil.copytree(tiny_mlm, tmp_path / "e")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    same(load_encoder(folder).embed(TEXTS[:2]), load_encoder(tiny_mlm).embed(TEXTS[:2]))
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(InputError) as error:
        load_encoder(folder)
    assert (error.value.key, error.value.value) == ("encoder", str(folder))
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------------------------- runs, checkpoints


@pytest.fixture
def run(tmp_path, tiny_mlm):
    """Make the folder of an unfinished run as train.py leaves it, and the encoder that it contains."""
    return make_run(tmp_path / "run", tiny_mlm, lm_head=True)


def saved_by_a_run(state, settings):
    """Return what a run's checkpoint contains of an encoder with these settings."""
    behind = {"normalize": False, "layers": []}
    settings = dict(settings)
    length = settings.pop("max_length")
    return {"state_dict": state, "hyper_parameters": settings, "max_length": length, POST_POOLING_KEY: behind}


def make_run(folder, backbone, *, lm_head, pooling="cls", max_length=30):
    shutil.copytree(backbone, folder / "backbone")
    model = SentenceEncoder(
        load_masked_lm(str(backbone), lm_head=lm_head),
        load_tokenizer(str(backbone)),
        pooling=pooling,
        max_length=max_length,
    )
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(11)
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    state = {f"encoder.{name}": value for name, value in model.state_dict().items()}
    settings = {"backbone": "outputs/elsewhere/backbone", "pooling": pooling, "max_length": max_length}
    (folder / "checkpoints").mkdir()
    torch.save(saved_by_a_run(state, settings), folder / "checkpoints" / "last.ckpt")
    return folder, model


@pytest.mark.parametrize("lm_head", [True, False])
def test_a_checkpoint_is_the_encoder_that_was_trained(tmp_path, tiny_mlm, lm_head):
    folder, model = make_run(tmp_path / "run", tiny_mlm, lm_head=lm_head)
    for name in (folder, folder / "checkpoints" / "last.ckpt"):
        encoder = load_encoder(name)
        same(encoder.embed(TEXTS), model.embed(TEXTS))
        assert (encoder.pooling, encoder.max_length) == ("cls", 30)
        assert encoder.description["kind"] == "checkpoint"
    assert load_encoder(folder).fingerprint == load_encoder(folder / "checkpoints" / "last.ckpt").fingerprint
    assert load_encoder(folder).fingerprint != load_encoder(tiny_mlm, pooling="cls", max_length=30).fingerprint


def test_the_best_checkpoint_before_the_last_and_the_export_before_both(run, tiny_mlm):
    folder, model = run
    last = folder / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    for value in content["state_dict"].values():
        value.mul_(1.1)
    torch.save(content, folder / "checkpoints" / "best.ckpt")
    best = load_encoder(folder).embed(TEXTS)
    assert not torch.allclose(best, model.embed(TEXTS), atol=1e-3)
    same(load_encoder(last).embed(TEXTS), model.embed(TEXTS))
    export(folder / "encoder", tiny_mlm)
    assert load_encoder(folder).description["kind"] == "run"
    same(load_encoder(folder).embed(TEXTS), by_the_library(folder / "encoder"))


def test_a_truncated_checkpoint_is_refused(run):
    path = run[0] / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError) as error:
        load_encoder(run[0])
    assert (error.value.key, error.value.value) == ("encoder", path)


def test_a_foreign_checkpoint_is_refused(tmp_path):
    torch.save({"state_dict": {"layer.weight": torch.zeros(2)}}, tmp_path / "x.ckpt")
    with pytest.raises(InputError) as error:
        load_encoder(tmp_path / "x.ckpt")
    assert (error.value.key, error.value.value) == ("encoder", tmp_path / "x.ckpt")


def test_a_checkpoint_with_a_changed_backbone_is_refused(run):
    change(run[0] / "backbone" / "config.json", num_hidden_layers=3)
    with pytest.raises(InputError) as error:
        load_encoder(run[0])
    assert (error.value.key, error.value.value) == ("encoder", run[0] / "checkpoints" / "last.ckpt")
    assert "encoder.layer.2" in error.value.expected
    change(run[0] / "backbone" / "config.json", num_hidden_layers=2, intermediate_size=48)
    with pytest.raises(InputError) as error:
        load_encoder(run[0])
    assert "size mismatch" in error.value.expected


# --------------------------------------------------------------------------------------- bad names


def empty(folder):
    (folder / "notes.md").touch()
    return folder


def truncated(folder):
    shutil.copytree(Path(folder).parent / "source", folder, dirs_exist_ok=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return folder


def weights_missing(folder):
    shutil.copytree(Path(folder).parent / "source", folder, dirs_exist_ok=True)
    kept = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in kept.items() if "layer.1" not in k}, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (empty, "notes.md"),
        (truncated, "loaded"),
        (weights_missing, "layer.1"),
        (lambda folder: folder / "nowhere", "/nowhere"),
        (lambda folder: "nobody/has-such-a-model", "Hub"),
        (lambda folder: folder.parent / "sourc", "/source?"),
    ],
)
def test_invalid_names_and_directories_are_refused(tmp_path, tiny_mlm, make, part):
    shutil.copytree(tiny_mlm, tmp_path / "source")
    (tmp_path / "e").mkdir()
    with pytest.raises(InputError) as error:
        load_encoder(name := make(tmp_path / "e"))
    assert (error.value.key, str(error.value.value)) == ("encoder", str(name))
    assert part in str(error.value)


def test_a_backbone_that_does_not_exist_is_refused_with_a_similar_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    for name in ("runs/frst", str(tmp_path / "runs" / "frst")):
        with pytest.raises(InputError) as error:
            load_tokenizer(name)
        assert (error.value.key, error.value.value) == ("backbone", name)
        assert "runs/first?" in error.value.hint
        assert ("Hub" in error.value.expected) == (name == "runs/frst")


@pytest.mark.parametrize("of_a_run", [False, True])
def test_a_decoder_is_read_as_it_is_asked_to_be(tmp_path, of_a_run):
    folder = save_decoder("llama", tmp_path / "m")
    found = {}
    for attention in (None, "causal", "bidirectional"):
        encoder = load_encoder(checkpoint_of(folder, tmp_path / "run") if of_a_run else folder, attention=attention)
        assert encoder.description["attention"] == (attention or "causal")
        config = transformers.AutoConfig.from_pretrained(folder)
        config.is_causal = attention != "bidirectional"
        trunk = transformers.AutoModel.from_pretrained(folder, config=config, attn_implementation="eager")
        found[attention] = encoder.embed(SENTENCES[:4])
        same(found[attention], mean_by_transformers(trunk, encoder.tokenizer, SENTENCES[:4]))
    torch.testing.assert_close(found[None], found["causal"], atol=0, rtol=0)
    assert not torch.allclose(found["causal"], found["bidirectional"], atol=1e-2)


def checkpoint_of(folder, run):
    """Return a checkpoint of this model as train.py writes it."""
    if not run.exists():
        shutil.copytree(folder, run / "backbone")
        (run / "checkpoints").mkdir()
        weights = load_encoder(folder).state_dict()
        settings = {"backbone": str(folder), "pooling": "mean", "max_length": 64}
        state = {f"encoder.{name}": value for name, value in weights.items()}
        torch.save(saved_by_a_run(state, settings), run / "checkpoints" / "last.ckpt")
    return run


def test_products_in_16_bits_leave_weights_and_vectors_in_32(minilm_path):
    """Truth: transformers under autocast."""
    encoder = load_encoder(minilm_path)
    encoder.normalize = False
    whole = encoder.embed(TEXTS)
    model = transformers.AutoModel.from_pretrained(minilm_path)
    with torch.autocast("cpu", torch.bfloat16):
        expected = mean_by_transformers(model, encoder.tokenizer, TEXTS, encoder.max_length)
    found = encoder.embed(TEXTS, autocast=torch.bfloat16)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.float(), atol=2e-2, rtol=0)
    assert (found - whole).abs().max() > 1e-4
    assert torch.equal(encoder.embed(TEXTS), whole)


# ------------------------------------------------------------------------- fingerprint, equal texts


def test_the_fingerprint_changes_with_whatever_changes_a_vector(tmp_path, tiny_mlm):
    folder = shutil.copytree(tiny_mlm, tmp_path / "e")
    original = load_encoder(folder).fingerprint
    assert load_encoder(tiny_mlm).fingerprint == original  # not its location
    for options in ({"pooling": "cls"}, {"prompt": "x"}, {"max_length": 100}, {"precision": "bf16"}):
        assert load_encoder(folder, **options).fingerprint != original
    change(folder / "config.json", hidden_act="relu")
    assert load_encoder(folder).fingerprint != original
    change(folder / "config.json", hidden_act="gelu")
    assert load_encoder(folder).fingerprint == original
    weights = load_file(folder / "model.safetensors")
    weights["roberta.encoder.layer.1.output.dense.bias"][0] += 1e-4
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert load_encoder(folder).fingerprint != original


def test_texts_with_the_same_tokens_are_encoded_once(tiny_bert, monkeypatch):
    encoder = load_encoder(tiny_bert)
    rows = []
    once = encoder.encode_chunk
    monkeypatch.setattr(encoder, "encode_chunk", lambda ids, *rest: (rows.append(len(ids)), once(ids, *rest))[1])
    found = encoder.embed(["The Ferry", "rain", "the ferry", "  THE  ferry ", "rain"])
    assert sum(rows) == 2
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[3])
    assert torch.equal(found[1], found[4])


# --------------------------------------------------------------------------------------- as it is called


def test_one_text_or_many_torch_or_numpy(tiny_mlm, minilm_path, small_word_vectors, tmp_path):
    library = two_poolings(export(tmp_path / "e", tiny_mlm))
    for name in (tiny_mlm, small_word_vectors, library):
        encoder = load_encoder(name)
        rows = encoder.embed(TEXTS[:4])
        assert isinstance(rows, torch.Tensor)
        as_numpy = encoder.embed(TEXTS[:4], convert_to_numpy=True)
        assert type(as_numpy).__name__ == "ndarray"
        assert (as_numpy == rows.numpy()).all()
        assert as_numpy.dtype == "float32"
        one = encoder.embed(TEXTS[0])
        assert one.shape == rows.shape[1:]
        torch.testing.assert_close(one, rows[0], atol=1e-6, rtol=0)
        assert encoder.embed(TEXTS[0], convert_to_numpy=True).shape == one.shape
        assert encoder.embed([]).shape[0] == 0


@pytest.mark.parametrize(
    ("name", "options", "fields"),
    [
        (None, {}, {"key": "name", "value": None}),
        (3, {}, {"key": "name", "value": "int"}),
        (SimpleNamespace(encoder=None), {}, {"key": "name", "value": "SimpleNamespace"}),
        ("x.ckpt", {"device": "nowhere"}, {"key": "device", "value": "nowhere"}),
    ],
    ids=str,
)
def test_error_names_the_argument(name, options, fields):
    with pytest.raises(InputError) as raised:
        load_encoder(name, **options)
    assert {key: getattr(raised.value, key) for key in fields} == fields


@pytest.mark.parametrize("product", ["generator", "reranker"])
def test_a_run_that_trained_no_encoder_is_refused(tmp_path, product):
    (tmp_path / product).mkdir()
    (tmp_path / "results.json").write_text(json.dumps({"version": RECORD_VERSION}), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        load_encoder(tmp_path)
    assert (raised.value.key, raised.value.value) == ("encoder", tmp_path)
    assert raised.value.expected.endswith(product)
