"""Hard negatives against a slow version of the rules, with embeddings and scores of an independent reader."""

import contextlib
import gzip
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from contrastive_encoders.cli import mine_negatives
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.synthesis.mining.cached_reranker import CachedReranker
from tests.conftest import COMMON, ROOT, SENTENCES, TOPICS
from tests.data import data_module, write_rows
from tests.encoders.test_matryoshka import export_whole
from tests.in_process import run_here
from tests.objectives import built

WORDS = [*itertools.chain(*TOPICS.values()), *COMMON]
ANCHORS = [f"{one} {WORDS[-n]} {WORDS[3 * n]}" for n, one in enumerate(WORDS[:24], start=1)]
PAIRS = [(anchor, f"{anchor.split()[0]} {WORDS[5 * n % 90]}") for n, anchor in enumerate(ANCHORS)]
PAIRS += [(ANCHORS[3], "a second positive of it"), (ANCHORS[7], PAIRS[9][1]), PAIRS[2], (PAIRS[5][1], ANCHORS[5])]


@pytest.fixture(scope="module")
def encoder(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("miner") / "encoder"
    export_whole(built("sroberta", tiny_bert).encoder, folder)
    return folder


@pytest.fixture(scope="module")
def cross_encoders(tiny_bert, tmp_path_factory):
    """Return cross-encoders by their number of scores."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("cross"), AutoTokenizer.from_pretrained(tiny_bert)
    for labels in (1, 3):
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = BertConfig(vocab_size=len(tokenizer), num_labels=labels, initializer_range=0.4, **sizes)
        BertForSequenceClassification(config).save_pretrained(folder / str(labels))
        tokenizer.save_pretrained(folder / str(labels))
    return folder


@pytest.fixture(scope="module")
def given(encoder, tmp_path_factory):
    """Return the arguments of every command, without the output."""
    folder = tmp_path_factory.mktemp("given")
    write_rows(folder / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in PAIRS])
    (folder / "corpus.txt").write_text("\n".join(SENTENCES))
    return [f"encoder={encoder}", f"input={folder / 'pairs.jsonl'}", "device=cpu"]


def command(*overrides):
    return run_here("mine-negatives", mine_negatives.run, overrides)


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def cosines_by(encoder, pairs, texts, prompts=("", "")):
    model = load_encoder(encoder, device="cpu")
    anchors = list(dict.fromkeys(anchor for anchor, _ in pairs))
    rows = [
        model.embed(list(several), prompt=prompt, convert_to_numpy=True).astype(float)
        for several, prompt in ((anchors, prompts[0]), (texts, prompts[1]))
    ]
    left, right = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in rows)
    return {(a, t): left[n] @ right[m] for n, a in enumerate(anchors) for m, t in enumerate(texts)}


def expected(pairs, texts, cosine, rules, score=None):
    """Compute anchor, positive, ordered negatives, and scores by the rules; random sampling draws from all candidates.

    ``cosine`` and ``score`` take an anchor and a text; the latter is a cross-encoder's score.
    """
    positives, score = {}, score or cosine
    for anchor, positive in pairs:
        positives.setdefault(anchor, [])
        positives[anchor] += [positive] * (positive not in positives[anchor])
    most = max(len({*found, anchor} & {*texts}) for anchor, found in positives.items())
    taken, first = rules["num_negatives"], rules.get("range_min", 0)
    is_limited = rules.keys() & {"absolute_margin", "relative_margin", "max_score"}
    last = rules.get("range_max") or first + taken * (10 if is_limited else 1) + most
    for anchor, found in positives.items():
        near = sorted(texts, key=lambda text: -cosine[anchor, text])[: last + most]
        scores = {text: score[anchor, text] for text in near if text not in (*found, anchor)}
        farthest = min(score[anchor, text] for text in (*found, anchor) if text in texts)
        highest = min(
            farthest - rules.get("absolute_margin", -np.inf),
            farthest - abs(farthest) * rules.get("relative_margin", -np.inf),
            rules.get("max_score", np.inf),
        )
        left = [text for text, each in scores.items() if rules.get("min_score", -np.inf) <= each <= highest]
        left = sorted(left, key=lambda text: -scores[text])[:last][first:]
        if len(left) >= taken:
            chosen = left if rules.get("sampling_strategy") == "random" else left[:taken]
            for positive in found:
                yield anchor, positive, chosen, [score[anchor, text] for text in (positive, *chosen)]


def compare(found, wanted, score):
    """Compare the rows of a file with the formula. Texts whose scores are equal in float32 may change places."""
    for row, (anchor, positive, negatives, scores) in zip(found, wanted, strict=True):
        names = [f"negative_{n}" for n in range(1, len(negatives) + 1)]
        assert row.keys() == {"anchor", "positive", "scores", *names}
        assert (row["anchor"], row["positive"]) == (anchor, positive)
        np.testing.assert_allclose(row["scores"], scores, atol=2e-6)
        chosen = [row[name] for name in names]
        assert len({*chosen}) == len(chosen)
        assert not {anchor, positive} & {*chosen}
        np.testing.assert_allclose([score[anchor, text] for text in chosen], scores[1:], atol=4e-6)


def texts_of(pairs, more=()):
    return list(dict.fromkeys([*more, *(positive for _, positive in pairs)]))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("more", "rules"),
    [
        ([], {"num_negatives": 1}),
        (SENTENCES, {"num_negatives": 3}),
        (SENTENCES, {"num_negatives": 3, "use_faiss": "true"}),
        (SENTENCES, {"num_negatives": 2, "range_min": 4, "range_max": 9}),
        (SENTENCES, {"num_negatives": 2, "absolute_margin": 0.03}),
        (SENTENCES, {"num_negatives": 2, "relative_margin": 0.02, "range_max": 30}),
        (SENTENCES, {"num_negatives": 3, "absolute_margin": 0.01, "relative_margin": 0.05, "range_min": 1}),
        (SENTENCES, {"num_negatives": 2, "max_score": 0.97, "min_score": 0.93, "range_max": 30}),
    ],
)
def test_they_follow_the_rules_and_can_be_trained_on(encoder, given, tmp_path, more, rules):
    overrides = [f"{key}={value}" for key, value in rules.items()]
    if more:
        overrides.append(f"corpus={Path(given[1].partition('=')[2]).with_name('corpus.txt')}")
    assert command(*given, f"output={tmp_path / 'mined.jsonl'}", *overrides) == 0
    found, texts = rows_of(tmp_path / "mined.jsonl"), texts_of(PAIRS, more)
    account = json.loads((tmp_path / "mined.jsonl.json").read_text())
    assert account["corpus"] == len(texts)
    assert (account["rows"], account["rows"] + account["too_few"]) == (len(found), account["pairs"])
    assert (account["pairs"], account["twice"]) == (len(PAIRS) - 1, 1)
    cosines = cosines_by(encoder, PAIRS, texts)
    wanted = list(expected(PAIRS, texts, cosines, rules))
    assert len(wanted) > 5
    compare(found, wanted, cosines)
    module = data_module("triplets", path=tmp_path / "mined.jsonl", tokenizer=encoder, cache_dir=tmp_path, batch_size=2)
    assert len(next(iter(module.train_dataloader())).negatives.lengths) == 2 * rules["num_negatives"]


@pytest.mark.rotates
@pytest.mark.parametrize(
    "limits", [{"relative_margin": 0.05}, {"max_score": "the median", "range_min": 1, "range_max": 20}]
)
def test_a_cross_encoder_s_scores_decide_and_rank(encoder, cross_encoders, given, tmp_path, limits):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer = (
        one.from_pretrained(cross_encoders / "1") for one in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    texts, scores = texts_of(PAIRS), {}
    for anchor, text in itertools.product({a for a, _ in PAIRS}, texts):
        with torch.inference_mode():
            scores[anchor, text] = model(**tokenizer(anchor, text, return_tensors="pt")).logits.sigmoid().item()
    rules = {"num_negatives": 2, **limits}
    if "max_score" in limits:
        rules["max_score"] = float(np.median(list(scores.values())))
    overrides = [f"{key}={value}" for key, value in rules.items()]
    assert command(*given, f"output={tmp_path / 'mined.jsonl'}", f"reranker={cross_encoders / '1'}", *overrides) == 0
    wanted = list(expected(PAIRS, texts, cosines_by(encoder, PAIRS, texts), rules, scores))
    assert len(wanted) > 5
    compare(rows_of(tmp_path / "mined.jsonl"), wanted, scores)


def test_a_reranker_without_a_limit_scores_all_columns_and_no_pair_twice(encoder, cross_encoders, given, tmp_path):
    """The command is killed during scoring and resumes with the stored scores."""
    from sentence_transformers import CrossEncoder

    cache, output = tmp_path / "cache", tmp_path / "mined.jsonl"
    overrides = [*given, f"output={output}", f"reranker={cross_encoders / '1'}", f"cache_folder={cache}"]
    predict, seen = CrossEncoder.predict, list[tuple[str, str]]()

    def counted(self, pairs, *args, **options):
        if len(seen) > most:
            raise KeyboardInterrupt
        seen.extend(pairs)
        return predict(self, pairs, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CrossEncoder, "predict", counted)
        most = 50
        with pytest.raises(KeyboardInterrupt):
            command(*overrides)
        assert not output.exists()
        cut, most = len(seen), 10**9
        assert command(*overrides) == 0
    assert 50 < cut < len(seen)
    assert len(set(seen)) == len(seen)
    library = CrossEncoder(str(cross_encoders / "1"))
    for row in rows_of(output):
        columns = ["positive", *(f"negative_{number}" for number in (1, 2, 3))]
        assert row.keys() == {"anchor", *columns, "scores"}
        scores = library.predict([(row["anchor"], row[column]) for column in columns])
        np.testing.assert_allclose(row["scores"], scores, atol=1e-5)  # float32 in batches of other shapes
        assert sorted(row["scores"][1:], reverse=True) == row["scores"][1:]
    (kept,) = cache.rglob("scores.sqlite")
    kept.write_bytes(b"no database at all, of some length")
    with pytest.raises(InputError) as refused:
        command(*overrides, "overwrite=true")
    assert (refused.value.key, refused.value.value) == ("cache_folder", kept)


def test_what_each_rule_left_out_is_counted(encoder, given, tmp_path):
    output, rules = tmp_path / "mined.jsonl", {"num_negatives": 1, "relative_margin": 0.05, "max_score": 0.9}
    assert (
        command(*given, f"output={output}", "range_max=200", *(f"{key}={value}" for key, value in rules.items())) == 0
    )
    texts = texts_of(PAIRS)
    cosines, wanted = cosines_by(encoder, PAIRS, texts), {"relative_margin": 0, "max_score": 0}
    for anchor in dict.fromkeys(anchor for anchor, _ in PAIRS):
        own = {b for a, b in PAIRS if a == anchor} | ({anchor} if anchor in texts else set())
        farthest = min(cosines[anchor, text] for text in own)
        for text in set(texts) - own:
            if cosines[anchor, text] > farthest - 0.05 * abs(farthest):
                wanted["relative_margin"] += 1
            elif cosines[anchor, text] > 0.9:
                wanted["max_score"] += 1
    told = json.loads((tmp_path / "mined.jsonl.json").read_text())["left_out"]
    assert told == {rule: number for rule, number in wanted.items() if number}
    assert told


@pytest.mark.rotates
def test_real_answers_by_minilm_follow_the_rules(shared_data, minilm_path, tmp_path):
    with gzip.open(shared_data / "train" / "qa_pairs.jsonl.gz", "rt") as file:
        read = [json.loads(line) for line in itertools.islice(file, 40)]
    pairs = [(row["question"], row["answer"]) for row in read]
    path = write_rows(tmp_path / "qa.jsonl", [{"question": a, "answer": b} for a, b in pairs])
    overrides = [f"encoder={minilm_path}", f"input={path}", f"output={tmp_path / 'mined.jsonl'}", "device=cpu"]
    rules = {"num_negatives": 3, "relative_margin": 0.05}
    assert command(*overrides, *(f"{key}={value}" for key, value in rules.items())) == 0
    texts = texts_of(pairs)
    cosines = cosines_by(minilm_path, pairs, texts)
    wanted = list(expected(pairs, texts, cosines, rules))
    assert len(wanted) > 30
    compare(rows_of(tmp_path / "mined.jsonl"), wanted, cosines)


def test_prompts_are_the_encoder_s_own_unless_others_are_said(encoder, given, tmp_path):
    shutil.copytree(encoder, tmp_path / "run" / "encoder")
    path = tmp_path / "run" / "encoder" / "config_sentence_transformers.json"
    own = {"query": "sea music ", "document": "bread comet "}
    path.write_text(json.dumps({**json.loads(path.read_text()), "prompts": own}))
    texts, rules = texts_of(PAIRS), {"num_negatives": 3}
    found = []
    for number, prompts in enumerate((None, ("", ""), ("violin ", ""))):
        overrides = [] if prompts is None else [f"query_prompt='{prompts[0]}'", f"corpus_prompt='{prompts[1]}'"]
        output = tmp_path / f"{number}.jsonl"
        assert command(f"encoder={tmp_path / 'run'}", *given[1:], f"output={output}", *overrides) == 0
        cosines = cosines_by(encoder, PAIRS, texts, prompts or tuple(own.values()))
        compare(rows_of(output), expected(PAIRS, texts, cosines, rules), cosines)
        found.append(output.read_text())
    assert len(set(found)) == 3


def test_a_draw_is_of_the_range_and_depends_on_the_seed_alone(encoder, given, tmp_path):
    texts, rules = texts_of(PAIRS), {"num_negatives": 2, "range_max": 12, "sampling_strategy": "random"}
    overrides = [*given, *(f"{key}={value}" for key, value in rules.items())]
    before = random.getstate()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert command(*overrides, f"seed={seed}", f"output={tmp_path / name}.jsonl") == 0
    assert random.getstate() == before
    a, b, c = ((tmp_path / f"{name}.jsonl").read_text() for name in "abc")
    assert a == b != c
    wanted = expected(PAIRS, texts, cosines_by(encoder, PAIRS, texts), rules)
    drawn = 0
    for row, (anchor, positive, among, _) in zip(rows_of(tmp_path / "a.jsonl"), wanted, strict=True):
        assert (row["anchor"], row["positive"]) == (anchor, positive)
        places = [among.index(row[f"negative_{n}"]) for n in (1, 2)]
        assert places == sorted(places)
        drawn += places != [0, 1]
    assert drawn > 15


def killed_before(name, replace):
    def replaced(self, target):
        if Path(target).name == name:
            raise KeyboardInterrupt
        return replace(self, target)

    return replaced


@pytest.mark.advice("contrastive_encoders.io.output_directory:overwrite_hint")
def test_a_finished_job_is_left_alone_and_another_loses_nothing(given, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    output = tmp_path / "mined.jsonl"
    overrides = [*given, f"output={output}"]
    assert command(*overrides) == 0
    whole, about = output.read_bytes(), (tmp_path / "mined.jsonl.json").read_bytes()
    assert command(*overrides) == 0
    assert "overwrite=true" in caplog.text
    with pytest.raises(InputError) as refused:
        command(*overrides, "num_negatives=2")
    assert refused.value.key == "output"
    assert "num_negatives is 2" in refused.value.expected
    with pytest.raises(InputError) as refused:
        command(*overrides, "num_negatives=40", "overwrite=true")
    assert (refused.value.key, refused.value.value) == ("num_negatives", 40)
    assert (output.read_bytes(), (tmp_path / "mined.jsonl.json").read_bytes()) == (whole, about)
    monkeypatch.setattr(Path, "replace", killed_before("mined.jsonl", Path.replace))
    with pytest.raises(KeyboardInterrupt):
        command(*overrides, "num_negatives=2", "overwrite=true")
    monkeypatch.undo()
    assert not output.exists()
    assert command(*overrides, "num_negatives=2") == 0
    assert command(*overrides, "overwrite=true") == 0
    assert output.read_bytes() == whole
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mined.jsonl", "mined.jsonl.json"]


def test_vectors_are_kept_for_each_encoder_and_half_a_file_is_thrown_away(given, tmp_path):
    folder = tmp_path / "vectors"
    cached = [*given, f"cache_folder={folder}"]
    assert command(*given, f"output={tmp_path / 'whole.jsonl'}") == 0
    assert command(*cached, f"output={tmp_path / 'first.jsonl'}") == 0
    (corpus,) = folder.glob("*/corpus_*.npy")
    vectors = np.load(corpus)
    np.save(corpus, vectors[::-1])  # detected when they are used
    assert command(*cached, f"output={tmp_path / 'turned.jsonl'}") == 0
    corpus.write_bytes(corpus.read_bytes()[:-5])
    assert command(*cached, f"output={tmp_path / 'again.jsonl'}") == 0
    first, turned, again, whole = (
        (tmp_path / f"{name}.jsonl").read_bytes() for name in ("first", "turned", "again", "whole")
    )
    assert first == again == whole != turned
    np.testing.assert_array_equal(np.load(corpus), vectors)
    assert command(*cached, "max_length=3", f"output={tmp_path / 'other.jsonl'}") == 0  # another encoder
    assert (tmp_path / "other.jsonl").read_bytes() != whole


def children(process):
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
def test_several_processes_write_the_rows_of_one_and_end_with_the_command(minilm_path, given, tmp_path):
    overrides = [sys.executable, "-m", "contrastive_encoders", "mine-negatives", *given, "devices=2"]
    assert command(*given, f"output={tmp_path / 'one.jsonl'}") == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*overrides, f"output={tmp_path / 'two.jsonl'}"], env=environment, timeout=300, check=False)
    assert done.returncode == 0
    for one, two in zip(rows_of(tmp_path / "one.jsonl"), rows_of(tmp_path / "two.jsonl"), strict=True):
        np.testing.assert_allclose(one.pop("scores"), two.pop("scores"), atol=2e-6)
        assert one == two
    path = write_rows(
        tmp_path / "long.jsonl", [{"anchor": f"{n} why", "positive": f"{n} x " * 200} for n in range(4000)]
    )
    overrides[4:6] = [f"encoder={minilm_path}", f"input={path}"]
    started = subprocess.Popen([*overrides, f"output={tmp_path / 'killed.jsonl'}"], env=environment)
    deadline = time.monotonic() + 120
    while len(workers := children(started.pid)) < 3 and time.monotonic() < deadline:  # two, and one that counts
        time.sleep(0.1)
    time.sleep(20)  # until they have a model
    started.send_signal(signal.SIGKILL)
    started.wait()
    while any(Path(f"/proc/{one}").exists() for one in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(workers) == 3
    assert not [one for one in workers if Path(f"/proc/{one}").exists()]


@pytest.mark.parametrize(("key", "source"), [("encoder", "encoder"), ("reranker", "cross_encoders")])
def test_code_of_a_model_is_never_run(key, source, given, tmp_path, request):
    kept = request.getfixturevalue(source)
    shutil.copytree(kept / "1" if key == "reranker" else kept, tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text(
        f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\nclass Bad: pass\n"
    )
    (tmp_path / "model" / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Bad"}])
    )
    about = {"model_type": "CrossEncoder" if key == "reranker" else "SentenceTransformer"}
    (tmp_path / "model" / "config_sentence_transformers.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"evil\.Bad"):
        command(*given, f"output={tmp_path / 'x.jsonl'}", "relative_margin=0", f"{key}={tmp_path / 'model'}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["output={tmp}/x.csv"], r"^output=.*x\.csv: .*\.jsonl"),
        (["output={tmp}/theirs.jsonl"], r"^output=.*theirs\.jsonl: "),
        (["num_negatives=0"], "^num_negatives=0: .* 1 "),
        (["relative_margin=-0.1"], "^relative_margin=-0.1: .* 0 "),
        (["range_min=5", "range_max=6"], "^range_max=6: .* 8"),
        (["min_score=0.5", "max_score=0.4"], "^min_score=0.5: .* max_score=0.4"),
        (["column=text"], "^column=text: "),
        (["corpus={tmp}/blank.txt"], r"^corpus=.*blank\.txt: "),
        (["reranker={cross}/3", "relative_margin=0"], "/3: .*got 3"),
        (["reranker={bert}", "relative_margin=0"], "BertForMaskedLM"),
        (["reranker={tmp}/none", "relative_margin=0"], "^reranker=.*none: "),
        (["encoder={tmp}/none"], "^encoder=.*none: "),
        (["encoder={tmp}"], r"^encoder=[^:]*/test_wrong_input[^/:]*: "),
        (["encoder={tmp}/theirs.jsonl"], r"^encoder=.*theirs\.jsonl: "),
        (["cache_folder={tmp}/blank.txt"], r"^cache_folder=.*blank\.txt.*: "),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(cross_encoders, tiny_bert, given, tmp_path, overrides, message):
    (tmp_path / "theirs.jsonl").write_text("{}\n")
    (tmp_path / "blank.txt").write_text("\n \n")
    places = {"tmp": tmp_path, "cross": cross_encoders, "bert": tiny_bert}
    with pytest.raises(InputError, match=message):
        command(*given, f"output={tmp_path / 'mined.jsonl'}", *(override.format(**places) for override in overrides))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["blank.txt", "theirs.jsonl"]
    assert (tmp_path / "theirs.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("key", ["input", "corpus"])
def test_the_output_may_not_replace_what_is_read(given, tmp_path, key):
    command(*given, f"output={tmp_path / 'mined.jsonl'}")
    before = (tmp_path / "mined.jsonl").read_bytes()
    with pytest.raises(InputError) as refused:
        command(*given, f"{key}={tmp_path}", f"output={tmp_path / 'mined.jsonl'}", "overwrite=true")
    assert (refused.value.key, f"{key}={tmp_path}" in refused.value.expected) == ("output", True)
    assert (tmp_path / "mined.jsonl").read_bytes() == before


@pytest.mark.parametrize("kept", [False, True])
def test_scores_that_are_no_numbers_are_refused_and_nothing_is_written(cross_encoders, given, tmp_path, kept):
    from transformers import AutoModelForSequenceClassification

    broken, output = shutil.copytree(cross_encoders / "1", tmp_path / "broken"), tmp_path / "mined.jsonl"
    model = AutoModelForSequenceClassification.from_pretrained(broken)
    model.classifier.bias.data.fill_(torch.nan)
    model.save_pretrained(broken)
    cache = [f"cache_folder={tmp_path / 'cache'}"] if kept else []
    with pytest.raises(InputError, match=r"reranker: .*finite"):
        command(*given, f"output={output}", f"reranker={broken}", *cache)
    assert not output.exists()


@pytest.mark.rotates
@pytest.mark.parametrize(("file", "key"), [("config.json", "sentence_transformers"), ("tokenizer.json", "normalizer")])
def test_a_reranker_of_the_same_weights_has_scores_of_its_own(cross_encoders, given, tmp_path, file, key):
    """Both compute another function from the same weights, or read texts in another way."""
    other = shutil.copytree(cross_encoders / "1", tmp_path / "other")
    settings = json.loads((other / file).read_text())
    settings[key] = None if key == "normalizer" else {"activation_fn": "torch.nn.modules.activation.Tanh"}
    (other / file).write_text(json.dumps(settings))
    for name in ("first", "alone"):
        overrides = [*given, f"output={tmp_path / name}.jsonl"]
        if name == "first":
            overrides.append(f"cache_folder={tmp_path / 'cache'}")
            assert command(*overrides, f"reranker={cross_encoders / '1'}") == 0
            overrides.append("overwrite=true")
        assert command(*overrides, f"reranker={other}") == 0
    first, alone = (rows_of(tmp_path / f"{name}.jsonl") for name in ("first", "alone"))
    scores = [[row.pop("scores") for row in rows] for rows in (first, alone)]
    assert first == alone
    np.testing.assert_allclose(*scores, atol=1e-5)  # other pairs were in the same pass


def test_scores_of_this_command_are_not_logged_as_cached(cross_encoders, given, tmp_path, caplog):
    overrides = [*given, f"reranker={cross_encoders / '1'}", f"cache_folder={tmp_path / 'cache'}"]
    with caplog.at_level("INFO"):
        assert command(*overrides, f"output={tmp_path / 'first.jsonl'}") == 0
        assert not any(str(tmp_path / "cache") in map(str, record.args or ()) for record in caplog.records)
        assert command(*overrides, f"output={tmp_path / 'second.jsonl'}") == 0
    assert any(str(tmp_path / "cache") in map(str, record.args or ()) for record in caplog.records)


def test_a_database_that_cannot_be_opened_or_is_damaged_is_refused(tmp_path):
    model, file = type("Model", (), {"predict": lambda _, pairs: torch.zeros(len(pairs))})(), tmp_path / "scores.sqlite"
    file.mkdir()
    with pytest.raises(InputError) as refused:
        CachedReranker(model, file)
    assert (refused.value.key, refused.value.value) == ("cache_folder", file)

    file.rmdir()
    pairs = [("a", str(number)) for number in range(2000)]
    kept = CachedReranker(model, file)
    kept.predict(pairs)
    kept.base.close()
    whole = file.read_bytes()
    with contextlib.closing(sqlite3.connect(file)) as base:
        (page,) = base.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchone()
    file.write_bytes(whole[: (page - 1) * 4096] + b"\xff" * 4096 + whole[page * 4096 :])
    with pytest.raises(InputError) as refused:
        CachedReranker(model, file).predict(pairs)
    assert (refused.value.key, refused.value.value) == ("cache_folder", file)
    assert "database" in refused.value.expected


def test_two_commands_keep_scores_in_one_place(tmp_path):
    """The second command writes the same pairs while the model of the first one runs."""
    pairs, file = [("a", "b"), ("a", "c")], tmp_path / "scores.sqlite"

    class Model:
        def __init__(self, meanwhile=None):
            self.meanwhile = meanwhile

        def predict(self, pairs, **_):
            if self.meanwhile:
                self.meanwhile.predict(pairs)
            return torch.arange(len(pairs)).float()

    second = CachedReranker(Model(), file)
    assert CachedReranker(Model(second), file).predict(pairs).tolist() == [0, 1]
    assert second.predict(pairs[::-1]).tolist() == [1, 0]
    with pytest.raises(InputError, match=r"reranker: .*finite"):
        CachedReranker(type("Broken", (), {"predict": lambda *_: torch.tensor([torch.nan])})(), file).predict(
            [("x", "y")]
        )
