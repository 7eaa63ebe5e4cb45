"""The prompts of a backbone, a sentence-transformers directory, stay with the encoder that is trained from it.

The truth is sentence-transformers' own ``encode``, ``encode_query`` and ``encode_document`` on the same directory.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from contrastive_encoders import compose, train
from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.objectives.guide import GuideEncoder
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.training.build import make_data, make_model
from contrastive_encoders.training.composition.literal_values import literal_overrides
from contrastive_encoders.training.encoder_prompts import settle_prompts
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.teacher import _embed_rows
from tests.conftest import SENTENCES
from tests.data import batches
from tests.training.test_from_python import same, weights
from tests.variations import slow_after

library = pytest.importorskip("sentence_transformers")
from sentence_transformers.sentence_transformer import evaluation, modules  # noqa: E402

EMPTY = {"query": "the river: ", "document": "", "passage": "old maps: "}  # as current versions of the library save E5
E5 = {"query": "the river: ", "passage": "old maps: "}
NEW = {"query": "the river: ", "document": "old maps: ", "plain": "in winter: "}
ROWS = [
    {"anchor": text, "positive": f"{text} {other}", "negative": other[::-1]}
    for text, other in zip(SENTENCES, [*SENTENCES[5:], *SENTENCES[:5]], strict=True)
]


def directory(folder: Path, backbone: Path, prompts: dict, default: str | None = None, **pooling) -> Path:
    transformer = modules.Transformer(str(backbone), max_seq_length=24)
    pooled = modules.Pooling(transformer.get_embedding_dimension(), "mean", **pooling)
    library.SentenceTransformer(modules=[transformer, pooled], device="cpu").save(str(folder))
    path = folder / "config_sentence_transformers.json"
    chosen = {"prompts": prompts, "default_prompt_name": default}
    path.write_text(json.dumps({**json.loads(path.read_text()), **chosen}))
    return folder


@pytest.fixture(scope="module")
def e5(tiny_bert, tmp_path_factory):
    """Make a directory like E5's: ``passage`` instead of ``document``, and no default prompt."""
    return directory(tmp_path_factory.mktemp("e5") / "encoder", tiny_bert, E5)


@pytest.fixture(scope="module")
def empty(tiny_bert, tmp_path_factory):
    """Make a directory whose prompt ``document`` is empty, so that ``passage`` is the prompt of documents."""
    return directory(tmp_path_factory.mktemp("empty") / "encoder", tiny_bert, EMPTY)


@pytest.fixture(scope="module")
def newer(tiny_bert, tmp_path_factory):
    """Make a directory with a default prompt."""
    return directory(tmp_path_factory.mktemp("newer") / "encoder", tiny_bert, NEW, "plain")


def stock(folder: Path):
    return library.SentenceTransformer(str(folder), device="cpu")


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def views_of(data: str, path: Path, backbone: Path, *overrides: str) -> list[list[list[int]]]:
    """Return the token ids of each view of the first batch."""
    model = {"triplets": "pairs", "qa": "pairs", "sentences": "simcse", "nli": "sbert_nli", "dino": "sroberta"}[data]
    keys = [f"model={model}", f"data={data}", f"data.path={path}", f"backbone={backbone}", "batch_size=4"]
    keys += ["quiet=true", f"data.cache_dir={path.parent / 'cache'}", "data.max_length=24"]
    [batch] = batches(make_data(resolve(compose([*keys, *overrides]))), 1)
    views = [one for one in batch if hasattr(one, "lengths")]
    return [[ids.tolist() for ids in one.ids.split(one.lengths.tolist())] for one in views]


NLI = [{"premise": one["anchor"], "hypothesis": one["positive"], "label": n % 3} for n, one in enumerate(ROWS)]
PAIRS = [{"text_a": one["anchor"], "text_b": one["positive"], "label": n / 12} for n, one in enumerate(ROWS)]
QUESTIONS = [{"question": one["anchor"], "answer": one["positive"]} for one in ROWS]


QUERY_AND_DOCUMENTS = ["the river: ", "old maps: ", "old maps: "]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("data", "rows", "of_e5", "of_newer"),
    [
        ("triplets", ROWS, QUERY_AND_DOCUMENTS, QUERY_AND_DOCUMENTS),
        ("qa", QUESTIONS, QUERY_AND_DOCUMENTS[:2], QUERY_AND_DOCUMENTS[:2]),
        ("sentences", [{"text": one["anchor"]} for one in ROWS], [""], ["in winter: "]),
        ("nli", NLI, ["", ""], ["in winter: ", "in winter: "]),
        ("dino", PAIRS, ["", ""], ["in winter: ", "in winter: "]),
    ],
)
def test_training_texts_have_the_prompts_of_their_roles(data, rows, of_e5, of_newer, e5, newer, tmp_path):
    path = written(tmp_path / "rows.jsonl", rows)
    texts = [text for row in rows for text in row.values() if isinstance(text, str)]
    tokenizer = AutoTokenizer.from_pretrained(e5)
    cases = [(e5, of_e5, []), (newer, of_newer, []), (newer, [""] * len(of_newer), ["data.prompts={}"])]
    for folder, prompts, overrides in cases:
        found = views_of(data, path, folder, *overrides)
        assert len(found) == len(prompts)
        for view, prompt in zip(found, prompts, strict=True):
            known = tokenizer([prompt + text for text in texts], truncation=True, max_length=24)["input_ids"]
            assert all(ids in known for ids in view)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    asked = [{"query": text[:25], "document": text} for text in SENTENCES]
    pairs = [{"sentence1": a, "sentence2": b[:30] + a[20:], "score": n % 5} for n, (a, b) in enumerate(pairs_of(ROWS))]
    return {"asked": str(written(folder / "asked.jsonl", asked)), "pairs": str(written(folder / "pairs.jsonl", pairs))}


def pairs_of(rows):
    return [(row["anchor"], row["positive"]) for row in rows]


def scores_of_the_library(folder: Path, tasks: dict) -> dict[str, float]:
    model = stock(folder)
    asked, pairs = ([json.loads(line) for line in Path(path).read_text().splitlines()] for path in tasks.values())
    prompts = EncoderPrompts(model.prompts)
    numbered = [{str(n): row[side] for n, row in enumerate(asked)} for side in ("query", "document")]
    keys = {"query_prompt": prompts.query, "corpus_prompt": prompts.document}
    relevant = {key: {key} for key in numbered[0]}
    retrieval = evaluation.InformationRetrievalEvaluator(*numbered, relevant, ndcg_at_k=[10], mrr_at_k=[100], **keys)
    gold = [row["score"] for row in pairs]
    sts = evaluation.EmbeddingSimilarityEvaluator(
        *([row[side] for row in pairs] for side in ("sentence1", "sentence2")), gold
    )
    found = retrieval(model)
    return {
        "asked/cosine/ndcg@10": 100 * found["cosine_ndcg@10"],
        "pairs/cosine/pearson": 100 * sts(model)["pearson_cosine"],
    }


@pytest.mark.rotates
@pytest.mark.parametrize("kind", ["e5", "empty", "newer"])
def test_scores_are_those_of_the_library_before_training_and_after_it(kind, e5, empty, newer, tasks, tmp_path):
    folder = {"e5": e5, "empty": empty, "newer": newer}[kind]
    given = {name: {"path": path} for name, path in tasks.items()}
    suite = Suite([task for one in resolve_custom_tasks(given) for task in one.read(EvaluateConfig(protocol="fast"))])
    wanted = scores_of_the_library(folder, tasks)
    found = suite.run(load_encoder(folder, device="cpu"), intervals=False).values
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-2)
    keys = {"batch_size": 4, "max_steps": 2, "model": "pairs", "quiet": True, "data__cache_dir": tmp_path / "cache"}
    keys |= {"model__lr": 1e-3, "evaluation": {"custom_tasks": given}, "output_dir": tmp_path / "run"}
    trained = train(pairs_of(ROWS), backbone=folder, **keys)
    before, after = trained.results["scores_before"], trained.results["scores"]
    assert {name: before[name] for name in wanted} == pytest.approx(wanted, abs=1e-2)
    wanted = scores_of_the_library(trained.directory / "encoder", tasks)
    assert {name: after[name] for name in wanted} == pytest.approx(wanted, abs=1e-2)
    exported = json.loads((trained.directory / "encoder" / "config_sentence_transformers.json").read_text())
    own = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert exported["default_prompt_name"] == own["default_prompt_name"]
    assert exported["prompts"] == {**own["prompts"], "document": "old maps: "}
    for name in ("encode", "encode_query", "encode_document"):
        wanted_ND = getattr(stock(trained.directory / "encoder"), name)(SENTENCES)
        np.testing.assert_allclose(getattr(trained.encoder, name)(SENTENCES), wanted_ND, atol=1e-5)
        saved = load_encoder(trained.directory / "checkpoints" / "best.ckpt", device="cpu")
        np.testing.assert_allclose(getattr(saved, name)(SENTENCES), wanted_ND, atol=1e-5)
    again = compose(["model=pairs", "data=triplets", "data.path=x", f"backbone={trained.directory}", "batch_size=4"])
    assert make_model(resolve(again)).encoder.prompts == trained.encoder.prompts, "a run is a backbone, too"


def test_the_default_prompt_of_an_export_is_that_of_the_backbone(tiny_bert, tmp_path):
    """The default prompt is the one named document, which is missing; documents use the prompt named passage."""
    folder = directory(tmp_path / "encoder", tiny_bert, E5, "document")
    keys = {"batch_size": 4, "max_steps": 1, "model": "pairs", "quiet": True, "data__cache_dir": tmp_path / "cache"}
    trained = train(pairs_of(ROWS), backbone=folder, output_dir=tmp_path / "run", model__lr=0.0, **keys)
    exported, plain = stock(trained.directory / "encoder"), directory(tmp_path / "plain", tiny_bert, {})
    np.testing.assert_allclose(exported.encode(SENTENCES), stock(plain).encode(SENTENCES), atol=1e-5)
    with_prompt = stock(plain).encode(SENTENCES, prompt="old maps: ")
    np.testing.assert_allclose(exported.encode_document(SENTENCES), with_prompt, atol=1e-5)


SEARCH = {"search_query": "the river: ", "search_document": "old maps: "}
OTHERS = [  # prompts, default -> prompts that the advice sets for the three texts of a row
    (SEARCH, None, ["the river: ", "old maps: ", "old maps: "]),
    ({"s2p": "it's in winter "}, "s2p", ["it's in winter "] * 3),
    ({"clustering": "in winter: "}, None, ["in winter: "] * 3),
]


@pytest.mark.parametrize(("prompts", "default", "expected"), OTHERS)
def test_prompts_of_no_role_are_named_with_the_words_that_use_them(
    prompts, default, expected, tiny_bert, tmp_path, caplog
):
    backbone = directory(tmp_path / "encoder", tiny_bert, prompts, default)
    path = written(tmp_path / "rows.jsonl", ROWS)
    overrides = ["model=pairs", "data=triplets", f"data.path={path}", f"backbone={backbone}", "batch_size=4"]
    overrides += [f"data.cache_dir={tmp_path / 'cache'}"]

    def settled(*more: str):
        caplog.clear()
        run = resolve(compose(literal_overrides("train", [*overrides, *more])))
        model, data = make_model(run), make_data(run)
        data.prepare_data()
        data.setup()
        settle_prompts(model, data)
        warnings = [one.getMessage() for one in caplog.records if "data.prompts" in one.getMessage()]
        return data.prompts_of(3), warnings

    used, [warning] = settled()
    assert used == ["", "", ""]
    [advice] = [override for override in shlex.split(warning.partition("set ")[2].removesuffix(".")) if "=" in override]
    assert settled(advice) == (expected, [])


@pytest.mark.parametrize("data", ["triplets", "sentences"])
def test_texts_that_have_their_prompts_are_no_reason_for_a_warning(data, e5, newer, tmp_path, caplog):
    rows = ROWS if data == "triplets" else [{"text": one["anchor"]} for one in ROWS]
    overrides = [f"data={data}", f"data.path={written(tmp_path / 'rows.jsonl', rows)}", "batch_size=4"]
    run = resolve(
        compose(
            [
                *overrides,
                f"model={'pairs' if data == 'triplets' else 'simcse'}",
                f"backbone={e5 if data == 'triplets' else newer}",
                f"data.cache_dir={tmp_path / 'cache'}",
            ]
        )
    )
    model, data = make_model(run), make_data(run)
    data.prepare_data()
    data.setup()
    settle_prompts(model, data)
    assert not [one for one in caplog.records if one.levelname == "WARNING" and "prompts" in one.getMessage()]


@pytest.mark.rotates
def test_an_empty_mapping_turns_them_off(newer, tmp_path):
    keys = {"batch_size": 4, "max_steps": 2, "model": "pairs", "quiet": True, "data__cache_dir": tmp_path / "cache"}
    off = train(pairs_of(ROWS), backbone=newer, data={"prompts": {}}, output_dir=tmp_path / "off", **keys)
    none = directory(tmp_path / "none", newer, {})
    plain = train(pairs_of(ROWS), backbone=none, output_dir=tmp_path / "plain", **keys)
    kept = train(pairs_of(ROWS), backbone=newer, output_dir=tmp_path / "kept", **keys)
    assert same(weights(off.directory), weights(plain.directory))
    assert not same(weights(off.directory), weights(kept.directory))
    top = json.loads((off.directory / "encoder" / "config_sentence_transformers.json").read_text())
    assert (any(top["prompts"].values()), top["default_prompt_name"]) == (False, None)
    assert "resolved_settings" not in off.results
    assert off.results["changed_keys"]["data.prompts"][1] == {}
    assert "data.prompts={}" in kept.results["resolved_settings"]["data.prompts"]
    assert "resolved_settings" not in plain.results


@pytest.mark.parametrize("prompts", slow_after(1, [["ask: ", "tell: "], {}]), ids=str)
def test_before_is_the_backbone_with_its_own_prompts(prompts, newer, tasks, tmp_path):
    given = {name: {"path": path} for name, path in tasks.items()}
    keys = {"batch_size": 4, "max_steps": 1, "model": "pairs", "quiet": True, "data__cache_dir": tmp_path / "cache"}
    keys |= {"evaluation": {"custom_tasks": given}, "data__prompts": prompts, "output_dir": tmp_path / "run"}
    keys |= {"data__held_out_fraction": 0.5}
    rows = [(f"{text[:30]} {n}", f"{text[10:]} {n}") for n, text in enumerate(SENTENCES * 2)]
    results = train(rows, backbone=newer, **keys).results
    wanted = scores_of_the_library(newer, tasks)
    assert {name: results["scores_before"][name] for name in wanted} == pytest.approx(wanted, abs=1e-2)
    kept = train(rows, backbone=newer, **{**keys, "data__prompts": None, "output_dir": tmp_path / "kept"}).results
    assert results["scores_before"] == pytest.approx(kept["scores_before"], abs=1e-6), "the held-out rows, too"
    assert results["scores_at_start"] != pytest.approx(kept["scores_before"], abs=1e-2)


def test_prompts_of_the_data_take_the_place_of_the_backbones(newer, tmp_path):
    keys = {"batch_size": 4, "max_steps": 1, "model": "pairs", "quiet": True, "data__cache_dir": tmp_path / "cache"}
    run = train(
        pairs_of(ROWS), backbone=newer, data={"prompts": ["ask: ", "tell: "]}, output_dir=tmp_path / "run", **keys
    )
    assert run.encoder.prompts == EncoderPrompts({"query": "ask: ", "document": "tell: "})


@pytest.mark.advice("contrastive_encoders.encoders.loading.own_encoder:prompts_to_inherit")
def test_a_pooling_without_prompts_excludes_only_the_prompts(tiny_bert, tmp_path):
    folder = directory(tmp_path / "encoder", tiny_bert, E5, include_prompt=False)
    overrides = [
        "model=pairs",
        "data=triplets",
        f"data.path={written(tmp_path / 'rows.jsonl', ROWS)}",
        f"backbone={folder}",
    ]
    with pytest.raises(InputError) as caught:
        make_data(resolve(compose(overrides)))
    assert caught.value.key == "backbone"
    assert "data.prompts={}" in caught.value.hint
    assert not make_data(resolve(compose([*overrides, "data.prompts={}"]))).inherits_prompts
    encoder = load_encoder(folder, device="cpu")
    np.testing.assert_allclose(encoder.encode_query(SENTENCES), stock(folder).encode_query(SENTENCES), atol=1e-5)


def test_a_teacher_reads_texts_with_its_own_prompts(e5):
    teacher, own = load_encoder(e5, device="cpu"), stock(e5)
    texts = [text for row in pairs_of(ROWS) for text in row]
    found = _embed_rows(teacher, [teacher.prompts.query, teacher.prompts.document], None, texts)
    wanted = np.empty_like(found)
    wanted[::2] = own.encode_query(texts[::2])
    wanted[1::2] = own.encode(texts[1::2], prompt_name="passage")
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_guide_uses_only_its_own_prompts(e5, newer, tmp_path):
    rows = [dict(zip(ROWS[0], (text, text[10:], text[:20]), strict=True)) for text in SENTENCES]  # none is cut
    overrides = ["model=simcse", "data=triplets", f"data.path={written(tmp_path / 'rows.jsonl', rows)}", "batch_size=4"]
    run = resolve(
        compose([*overrides, f"backbone={newer}", f"model.guide={e5}", f"data.cache_dir={tmp_path / 'cache'}"])
    )
    data, model = make_data(run), make_model(run)
    [batch] = batches(data, 1)
    settle_prompts(model, data)
    own = stock(e5)
    read = [[rows[row][name] for row in batch.rows] for name in rows[0]]
    wanted = [own.encode_query(read[0]), *(own.encode(some, prompt_name="passage") for some in read[1:])]
    assert isinstance(model.guide, GuideEncoder)
    for vectors, of_library in zip(model.guide_embeddings(batch).views, wanted, strict=True):
        np.testing.assert_allclose(vectors, of_library, atol=1e-4)


def test_equal_texts_are_found_regardless_of_their_prompts(newer, tmp_path):
    rows = [{"anchor": text, "positive": text} for text in SENTENCES]
    overrides = ["model=pairs", "data=triplets", f"data.path={written(tmp_path / 'rows.jsonl', rows)}", "batch_size=4"]
    run = resolve(compose([*overrides, f"backbone={newer}", f"data.cache_dir={tmp_path / 'cache'}"]))
    data, model = make_data(run), make_model(run)
    [batch] = batches(data, 1)
    settle_prompts(model, data)
    anchors, positives = model.loss_hashes(batch)
    assert anchors.tolist() == positives.tolist()
    assert len(set(anchors.tolist())) == 4


def documents(folder: Path) -> Path:
    return written(folder / "documents.jsonl", [{"text": " ".join(SENTENCES[n:] + SENTENCES[:n])} for n in range(8)])


def test_spans_have_the_default_prompt(newer, tmp_path):
    overrides = ["model=declutr", "data=text", f"data.path={documents(tmp_path)}", f"backbone={newer}", "batch_size=4"]
    overrides += ["data.min_span=3", "data.max_span=8", f"data.cache_dir={tmp_path / 'cache'}", "quiet=true"]
    [batch], [plain] = (
        batches(make_data(resolve(compose([*overrides, *more]))), 1) for more in ([], ["data.prompts={}"])
    )
    before = special_ids(newer)
    for view, bare in ((batch.anchors, plain.anchors), (batch.positives, plain.positives)):
        spans, others = (one.ids.split(one.lengths.tolist()) for one in (view, bare))
        assert [ids.tolist() for ids in spans] == [before + ids.tolist()[1:] for ids in others]
    with pytest.raises(InputError) as caught:
        make_data(resolve(compose([*overrides, "data.prompts='query: '"])))
    assert caught.value.key == "data.prompts"
    make_data(resolve(compose([*overrides, caught.value.hint.removeprefix("Set ").rstrip(".")])))


def special_ids(folder: Path) -> list[int]:
    """Return the ids before a text of plain ``encode``: [CLS] and those of the default prompt."""
    ids: list[int] = AutoTokenizer.from_pretrained(folder)("in winter: ")["input_ids"][:-1]
    return ids


def test_no_word_of_the_default_prompt_is_deleted(newer, tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"text": text} for text in SENTENCES])
    overrides = [
        "model=tsdae",
        "data=sentences",
        f"data.path={path}",
        f"backbone={newer}",
        "batch_size=12",
        "quiet=true",
    ]
    [batch] = batches(make_data(resolve(compose([*overrides, f"data.cache_dir={tmp_path / 'cache'}"]))), 1)
    before = special_ids(newer)
    damaged, whole = (one.ids.split(one.lengths.tolist()) for one in (batch.damaged, batch.sentences))
    assert all(ids.tolist()[: len(before)] == before for ids in (*damaged, *whole))
    assert sum(map(len, damaged)) < 0.8 * sum(map(len, whole))
    assert all(len(ids) > len(before) + 1 for ids in damaged), "a word of the text stays"
