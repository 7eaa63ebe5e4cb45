"""A backbone that is an encoder already stays the same encoder under every objective, until it is trained.

Truth: stock sentence-transformers, which writes the directories and reads the exported ones, and scipy on embeddings.
"""

import json
import logging
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModel, BertForMaskedLM, BertForPreTraining
from transformers.utils import logging as transformers_logging

from contrastive_encoders.core import NO_PROMPTS, InputError, RatedPairs
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from contrastive_encoders.training.startup_summary import changed_keys
from tests.encoders.test_behind_pooling import NORMALIZE, changed, dense, made
from tests.objectives import built
from tests.variations import slow_after

library = pytest.importorskip("sentence_transformers")

OBJECTIVES = sorted(MODEL_CONFIGS.keys() - {"gense_generator", "reranker"})
TEXTS = [
    "The ferry leaves the harbour before the market opens.",
    "RAIN fell on the orchard for the third day in a row.",
    "",
    "Bread rises slowly in a cold kitchen. " * 40,
    "She repaired the clock with a spoon.",
    "Two astronomers argued about the color of the comet, and nobody in the choir could remember the second verse.",
]
PAIRS = RatedPairs("own", TEXTS, TEXTS[1:] + TEXTS[:1], np.array([3.0, 1.0, 0.0, 2.0, 5.0, 4.0]), ["own"] * 6)
PAIRS_OF = {text: place for place, text in enumerate(TEXTS)}
PROMPTS = {"query": "query: ", "passage": "passage: "}


class Directory(NamedTuple):
    """The options with which a directory of sentence-transformers is made."""

    pooling: str = "mean"
    behind: tuple = ()
    max_length: int | None = None
    prompts: dict | None = None
    default_prompt: str | None = None
    backbone: str = "tiny_bert"


SQUARE, WIDE, NARROW = dense(32, 32), dense(32, 48, torch.nn.GELU), dense(48, 12, torch.nn.Identity, bias=False)
DIRECTORIES = {
    "mean": Directory(),
    "mean_unit": Directory("mean", (NORMALIZE,), 16),
    "mean_dense": Directory("mean", (SQUARE,), 64),
    "mean_layers_unit": Directory("mean", (WIDE, NARROW, NORMALIZE), 20),
    "mean_prompts": Directory("mean", (NORMALIZE,), 256, PROMPTS),
    "mean_roberta": Directory("mean", (), 24, PROMPTS, "query", "tiny_mlm"),
    "cls": Directory("cls"),
    "cls_unit": Directory("cls", (NORMALIZE,), 12),
    "cls_dense_prompts": Directory("cls", (SQUARE,), 64, PROMPTS, "passage"),
    "last": Directory("lasttoken", (), 24),
    "last_unit": Directory("lasttoken", (NORMALIZE,), 16, PROMPTS, "query"),
    "last_dense_unit": Directory("lasttoken", (dense(32, 8, torch.nn.ReLU), NORMALIZE), 100),
}
VARIED = [
    "mean",
    "mean_roberta",
    "cls_dense_prompts",
    "last_dense_unit",
]  # each differs from the others in most options


def write(directory, how, backbones):
    made(directory, backbones[how.backbone], *how.behind, pooling=how.pooling)
    model = library.SentenceTransformer(str(directory), device="cpu")
    if how.max_length:
        model.max_seq_length = how.max_length
    model.prompts = how.prompts or {}
    model.default_prompt_name = how.default_prompt
    model.save(str(directory), create_model_card=False)
    return directory


@pytest.fixture(scope="module")
def backbones(tiny_bert, tiny_mlm, tmp_path_factory):
    """The BERT has larger weights: with those of ``tiny_bert`` the first token has nearly one state in all texts."""
    larger = shutil.copytree(tiny_bert, tmp_path_factory.mktemp("backbones") / "larger")
    model = BertForMaskedLM.from_pretrained(larger)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6 if weight.ndim > 1 else 1)
    model.save_pretrained(larger)
    return {"tiny_bert": larger, "tiny_mlm": tiny_mlm}


@pytest.fixture(scope="module", params=slow_after(4, [*VARIED, *(name for name in DIRECTORIES if name not in VARIED)]))
def directory(request, backbones, tmp_path_factory):
    return write(tmp_path_factory.mktemp("own") / request.param, DIRECTORIES[request.param], backbones)


def encode(directory, **options):
    """The embeddings of stock sentence-transformers: plain, of queries, and of documents."""
    model = library.SentenceTransformer(str(directory), device="cpu")
    return [encode(TEXTS, **options) for encode in (model.encode, model.encode_query, model.encode_document)]


def untrained(name, directory, **changed):
    keys = {"teacher": str(directory)} if name == "distil" else {}
    return built(name, directory, **keys, **changed)


def accepts(name, directory):
    """TSDAE's decoder reads embeddings that are as wide as its own states."""
    return name != "tsdae" or library.SentenceTransformer(str(directory), device="cpu").get_embedding_dimension() == 32


def export(model, target):
    return export_encoder(target, **parts_of(model.encoder))


@pytest.mark.rotates
def test_every_objective_leaves_an_encoder_as_it_is(directory, tmp_path):
    expected = encode(directory)
    if prompts := DIRECTORIES[directory.name].prompts:
        # the library adds an empty prompt `document` when it loads a directory, and then does not use `passage`
        model = library.SentenceTransformer(str(directory), device="cpu")
        expected[2] = model.encode(TEXTS, prompt=prompts["passage"])
    rows = [np.stack([expected[0][PAIRS_OF[text]] for text in side]) for side in (PAIRS.left, PAIRS.right)]
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(*rows, strict=True)]
    before = 100 * spearmanr(cosines, PAIRS.gold).statistic
    length = library.SentenceTransformer(str(directory), device="cpu").max_seq_length
    place = list(DIRECTORIES).index(directory.name)
    for number, name in enumerate(OBJECTIVES):
        if not accepts(name, directory):
            with pytest.raises(InputError) as refused:
                untrained(name, directory)
            assert refused.value.key == "backbone"
            continue
        model = untrained(name, directory)
        assert model.changes == {}, name
        np.testing.assert_allclose(model.encoder.embed(TEXTS).numpy(), expected[0], atol=1e-5, rtol=0, err_msg=name)
        scores = Suite([PAIRS]).before(model, intervals=False).values
        assert scores["own/cosine/spearman"] == pytest.approx(before, abs=1e-3), name
        if (place + number) % 3:
            continue  # each objective is exported from a third of the directories
        exported = export(model, tmp_path / name)
        assert library.SentenceTransformer(str(exported), device="cpu").max_seq_length == length, name
        for found, wanted in zip(encode(exported), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0, err_msg=name)


def options_of(directory, file, **options):
    changed(directory, file, **options)
    return directory


def old_layout(directory, target):
    """Make the layout of version 2 of the library, which has a separate directory for the transformer."""
    (target / "0_Transformer").mkdir(parents=True)
    for path in directory.iterdir():
        beside = path.name in ("modules.json", "config_sentence_transformers.json", "1_Pooling")
        shutil.move(path, target / path.name if beside else target / "0_Transformer" / path.name)
    modules = json.loads((target / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (target / "modules.json").write_text(json.dumps(modules))
    return target


OTHERS = {
    "truncate_dim": lambda made, target: options_of(made, "config_sentence_transformers.json", truncate_dim=8),
    "do_lower_case": lambda made, target: options_of(made, "sentence_bert_config.json", do_lower_case=True),
    "old_layout": old_layout,
    "longer_than_the_tokenizer": lambda made, target: options_of(made, "tokenizer_config.json", model_max_length=20),
}


@pytest.mark.rotates
@pytest.mark.parametrize("name", ["pairs", "tsdae"])
@pytest.mark.parametrize("kind", OTHERS)
def test_options_of_a_directory_are_kept(tiny_mlm, tmp_path, kind, name):
    directory = OTHERS[kind](
        write(tmp_path / "made", Directory(max_length=48), {"tiny_bert": tiny_mlm}), tmp_path / "it"
    )
    if name == "tsdae" and kind == "truncate_dim":
        pytest.skip("its decoder reads complete embeddings")
    expected = encode(directory)[0]
    model = untrained(name, directory)
    assert model.changes == {}
    np.testing.assert_allclose(model.encoder.embed(TEXTS).numpy(), expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(encode(export(model, tmp_path / "exported"))[0], expected, atol=1e-5, rtol=0)


CHANGES = [
    ("simcse", {}, {}),
    ("simcse", {"pooling": "mean", "normalize": True, "max_length": 32}, {}),
    ("simcse", {"pooling": "cls"}, {"model.pooling": ["mean", "cls"]}),
    ("simcse", {"normalize": False}, {"model.normalize": [True, False]}),
    ("simcse", {"max_length": 8}, {"model.max_length": [32, 8]}),
    ("simcse", {"mlp_only_train": None}, {}),
    ("simcse", {"mlp_only_train": False}, {"model.mlp_only_train": [True, False]}),
    ("pairs", {"keep_layers": 2}, {}),
    ("pairs", {"keep_layers": 1}, {"model.keep_layers": [2, 1]}),
    ("gense", {"prompt_suffix": None}, {}),
    ("gense", {"prompt_suffix": " It is:"}, {"model.prompt_suffix": ["", " It is:"]}),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "keys", "changes"), CHANGES)
def test_only_what_is_set_changes_an_encoder(backbones, tmp_path, name, keys, changes):
    directory = write(tmp_path / "made", Directory("mean", (NORMALIZE,), 32), backbones)
    model = untrained(name, directory, **keys)
    assert model.changes == changes
    difference = np.abs(model.encoder.embed(TEXTS).numpy() - encode(directory)[0]).max()
    assert (difference > 1e-3) == bool(changes)


def test_prompts_that_are_turned_off_change_an_encoder(backbones, tmp_path):
    model = untrained("pairs", write(tmp_path / "made", DIRECTORIES["mean_roberta"], backbones))
    model.encoder.prompts = NO_PROMPTS  # as data.prompts={} does
    own = {"query": "query: ", "document": "passage: ", "default": "query: "}
    assert model.changes == {"data.prompts": [own, {}]}
    assert changed_keys(model.changes) == ["data.prompts={}"]


@pytest.mark.parametrize(
    ("name", "pooling"), [("simcse", "cls"), ("tsdae", "cls"), ("declutr", "mean"), ("sroberta", "mean")]
)
def test_a_plain_transformer_has_the_pooling_of_the_objective(tiny_mlm, name, pooling):
    model = untrained(name, tiny_mlm)
    assert (model.encoder.pooling, model.changes) == (pooling, {})


def test_supervised_simcse_keeps_its_layer_in_an_encoder_made_of_a_plain_transformer(tiny_bert):
    model = untrained("simcse", tiny_bert, mlp_only_train=None)
    assert (model.encoder.pooled, model.changes) == ("cls + tanh layer", {})


@pytest.mark.advice("contrastive_encoders.encoders.loading.own_encoder:own_encoder")
def test_what_cannot_be_kept_is_refused_until_a_pooling_is_set(tiny_bert, tmp_path):
    directory = made(tmp_path / "made", tiny_bert, ("LayerNorm", {"dimension": 32}), NORMALIZE)
    with pytest.raises(InputError) as refused:
        untrained("pairs", directory)
    assert (refused.value.key, refused.value.value) == ("backbone", str(directory))
    assert "model.pooling=mean" in refused.value.hint
    model = untrained("pairs", directory, pooling="mean")
    assert model.changes == {"model.pooling": ["its own", "mean"]}
    plain = encode(made(tmp_path / "plain", tiny_bert_of(directory, tmp_path)))[0]
    np.testing.assert_allclose(model.encoder.embed(TEXTS).numpy(), plain, atol=1e-5, rtol=0)


def tiny_bert_of(directory, tmp_path):
    """The transformer of a directory without its modules."""
    plain = shutil.copytree(directory, tmp_path / "transformer")
    (plain / "modules.json").unlink()
    return plain


@pytest.mark.advice("contrastive_encoders.encoders.loading.trainable:TrainableEncoder.load#2")
def test_a_prompt_behind_the_texts_is_kept_where_it_is_trained_and_refused_elsewhere(tiny_t5, tmp_path):
    directory = export(untrained("gense", tiny_t5, prompt_suffix=" It is:"), tmp_path / "gense")
    expected = encode(directory)[0]
    model = untrained("gense", directory)
    assert (model.encoder.pooling, model.encoder.prompt_suffix, model.changes) == ("first_decoder", " It is:", {})
    np.testing.assert_allclose(model.encoder.embed(TEXTS).numpy(), expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(encode(export(model, tmp_path / "again"))[0], expected, atol=1e-5, rtol=0)
    with pytest.raises(InputError) as refused:
        untrained("pairs", directory)
    assert (refused.value.key, " model=gense," in refused.value.hint) == ("backbone", True)


class Records(logging.Handler):
    """Keep the messages of a logger, whether the logger propagates (transformers does if CI is set) or not."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def load_report(directory):
    """Return the model and the load reports of transformers while it and sentence-transformers load a directory."""
    records = Records()
    logger = logging.getLogger("transformers")
    logger.addHandler(records)
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    try:
        model = AutoModel.from_pretrained(directory)
        library.SentenceTransformer(str(directory), device="cpu")
    finally:
        logger.removeHandler(records)
        transformers_logging.set_verbosity(verbosity)
    return model, [message for message in records.messages if "LOAD REPORT" in message]


@pytest.mark.parametrize("name", ["pairs", "declutr", "tsdae"])
def test_the_pooler_of_the_backbone_is_exported(tiny_bert, tmp_path, name):
    """DeCLUTR trains a masked-LM head, whose model has no pooler, if the checkpoint has that head."""
    backbone = tmp_path / "backbone"
    shutil.copytree(tiny_bert, backbone)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        whole = BertForPreTraining.from_pretrained(tiny_bert)
    whole.save_pretrained(backbone)
    model = untrained(name, backbone)
    assert not any("pooler" in key for key, _ in model.named_parameters())
    exported = export(model, tmp_path / "exported")
    loaded, reports = load_report(exported)
    assert reports == []
    for key, weight in whole.bert.pooler.state_dict().items():
        torch.testing.assert_close(loaded.pooler.state_dict()[key], weight, atol=0, rtol=0)
    _, reports = load_report(export(untrained("pairs", exported), tmp_path / "again"))
    assert reports == []


def test_a_backbone_without_a_pooler_is_exported_without_one(tiny_bert, tmp_path):
    exported = export(untrained("pairs", tiny_bert), tmp_path / "exported")
    _, reports = load_report(exported)
    assert len(reports) == 1  # of transformers, which knows no option for it; sentence-transformers reads the option
    options = json.loads((exported / "sentence_bert_config.json").read_text())
    assert options["model_kwargs"] == {"add_pooling_layer": False}
