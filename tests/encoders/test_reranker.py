"""model=reranker: pairs as the tokenizer joins them, loss and gradient of transformers, chunks, heads, export."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from contrastive_encoders.core import InputError, Ragged
from contrastive_encoders.encoders.cross_encoder import CrossEncoder, join_pairs, load_reranker, pair_form
from contrastive_encoders.export.reranker import write_reranker
from tests.conftest import SENTENCES
from tests.data import batches, data_module, write_rows
from tests.objectives import built
from tests.variations import slow_after

TEXTS = ["", *SENTENCES, " ".join(SENTENCES[:4]), " ".join(SENTENCES)]


@pytest.fixture(scope="module")
def folders(tiny_mlm, tiny_bert, tmp_path_factory):
    """Make cross-encoders of two families, and one with two labels."""
    folder = tmp_path_factory.mktemp("cross")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3}
    families = {
        "bert": (tiny_bert, BertConfig, BertForSequenceClassification, 1),
        "roberta": (tiny_mlm, RobertaConfig, RobertaForSequenceClassification, 1),
        "two": (tiny_bert, BertConfig, BertForSequenceClassification, 2),
    }
    for name, (backbone, config, model, labels) in families.items():
        tokenizer = AutoTokenizer.from_pretrained(backbone)
        torch.manual_seed(5)
        of_family = {"pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 140, "type_vocab_size": 2}
        made = config(vocab_size=len(tokenizer), num_labels=labels, **sizes, **off, **of_family)
        model(made).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    names = ("anchor", "positive", "negative_1", "negative_2")
    texts = [[f"{SENTENCES[(3 * row + n) % 12]} {n}" * (1 + (row + n) % 2) for n in range(4)] for row in range(6)]
    return write_rows(
        tmp_path_factory.mktemp("rows") / "rows.jsonl", (dict(zip(names, text, strict=True)) for text in texts)
    ), texts


def batch_of(rows, folder, cache, **keys):
    return batches(data_module("triplets", path=rows, tokenizer=folder, batch_size=6, cache_dir=cache, **keys), 1)[0]


def ragged(tokenizer, texts):
    ids = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    return Ragged(torch.cat(ids), np.array([len(one) for one in ids]))


@pytest.mark.rotates
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("max_length", slow_after(2, [6, 130, 24]))
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_two_texts_are_joined_as_the_tokenizer_joins_them(family, max_length, side, folders):
    tokenizer = AutoTokenizer.from_pretrained(folders / family)
    tokenizer.truncation_side = side
    query_of = np.repeat(np.arange(len(TEXTS)), len(TEXTS))
    documents = [TEXTS[n % len(TEXTS)] for n in range(len(query_of))]
    pairs = join_pairs(
        ragged(tokenizer, TEXTS), ragged(tokenizer, documents), query_of, pair_form(tokenizer), max_length
    )
    wanted = tokenizer(
        [TEXTS[query] for query in query_of], documents, truncation="longest_first", max_length=max_length
    )
    assert max(map(len, wanted["input_ids"])) == max_length
    assert [one.tolist() for one in pairs.sequences.ids.split(pairs.sequences.lengths.tolist())] == wanted["input_ids"]
    assert ("token_type_ids" in wanted) == (pairs.types is not None) == (family == "bert")
    if pairs.types is not None:
        types = [one.tolist() for one in pairs.types.split(pairs.sequences.lengths.tolist())]
        assert types == wanted["token_type_ids"]


@pytest.mark.rotates
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token_budget": 100, "activation_checkpointing": "on"},
        {"token_budget": 60},
        {"activation_checkpointing": "layers"},
    ],
    ids=str,
)
@pytest.mark.parametrize(("family", "loss"), [("bert", "binary"), ("roberta", "listwise")])
def test_loss_and_gradient_are_those_of_one_pass_of_transformers(family, loss, options, folders, rows, tmp_path):
    path, texts = rows
    batch = batch_of(path, folders / family, tmp_path)
    model = built("reranker", folders / family, loss=loss, **options)
    outcome = model.training_step(batch, 0)
    outcome["loss"].backward()
    oracle = AutoModelForSequenceClassification.from_pretrained(folders / family)
    tokenizer = AutoTokenizer.from_pretrained(folders / family)
    lists = [texts[row] for row in batch.rows]
    queries, documents = [one[0] for one in lists for _ in range(3)], [text for one in lists for text in one[1:]]
    given = tokenizer(queries, documents, padding=True, truncation=True, max_length=138, return_tensors="pt")
    logits = oracle(**given).logits.view(-1, 3)
    labels = torch.tensor([[1.0, 0.0, 0.0]]).expand(len(lists), 3)
    if loss == "binary":
        theirs = torch.nn.BCEWithLogitsLoss()(logits, labels)
    else:
        theirs = torch.nn.CrossEntropyLoss()(logits, labels.softmax(1))
    theirs.backward()
    torch.testing.assert_close(outcome["loss"], theirs, rtol=1e-5, atol=1e-6)
    first = (logits[:, :1] > logits[:, 1:]).all(1).float().mean()
    torch.testing.assert_close(outcome["metrics"]["positive_first"], first)
    wanted = {name: weight.grad for name, weight in oracle.named_parameters()}
    for name, weight in model.transformer.named_parameters():
        torch.testing.assert_close(weight.grad, wanted[name], rtol=1e-4, atol=2e-6, msg=name)
    real = int(given["attention_mask"].sum())
    assert outcome["spent"]["real_tokens"] == real


def test_scored_pairs_have_their_label_as_the_target(folders, tmp_path):
    rows = [{"sentence1": SENTENCES[n], "sentence2": SENTENCES[n + 1], "score": n / 5} for n in range(6)]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    keys = {"postprocess": "off", "dev_fraction": 0.0, "batch_size": 6, "cache_dir": tmp_path}
    (batch,) = batches(data_module("dino", path=path, tokenizer=folders / "bert", **keys), 1)
    found = built("reranker", folders / "bert").training_step(batch, 0)["loss"]
    oracle = AutoModelForSequenceClassification.from_pretrained(folders / "bert")
    tokenizer = AutoTokenizer.from_pretrained(folders / "bert")
    chosen = [rows[row] for row in batch.rows]
    given = tokenizer(*([one[side] for one in chosen] for side in ("sentence1", "sentence2")), padding=True)
    logits = oracle(**given.convert_to_tensors("pt")).logits.flatten()
    targets = torch.tensor([one["score"] for one in chosen])
    torch.testing.assert_close(found, torch.nn.BCEWithLogitsLoss()(logits, targets), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError) as error:
        built("reranker", folders / "bert", loss="listwise").check_batch(batch)
    assert (error.value.key, error.value.value) == ("model.loss", "listwise")


def test_a_fresh_head_is_drawn_from_the_seed_alone_and_one_that_is_there_is_kept(folders, tiny_bert):
    heads = []
    for seed, state in ((1, 7), (1, 8), (2, 8)):
        torch.manual_seed(state)
        model = built("reranker", tiny_bert, seed=seed).transformer
        assert torch.initial_seed() == state
        heads.append(torch.cat([model.classifier.weight.flatten(), model.bert.pooler.dense.weight.flatten()]))
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert 0.01 < heads[0][:32].std() < 0.04
    kept = AutoModelForSequenceClassification.from_pretrained(folders / "bert").classifier.weight
    assert torch.equal(built("reranker", folders / "bert").transformer.classifier.weight, kept)


def test_logits_are_float32_under_autocast(folders):
    model = load_reranker(folders / "bert", device="cpu")
    texts = SENTENCES[:6], SENTENCES[6:]
    whole, narrow = (model.score_pairs(*texts, autocast=dtype) for dtype in (None, torch.bfloat16))
    assert whole.dtype == narrow.dtype == torch.float32
    assert not torch.equal(narrow, narrow.bfloat16().float())
    torch.testing.assert_close(narrow, whole, atol=0.05, rtol=0.05)


def test_calls_from_several_threads_restore_the_model(folders):
    model = load_reranker(folders / "bert", device="cpu").train()
    texts = SENTENCES * 4, SENTENCES[::-1] * 4
    expected = model.score_pairs(*texts)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.score_pairs(*texts), range(12)))
    assert all(torch.equal(scores, expected) for scores in found)
    assert [name for name, module in model.named_modules() if "forward" in vars(module)] == []
    assert all(module.training for module in model.modules())


def test_what_a_run_leaves_is_scored_alike_by_the_library(folders, tiny_bert, tmp_path):
    from sentence_transformers import CrossEncoder as Library

    results = {"objective": "reranker", "backbone": "org/model", "best_step": 3, "data": [], "cost": {"examples": 5}}
    queries, documents = [text for text in TEXTS for _ in TEXTS], TEXTS * len(TEXTS)
    for name, backbone in {"kept": folders / "roberta", "fresh": tiny_bert}.items():
        model = built("reranker", backbone, max_length=30)
        write_reranker(tmp_path / name, model, {**results, "scores": {"mine/reranked/ndcg@10": 50.0}})
        ours = model.score_pairs(queries, documents)
        theirs = Library(str(tmp_path / name), device="cpu").predict(list(zip(queries, documents, strict=True)))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        torch.testing.assert_close(
            load_reranker(tmp_path / name, device="cpu").score_pairs(queries, documents), ours, atol=1e-5, rtol=0
        )
        assert "text-ranking" in (tmp_path / name / "README.md").read_text()
        assert model.training


def test_an_adapter_trains_with_its_head_and_goes_into_the_folder(folders, tmp_path):
    from sentence_transformers import CrossEncoder as Library

    lora = {"rank": 4, "alpha": None, "dropout": 0.0, "targets": "auto", "stages": "merge", "seed": 3}
    model = built("reranker", folders / "bert", lora=lora)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all("lora" in name or "classifier" in name for name in trained)
    assert any("classifier" in name for name in trained)
    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.1 * torch.randn_like(weight)
    results = {"objective": "reranker", "backbone": "x", "best_step": 3, "data": [], "cost": {"examples": 5}}
    write_reranker(tmp_path / "reranker", model, {**results, "scores": {}})
    theirs = Library(str(tmp_path / "reranker"), device="cpu").predict(list(zip(SENTENCES, TEXTS, strict=False)))
    np.testing.assert_allclose(model.score_pairs(SENTENCES, TEXTS[:12]), theirs, atol=1e-5)


def test_data_without_negatives_is_refused_with_a_command(folders, tmp_path):
    path = write_rows(tmp_path / "two.jsonl", [{"question": text, "answer": text[::-1]} for text in SENTENCES])
    batch = batches(data_module("qa", path=path, tokenizer=folders / "bert", cache_dir=tmp_path), 1)[0]
    with pytest.raises(InputError) as error:
        built("reranker", folders / "bert").check_batch(batch)
    assert (error.value.key, error.value.value) == ("model", "reranker")
    assert "contrastive-encoders mine-negatives" in error.value.hint


def test_other_models_than_cross_encoders_are_refused(folders, tiny_bert, tiny_t5, tmp_path):
    for name, fields in {
        folders / "two": {"location": f"reranker={folders / 'two'}", "value": 2},
        tiny_bert: {"location": f"reranker={tiny_bert}", "value": "BertForMaskedLM"},
        tmp_path / "nothing": {"key": "reranker", "value": str(tmp_path / "nothing")},
    }.items():
        with pytest.raises(InputError) as error:
            load_reranker(name, device="cpu")
        assert [getattr(error.value, field) for field in fields] == [*fields.values()]
    with pytest.raises(InputError) as error:
        built("reranker", folders / "two")
    assert (error.value.location, error.value.value) == (f"backbone={folders / 'two'}", 2)
    with pytest.raises(InputError) as error:
        built("reranker", folders / "bert", max_length=4)
    assert (error.value.key, error.value.value) == ("model.max_length", 4)
    cut = shutil.copytree(folders / "bert", tmp_path / "cut")
    config = json.loads((cut / "config.json").read_text())
    (cut / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InputError) as error:
        load_reranker(cut, device="cpu")
    assert (error.value.key, error.value.value) == ("reranker", str(cut))
    assert "config.json" in error.value.expected


def test_pickled_weights_are_not_loaded(folders, tmp_path):
    folder = shutil.copytree(folders / "bert", tmp_path / "pickled")
    torch.save(AutoModelForSequenceClassification.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InputError) as error:
        load_reranker(folder, device="cpu")
    assert (error.value.key, error.value.value) == ("reranker", str(folder))


def test_a_text_longer_than_the_model_is_cut(folders):
    model = load_reranker(folders / "bert", device="cpu")
    assert isinstance(model, CrossEncoder)
    assert model.max_length == 140
    assert model.score_pairs([" ".join(SENTENCES * 9)], [" ".join(SENTENCES * 9)]).isfinite().all()
