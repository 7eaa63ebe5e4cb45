"""GenSE's baselines: retrieval, back-translation and DINO's pairs, from the command line to triplets."""

import json
import math
import random
import re
from dataclasses import replace

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DynamicCache,
    EncoderDecoderCache,
    MarianConfig,
    MarianMTModel,
)

from contrastive_encoders.core import InputError
from contrastive_encoders.core.gense_prompts import PromptIds, parse_prompts
from contrastive_encoders.datamodules.sources.row_schemas import TRIPLETS
from contrastive_encoders.synthesis.recipe_configs import Bm25, Language, Search
from contrastive_encoders.synthesis.recipes.gense_back_translation import Translator
from contrastive_encoders.synthesis.recipes.gense_retrieval import BM25Index
from contrastive_encoders.synthesis.rules.triplet_rules import ABSENT
from contrastive_encoders.synthesis.shards.store import ShardStore, to_json_lines
from tests.data import RecordSource
from tests.synthesis.commands import ROOT, here, refusal, rows_of
from tests.synthesis.toy_t5 import WORDS, save, tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")

OPEN = ["rules.agree=false", "rules.threshold=null", "rules.min_hypothesis_words=0"]  # a random model never passes


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    save(folder / "t5")
    save(folder / "there", seed=3)
    save(folder / "back", family="mt5", seed=4)
    pick = random.Random(2)
    lines = [" ".join(pick.choices(WORDS, k=pick.randint(8, 14))).capitalize() + "." for _ in range(60)]
    (folder / "in.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def overrides_for(recipe, place, output, *overrides):
    given = {"recipe": recipe, "output": output, "input": place / "in.txt", "shard_size": 25, "workers": 1}
    if recipe == "gense_retrieval":
        given |= {"generator": place / "t5", "bm25.top": 5}
    if recipe == "gense_back_translation":
        given |= {"forward.model": place / "there", "backward.model": place / "back"}
        given |= {"search.max_tokens": 12, "search.beams": 2, "rules.drop_cut": "false"}
    given |= dict(override.split("=", 1) for override in [*OPEN, *overrides])
    return [f"{key}={value}" for key, value in given.items()]


def slow_bm25(corpus, query, k1, b):
    """Compute Robertson's formula with Lucene's idf, word by word."""
    words = [re.findall(r"\w+", one.lower()) for one in corpus]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for document in words:
        score = 0.0
        for word in re.findall(r"\w+", query.lower()):
            n = sum(word in one for one in words)
            tf = document.count(word)
            idf = math.log(1 + (len(words) - n + 0.5) / (n + 0.5))
            score += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


def test_neighbors_are_those_of_the_formula(place):
    corpus = (place / "in.txt").read_text().splitlines()
    how = Bm25(top=7, k1=1.2, b=0.6)
    for query, found in enumerate(BM25Index(corpus, how).of(range(10))):
        scores = slow_bm25(corpus, corpus[query], how.k1, how.b)
        best = sorted((score for place, score in enumerate(scores) if place != query), reverse=True)[:7]
        assert corpus[query] not in found
        assert [scores[corpus.index(one)] for one in found] == pytest.approx(best, rel=1e-5)


def p_true(place, premise, hypothesis):
    """Compute it by a plain forward pass."""
    tokenizer = AutoTokenizer.from_pretrained(place / "t5")
    model = AutoModelForSeq2SeqLM.from_pretrained(place / "t5").eval()
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        prompts = parse_prompts(compose("generate", overrides=["recipe=gense"]).prompts, "pieces", "prompts")
    ids = PromptIds(prompts, tokenizer, alone=False)
    read = torch.tensor(ids.discrimination([premise], [hypothesis], 128))
    with torch.no_grad():
        logits = model(input_ids=read, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits[0, 0]
    return logits[list(ids.answers())].softmax(0)[0].item()


def test_retrieval_keeps_what_follows_whether_or_not_anything_contradicts(place, tmp_path):
    """The paper's baseline is pairs. This random model never says "false", so no sentence has a contradiction."""
    answers = ["rules.threshold=0.66"]
    here(*overrides_for("gense_retrieval", place, tmp_path / "pairs", *answers))
    here(*overrides_for("gense_retrieval", place, tmp_path / "triplets", *answers, "contradictions=retrieved"))
    scored, pairs, triplets = (rows_of(tmp_path / one) for one in ("pairs/scored", "pairs", "triplets"))
    expected = [row["premise"] for row in scored if any(one["p_true"] >= 0.66 for one in row["entailment"])]
    assert [row["premise"] for row in pairs] == expected
    assert all(row.keys() == {"premise", "entailment", "p_entailment"} for row in pairs)
    assert triplets == []
    assert 0 < len(pairs) < len(scored)
    assert next(iter(RecordSource(tmp_path / "pairs", TRIPLETS))).texts == (pairs[0]["premise"], pairs[0]["entailment"])
    error = refusal(*overrides_for("gense_retrieval", place, tmp_path / "pairs", *answers, "contradictions=retrieved"))
    assert (error.value, "contradictions" in error.expected) == (tmp_path / "pairs", True)


def test_retrieved_triplets_are_training_data(place, tmp_path):
    here(*overrides_for("gense_retrieval", place, tmp_path / "out", "contradictions=retrieved"))
    scored, rows = rows_of(tmp_path / "out" / "scored"), rows_of(tmp_path / "out")
    corpus = (place / "in.txt").read_text().splitlines()
    assert [row["premise"] for row in scored] == corpus
    for row in scored:
        assert {one["text"] for one in row["entailment"]} <= {*corpus} - {row["premise"]}
        assert row["entailment"] == row["contradiction"]
    one = scored[30]["entailment"][2]
    assert one["p_true"] == pytest.approx(p_true(place, scored[30]["premise"], one["text"]), abs=1e-5)
    by_premise = {row["premise"]: row for row in scored}
    for row in rows:
        answers = {one["text"]: one["p_true"] for one in by_premise[row["premise"]]["entailment"]}
        assert row["p_entailment"] == max(answers.values()) == answers[row["entailment"]]
        assert answers[row["contradiction"]] == min(answers.values())
    assert next(iter(RecordSource(tmp_path / "out", TRIPLETS))).texts == tuple(
        rows[0][key] for key in ("premise", "entailment", "contradiction")
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["complete"]
    assert len(rows) == manifest["counts"]["accepted"] > 30
    again = tmp_path / "again"
    here("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={again}", "workers=1")  # the published rules
    for row in rows_of(again):
        assert min(row["p_entailment"], row["p_contradiction"]) >= 0.9


def test_a_missing_shard_is_restored_unchanged(place, tmp_path):
    overrides = overrides_for("gense_retrieval", place, tmp_path / "out")
    here(*overrides)
    before = rows_of(tmp_path / "out")
    (tmp_path / "out" / "scored" / "shard-00001.jsonl").unlink()
    (tmp_path / "out" / "shard-00001.jsonl").unlink()
    here(*overrides)
    assert rows_of(tmp_path / "out") == before
    error = refusal(*overrides_for("gense_retrieval", place, tmp_path / "out", "bm25.top=6"))
    assert re.search(r"bm25\.top .* 6 .* 5", error.expected)


def test_back_translation_gives_pairs(place, tmp_path):
    """The truth is each sentence alone through a plain generate, in both directions."""
    here(*overrides_for("gense_back_translation", place, tmp_path / "out"))
    scored, rows = rows_of(tmp_path / "out" / "scored"), rows_of(tmp_path / "out")

    def plain(folder, text):
        tokenizer = AutoTokenizer.from_pretrained(place / folder)
        model = AutoModelForSeq2SeqLM.from_pretrained(place / folder).eval()
        ids = tokenizer([text], return_tensors="pt", truncation=True, max_length=12)["input_ids"]
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())  # the decoder has more layers than the encoder
        written = model.generate(ids, num_beams=2, do_sample=False, max_new_tokens=12, past_key_values=cache)
        return " ".join(tokenizer.decode(written[0], skip_special_tokens=True).split())

    same = 0
    for row in scored[:6]:
        pivot = plain("there", row["premise"])
        same += row["pivot"] == pivot and row["entailment"][0]["text"] == plain("back", pivot)
    assert same >= 5  # padding changes float32 scores slightly
    assert all(row.keys() == {"premise", "entailment", "p_entailment"} for row in rows)
    assert all(row["p_entailment"] is None for row in rows)
    records = list(RecordSource(tmp_path / "out", TRIPLETS))
    assert records[0].texts[:2] == (rows[0]["premise"], rows[0]["entailment"])
    assert refusal("recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'again'}").key == "rules"


def test_a_language_begins_the_translation(place):
    """``target`` is the first token that the decoder writes; a prefix is read like any text."""
    search = Search(beams=1, max_tokens=6)
    language = Language(model=str(place / "there"), prefix="Sentence ", source=None, target="▁cat")
    with_token = Translator("forward", language, search, precision="fp32", device="cpu")
    assert with_token(["a man plays"])[0].text.startswith("cat")
    with pytest.raises(InputError) as error:
        Translator("forward", replace(language, target="xx"), search, precision="fp32", device="cpu")
    assert (error.value.key, error.value.value) == ("forward.target", "xx")


def test_other_families_translate(place, tmp_path):
    """Marian: positions are absolute, and texts begin with the pad token. A batch gives what each text gives alone."""
    vocabulary = tokenizer()
    size = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2}
    size |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    torch.manual_seed(0)
    config = MarianConfig(vocab_size=len(vocabulary), **size, **ends)
    MarianMTModel(config).save_pretrained(tmp_path / "marian")
    vocabulary.save_pretrained(tmp_path / "marian")
    search = Search(beams=3, max_tokens=8)
    language = Language(model=str(tmp_path / "marian"), prefix="", source=None, target=None)
    translate = Translator("forward", language, search, precision="fp32", device="cpu")
    texts = ["a man plays", "the cat sat on the mat in the park", "bread", "a man plays"]
    together = translate(texts)
    assert together == [translate([text])[0] for text in texts]
    assert not together[1].whole  # it has more tokens than are read
    with pytest.raises(InputError) as error:
        Translator("forward", replace(language, source="▁cat"), search, precision="fp32", device="cpu")
    assert (error.value.key, error.value.value) == ("forward.source", "▁cat")


@pytest.fixture
def dino(tmp_path):
    """The data set that recipe=dino_x2 writes."""
    entries = [
        ("one two three four five six seven eight", "the first follows from it surely", "1"),
        ("one two three four five six seven eight", "a second follows from it too", "1"),
        ("one two three four five six seven eight", "somewhat alike", "0.5"),
        ("one two three four five six seven eight", "this has nothing to do with it", "0"),
        ("a b c d e f g h", "only similar ones for this sentence", "1"),
    ]
    store = ShardStore(tmp_path / "dino")
    rows = [{"text_a": a, "text_b": b, "label": label} for a, b, label in entries]
    store.write(0, to_json_lines(rows), {"first": 0, "inputs": 2, "tokens": 0, "labels": {}})
    identity = {"kind": "x2", "spec": {"task_name": "sts-x2", "labels": {"1": {}, "0.5": {}, "0": {}}}}
    store.write_manifest(store.manifest({"identity": identity, "generator": {"name": "x"}}, 1, complete=True))
    return tmp_path / "dino"


def test_triplets_of_dino(place, dino, tmp_path):
    here(*overrides_for("gense_dino", place, tmp_path / "out", f"input={dino}"))
    [row] = rows_of(tmp_path / "out")
    assert row["premise"] == "one two three four five six seven eight"
    assert row["entailment"] == "the first follows from it surely"
    assert row["contradiction"] == "this has nothing to do with it"
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert counts["rejected"] == {ABSENT: 1}
    here(*overrides_for("gense_dino", place, tmp_path / "half", f"input={dino}", "labels.entailment=0.5"))
    assert [row["entailment"] for row in rows_of(tmp_path / "half")] == ["somewhat alike"]


@pytest.mark.parametrize(
    ("recipe", "overrides", "facts"),
    [
        ("gense_retrieval", ["generator=null"], ["generator=null: expected"]),
        ("gense_retrieval", ["contradictions=some"], ["contradictions=", "some"]),
        ("gense_back_translation", ["backward.model=null"], ["backward.model=null: expected"]),
        ("gense_back_translation", ["forward.model={bert}"], ["forward.model={bert}", "bert model"]),
        ("gense_back_translation", ["rules.threshold=0.9"], ["rules: expected", "judged"]),
        ("gense_dino", ["input={empty}"], ["input={empty}", "recipe=dino_x2"]),
        ("gense_dino", ["input={dino}", "labels.entailment=0.7"], ["labels.entailment=0.7", "'1', '0.5', '0'"]),
    ],
)
def test_wrong_input_is_refused(place, dino, tmp_path, recipe, overrides, facts):
    files = {"bert": tmp_path / "bert", "empty": tmp_path / "empty", "dino": dino}
    for name in ("bert", "empty"):
        files[name].mkdir()
    (files["bert"] / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises((InputError, HydraException)) as error:
        here(*overrides_for(recipe, place, tmp_path / "out", *(override.format(**files) for override in overrides)))
    facts = [fact.format(**files) for fact in facts]
    assert not [fact for fact in facts if fact not in str(error.value)], error.value
    assert not list((tmp_path / "out").glob("shard-*"))
