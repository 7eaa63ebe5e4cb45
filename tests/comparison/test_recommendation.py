"""A race that chooses a value for each arm and recommends an encoder; BM25 as an arm."""

import math
import re

import numpy as np
import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from contrastive_encoders.cli.compare import plain
from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.baselines import BM25, UNTRAINED, bm25_arm
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric, contrasts
from contrastive_encoders.comparison.race_data import commands_of
from contrastive_encoders.comparison.recommendation import before_and_after, keep_encoder, recommend
from contrastive_encoders.comparison.report import build_comparison, write_report
from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.io.item_scores import write_items
from contrastive_encoders.io.results import read_results, write_results
from contrastive_encoders.training.composition.literal_values import literal_override
from tests.embedders import OnTheCPU

QUERIES = 40
HELD_OUT, CHOICE = "held_out/cosine/ndcg@10", "dev/cosine/ndcg@10"


class Sees(OnTheCPU):
    """Encoder that finds the right document for a share of the queries; otherwise one wrong document is nearest."""

    def __init__(self, share: float) -> None:
        self.right = round(share * QUERIES)

    def embed(self, texts, **_):
        rows = torch.zeros(len(texts), QUERIES)
        for row, text in enumerate(texts):
            kind, place = text.split()
            wrong = kind == "query" and int(place) >= self.right
            rows[row, (int(place) + wrong) % QUERIES] = 1.0
        return rows


def suite_of(*names, queries=QUERIES):
    asked = [place % QUERIES for place in range(queries)]
    texts = [f"query {place}" for place in asked], [f"document {place}" for place in range(QUERIES)]
    return Suite([RetrievalData(name, *texts, [{place: 1.0} for place in asked]) for name in names])


def arm(run_folder, root, name, seed, held_out, choice, selection_queries=QUERIES):
    """Write a run of a race that finds these shares of the held-out questions and of the questions for choosing."""
    folder = run_folder(root / f"{name}-seed{seed}", name, seed, 0.2)
    shares = {"held_out": held_out, "dev": choice}
    numbers = {"held_out": QUERIES, "dev": selection_queries}
    parts = [suite_of(task, queries=numbers[task]).run(Sees(share), intervals=True) for task, share in shares.items()]
    scores = parts[0].with_others(parts[1])
    write_items(folder / "item_scores.npz", scores.items._replace(digests=dict.fromkeys(shares, "0")))
    values = {**parts[0].values, **parts[1].values}
    write_results(folder / "results.json", read_results(folder / "results.json") | {"scores": values})
    (folder / "encoder").mkdir()
    (folder / "encoder" / "model.safetensors").write_text(f"{name} {seed}")


def judged(root, output):
    arms = arms_of(collect([str(root / "*")])[0])
    headline = choose_ranking_metric(arms, HELD_OUT)
    return arms, recommend(arms, headline, contrasts(arms, headline), CHOICE, output)


def test_the_best_by_the_questions_for_choosing_is_recommended_if_it_is_better(run_folder, tmp_path):
    """The best on the reported questions is not taken, because that choice would be biased."""
    for seed in (1, 2):
        arm(run_folder, tmp_path / "runs", "chosen", seed, 0.9, 0.95)
        arm(run_folder, tmp_path / "runs", "lucky", seed, 1.0, 0.8)
    arm(run_folder, tmp_path / "runs", UNTRAINED, 1, 0.5, 0.5)
    arms, one = judged(tmp_path / "runs", tmp_path)
    assert one.arm.label == "chosen"
    before, after = (next(a for a in arms if a.label == name).values(HELD_OUT).mean() for name in (UNTRAINED, "chosen"))
    assert one.sentence.startswith(f"Better: chosen, {HELD_OUT} {before:.1f} -> {after:.1f} ({after - before:+.1f}, ")
    assert re.search(rf"{tmp_path / 'encoder'}, .*\b1: ", one.sentence)
    assert f" {QUERIES} " in one.sentence
    keep_encoder(one, tmp_path)
    assert (tmp_path / "encoder" / "model.safetensors").read_text() == "chosen 1"


def test_nothing_is_recommended_that_is_not_better_and_an_earlier_encoder_goes(run_folder, tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "model.safetensors").write_text("earlier")
    arm(run_folder, tmp_path / "runs", "chosen", 1, 0.525, 0.9)  # one query more than before
    arm(run_folder, tmp_path / "runs", UNTRAINED, 1, 0.5, 0.5)
    _, one = judged(tmp_path / "runs", tmp_path)
    assert one.arm is None
    assert one.sentence.startswith("Nothing ")
    assert "distinguishable" in one.sentence
    assert f" {QUERIES} " in one.sentence.partition("distinguishable")[2]
    keep_encoder(one, tmp_path)
    assert not (tmp_path / "encoder").exists()


@pytest.mark.parametrize("better", [True, False])
@pytest.mark.parametrize(("number", "few"), [(1, True), (49, True), (50, False)])
def test_the_number_of_queries_of_the_selection_is_stated(run_folder, tmp_path, better, number, few):
    arm(run_folder, tmp_path / "runs", "chosen", 1, 0.9 if better else 0.5, 0.9, number)
    arm(run_folder, tmp_path / "runs", UNTRAINED, 1, 0.5, 0.5, number)
    arms, one = judged(tmp_path / "runs", tmp_path)
    assert (one.arm is not None) is better
    assert re.search(rf"selection.* {number} quer(y|ies)\b", one.sentence)
    assert (" few" in one.sentence.partition("selection was")[2].partition(".")[0]) is few
    found = build_comparison(arms, choose_ranking_metric(arms, HELD_OUT), [], [])._replace(recommendation=one.sentence)
    write_report(found, tmp_path / "out", "compare")
    for name in ("report.html", "report.md"):
        assert f" {number} quer" in (tmp_path / "out" / name).read_text()


def test_the_kept_encoder_has_its_own_score_and_must_be_better(run_folder, tmp_path):
    """The mean over the seeds is not the score of the encoder of the first seed."""
    for root, first in (("good", 0.6), ("bad", 0.4)):
        for seed, share in enumerate((first, 1.0, 1.0), start=1):
            arm(run_folder, tmp_path / root, "chosen", seed, share, 0.95)
        arm(run_folder, tmp_path / root, UNTRAINED, 1, 0.5, 0.5)
        arms, one = judged(tmp_path / root, tmp_path)
        scores = {a.label: a.values(HELD_OUT) for a in arms}
        before, own, mean = scores[UNTRAINED][0], scores["chosen"][0], scores["chosen"].mean()
        assert f" {own:.1f} ({own - before:+.1f}, 95 % interval " in one.sentence
        assert f" {before:.1f} -> {mean:.1f} ({mean - before:+.1f}, " in one.sentence
        assert (one.arm is not None) == one.sentence.startswith("Better: ") == (root == "good")
        keep_encoder(one, tmp_path)
        assert (tmp_path / "encoder").exists() == (root == "good")


def test_arms_that_were_not_trained_are_named(run_folder, tmp_path):
    arm(run_folder, tmp_path / "runs", "chosen", 1, 0.5, 0.9)
    arm(run_folder, tmp_path / "runs", UNTRAINED, 1, 0.5, 0.5)
    arms = arms_of(collect([str(tmp_path / "runs" / "*")])[0])
    headline = choose_ranking_metric(arms, HELD_OUT)
    one = recommend(arms, headline, contrasts(arms, headline), CHOICE, tmp_path, ["chosen", "first", "second"])
    assert "best of 1 " in one.sentence
    assert one.sentence.endswith(": first, second.")
    one = recommend(arms, headline, contrasts(arms, headline), CHOICE, tmp_path, ["chosen"])
    assert "compared" not in one.sentence


def test_without_the_untrained_encoder_nothing_can_be_recommended(run_folder, tmp_path):
    arm(run_folder, tmp_path / "runs", "chosen", 1, 0.9, 0.9)
    arm(run_folder, tmp_path / "runs", "other", 1, 0.5, 0.5)
    (tmp_path / "encoder").mkdir()
    _, one = judged(tmp_path / "runs", tmp_path)
    assert one is None
    keep_encoder(one, tmp_path)
    assert not (tmp_path / "encoder").exists()


def test_five_questions_show_what_was_found(run_folder, tmp_path):
    arm(run_folder, tmp_path / "runs", "chosen", 1, 0.9, 0.9)
    arm(run_folder, tmp_path / "runs", UNTRAINED, 1, 0.2, 0.2)
    _, one = judged(tmp_path / "runs", tmp_path)
    shares = {"chosen": 0.9, UNTRAINED: 0.2}
    task = suite_of("held_out").tasks[0].texts_to_match
    table = before_and_after(one, task, lambda arm, texts: Sees(shares[arm.label]).embed(texts).numpy())
    asked = [0, 8, 16, 24, 32]
    assert [row[0] for row in table.rows] == [f"query {place}" for place in asked]
    assert [row[1].text for row in table.rows] == ["document 0", *(f"document {place + 1}" for place in asked[1:])]
    assert [row[2].text for row in table.rows] == [f"document {place}" for place in asked]
    assert [row[1].mark for row in table.rows] == ["best", "", "", "", ""]
    assert [row[3] for row in table.rows] == [f"document {place}" for place in asked]


def test_bm25_is_the_formula_of_lucene(run_folder, tmp_path):
    """The formula written slowly: idf ln(1 + (N - n + 0.5) / (n + 0.5)), k1 = 1.5, b = 0.75."""
    pytest.importorskip("bm25s")
    rng = np.random.default_rng(4)
    words = [f"word{place}" for place in range(30)]
    documents = [" ".join(rng.choice(words, size=rng.integers(4, 30))) for _ in range(60)]
    queries = [" ".join(rng.choice([*words, "unknown"], size=4, replace=False)) for _ in range(20)]
    suite = Suite(
        [RetrievalData("found", queries, documents, [{int(place): 1.0} for place in rng.integers(0, 60, 20)])]
    )
    split = [document.split() for document in documents]
    mean = np.mean([len(one) for one in split])

    def score(query, document):
        found = 0.0
        for word in query.split():
            held = sum(word in one for one in split)
            times = document.count(word)
            idf = math.log(1 + (len(split) - held + 0.5) / (held + 0.5))
            found += idf * times / (times + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean)) if held else 0.0
        return found

    slow = torch.tensor([[score(query, document) for document in split] for query in queries]).double()
    task = suite.tasks[0]
    wanted = task.scores("bm25", lambda start, stop: slow[start:stop])
    found = task.bm25()
    for name, one in wanted.items():
        assert found[name].value == pytest.approx(one.value, abs=1e-3), name
    folder = run_folder(tmp_path / "a", "m", 1, 0.2)
    scores = {name.replace("/bm25/", "/cosine/"): 1.0 for name in wanted}
    write_results(folder / "results.json", read_results(folder / "results.json") | {"scores": scores})
    arms = arms_of(collect([str(folder)])[0])
    headline = choose_ranking_metric(arms, None)
    added = bm25_arm(arms, headline, found)
    assert added.label == BM25
    assert added.values(headline.name)[0] == pytest.approx(wanted["found/bm25/ndcg@10"].value, abs=1e-3)
    assert bm25_arm(arms, headline._replace(scores=["another/cosine/ndcg@10"]), found) is None


@pytest.mark.parametrize("given", [["recipe=queries"], {"one": "recipe=queries"}, 3])
def test_commands_are_lists_of_words_under_a_name(given):
    with pytest.raises(InputError) as refused:
        commands_of(given, "race=x")
    assert (refused.value.location, refused.value.key, refused.value.value) == ("race=x", "prepare", given)
    assert commands_of({"one": ["a=1", ["b=2"], []]}, "race=x") == {"one": ["a=1", "b=2"]}
    assert commands_of(None, "race=x") == {}


def test_a_key_of_a_race_that_is_null_is_the_word_null_in_its_commands():
    written = {
        "reuse_from": None,
        "choose": None,
        "prepare": {"made": ["reuse_from=${race.reuse_from}"]},
        "arms": {"a": ["x=1"]},
    }
    race = OmegaConf.create({"race": written}).race
    assert plain(race) == {**written, "reuse_from": "null", "prepare": {"made": ["reuse_from=null"]}}


def test_paths_in_the_words_of_a_race_are_quoted_where_hydra_would_not_read_them():
    overrides = ["data.path=${race.texts}/a.txt", "tasks=[${race.texts}/b, c]", "~race.arms.x", ["seed=1"]]
    for texts in ("my texts (2)", "données", "a=b (3)"):
        race = plain(OmegaConf.create({"race": {"name": "x", "texts": texts, "arms": {"a": overrides}}}).race)
        *made, (nested,) = race["arms"]["a"]
        path, tasks, left_out = OverridesParser.create().parse_overrides(made)
        assert (path.key_or_group, path.value()) == ("data.path", f"{texts}/a.txt")
        assert tasks.value() == [f"{texts}/b", "c"]
        assert left_out.is_delete()
        assert nested == "seed=1"
    assert literal_override("data.path=don't/a (1)") == 'data.path="don\'t/a (1)"'


@pytest.mark.advice("contrastive_encoders.cli.compare:plain")
def test_a_key_without_a_value_is_refused_if_the_race_uses_it():
    race = {"name": "x", "data_root": "???", "common": ["a=${race.data_root}"], "arms": {"a": []}}
    more = {"texts": "???", "sub": "${race.data_root}/y", "common": ["a=${race.sub}"]}
    nested = {"lr": {"first-one": "???"}, "common": ["a=${race.lr.first-one}"]}
    for added, key in (({}, "race.data_root"), (more, "race.data_root"), (nested, "race.lr.first-one")):
        with pytest.raises(InputError) as refused:
            plain(OmegaConf.create({"race": race | added}).race)
        assert (refused.value.key, refused.value.value) == (key, None)
        [advised] = re.findall(rf"Set ({re.escape(key)})=VALUE", refused.value.hint)
        followed = OmegaConf.create({"race": race | added})
        OmegaConf.update(followed, advised, "eval")
        assert plain(followed.race)["common"][0].startswith("a=eval")
    nested["lr"]["first-one"] = None
    assert plain(OmegaConf.create({"race": race | nested}).race)["common"] == ["a=null"]
    assert plain(OmegaConf.create({"race": race | {"common": ["a=1"]}}).race)["common"] == ["a=1"]
    assert plain(OmegaConf.create({"race": race | {"data_root": None}}).race)["common"] == ["a=null"]


READ = ("x=choice(1,2)", "x={a: [1, 'b']}", "++x='a (1)'", "x=[a b,c]", "model.lr=1e-3", "x=null")
REFUSED = ("model.lr=[1e-5", "x='a", "tasks=[[a (1),b],c]", "x={a: b (1)}")


@pytest.mark.parametrize("override", [*READ, *REFUSED])
def test_other_words_of_a_race_stay_as_they_are(override):
    assert literal_override(override) == override
