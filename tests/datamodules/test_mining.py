"""Hard negatives are those of sentence-transformers' ``mine_hard_negatives``; a job that was cut short goes on."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from contracts import InputError
from datamodules import mine
from datamodules.mining.hard_negatives import MiningRules, pairs_of
from datamodules.mining.hard_negatives import mine as mine_with
from datamodules.mining.nearest_neighbours import ExactSearch, IndexSearch
from encoders import load_encoder
from tests.conftest import COMMON, SENTENCES, TOPICS
from tests.data import data_module, write_rows
from tests.encoders.test_matryoshka import export_whole
from tests.forks import run_command
from tests.in_process import run_here
from tests.objectives import built

WORDS = [*itertools.chain(*TOPICS.values()), *COMMON]
ANCHORS = [f"{one} {WORDS[-n]} {WORDS[3 * n]}" for n, one in enumerate(WORDS[:24], start=1)]
PAIRS = [(anchor, f"{anchor.split()[0]} {WORDS[5 * n % 90]}") for n, anchor in enumerate(ANCHORS)]
PAIRS += [(ANCHORS[3], "a second positive of it"), (ANCHORS[7], PAIRS[9][1]), PAIRS[2]]
RULES = {
    "range_min": 0,
    "range_max": None,
    "absolute_margin": None,
    "relative_margin": None,
    "sampling": "top",
    "seed": 1,
}


@pytest.fixture(scope="module")
def encoder(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("miner") / "encoder"
    export_whole(built("sroberta", tiny_bert).encoder, folder)
    return folder


def mined(pairs, anchors, corpus, rules, nearest=None):
    return mine_with(pairs, anchors, corpus, rules, nearest or ExactSearch(corpus, "cpu"))


def command(*words):
    return run_here("mine", mine.run, mine.Keys, words)


@pytest.mark.parametrize(
    ("corpus", "rules"),
    [
        ([], {"negatives": 1}),
        (SENTENCES, {"negatives": 3}),
        (SENTENCES, {"negatives": 2, "range_min": 4, "range_max": 9}),
        (SENTENCES, {"negatives": 2, "absolute_margin": 0.03}),
        (SENTENCES, {"negatives": 2, "relative_margin": 0.02, "range_max": 30}),
        (SENTENCES, {"negatives": 3, "absolute_margin": 0.01, "relative_margin": 0.05, "range_min": 1}),
    ],
)
def test_they_are_the_library_s(encoder, tmp_path, corpus, rules):
    library = pytest.importorskip("sentence_transformers")
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.util import mine_hard_negatives

    rows = datasets.Dataset.from_dict({"anchor": [a for a, _ in PAIRS], "positive": [b for _, b in PAIRS]})
    options = {"num_negatives" if key == "negatives" else key: value for key, value in rules.items()}
    wanted = mine_hard_negatives(
        rows,
        library.SentenceTransformer(str(encoder), device="cpu"),
        corpus=corpus or None,
        **options,
        output_format="n-tuple",
        output_scores=True,
        verbose=False,
    )
    path = write_rows(tmp_path / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in PAIRS])
    words = [f"encoder={encoder}", f"input={path}", f"output={tmp_path / 'mined.jsonl'}", "device=cpu"]
    if corpus:
        (tmp_path / "corpus.txt").write_text("\n".join(corpus))
        words.append(f"corpus={tmp_path / 'corpus.txt'}")
    assert command(*words, *(f"{key}={value}" for key, value in rules.items())) == 0
    found = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    expected = wanted.to_list()
    assert 0 < len(expected) <= 26
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.pop("scores"), theirs.pop("scores"), atol=1e-5)
        assert ours == theirs
    account = json.loads((tmp_path / "mined.jsonl.json").read_text())
    assert (account["rows"], account["rows"] + account["too_few"]) == (len(expected), account["pairs"])
    batch = next(
        iter(
            data_module(
                "triplets", path=tmp_path / "mined.jsonl", tokenizer=encoder, cache_dir=tmp_path, batch_size=2
            ).train_dataloader()
        )
    )
    assert len(batch.negatives.lengths) == 2 * rules["negatives"]


def vectors_of(encoder, pairs):
    model = load_encoder(encoder, device="cpu")
    return model.embed(pairs.anchors).numpy(), model.embed(pairs.corpus).numpy()


def test_blocks_change_nothing_and_a_draw_depends_on_seed_and_anchor_alone(encoder, monkeypatch):
    pairs = pairs_of(PAIRS, SENTENCES)
    vectors = vectors_of(encoder, pairs)
    rules = MiningRules(negatives=2, **RULES | {"sampling": "random", "range_max": 12})
    whole = list(mined(pairs, *vectors, rules))
    monkeypatch.setattr("datamodules.mining.hard_negatives.ANCHORS_AT_ONCE", 5)
    monkeypatch.setattr("datamodules.mining.nearest_neighbours.TEXTS_AT_ONCE", 7)
    assert [one.negatives for one in mined(pairs, *vectors, rules)] == [one.negatives for one in whole]
    top = [one.negatives for one in mined(pairs, *vectors, rules._replace(sampling="top", negatives=12))]
    assert all(set(one.negatives) <= set(among) for one, among in zip(whole, top, strict=True))
    assert [one.negatives for one in mined(pairs, *vectors, rules._replace(seed=2))] != [o.negatives for o in whole]


@pytest.mark.parametrize(("factory", "effort"), [("Flat", None), ("IVF3", 3), ("HNSW8", 64)])
def test_an_index_of_faiss_that_looks_everywhere_finds_what_the_comparison_of_all_does(
    encoder, monkeypatch, factory, effort
):
    pairs = pairs_of(PAIRS, SENTENCES)
    vectors = vectors_of(encoder, pairs)
    rules = MiningRules(negatives=4, **RULES)
    whole = list(mined(pairs, *vectors, rules))
    monkeypatch.setattr("datamodules.mining.nearest_neighbours.AGAIN_AT_ONCE", 5)
    found = list(mined(pairs, *vectors, rules, IndexSearch(vectors[1], factory, effort, seed=1)))
    assert [one.negatives for one in found] == [one.negatives for one in whole]
    for ours, exact in zip(found, whole, strict=True):
        np.testing.assert_allclose(ours.negative_scores, exact.negative_scores, atol=1e-6)


def killed_before(name, replace):
    def replaced(self, target):
        if Path(target).name == name:
            raise KeyboardInterrupt
        return replace(self, target)

    return replaced


def test_a_job_that_was_cut_short_goes_on_and_a_finished_one_is_left_alone(encoder, tmp_path, monkeypatch, caplog):
    path = write_rows(tmp_path / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in PAIRS])
    words = [f"encoder={encoder}", f"input={path}", "device=cpu", "window=5"]
    assert command(*words, f"output={tmp_path / 'whole.jsonl'}") == 0
    seen = []

    def load(cfg):
        loaded = load_encoder(encoder, device="cpu")
        embed = loaded.embed

        def counted(texts, **options):
            seen.extend(texts)
            if len(seen) == cut:
                raise KeyboardInterrupt
            return embed(texts, **options)

        loaded.embed = counted
        return {"anchors": loaded, "corpus": loaded}

    monkeypatch.setattr(mine, "load", load)
    cut = 2 + 10
    with pytest.raises(KeyboardInterrupt):
        command(*words, f"output={tmp_path / 'cut.jsonl'}")
    assert not (tmp_path / "cut.jsonl").exists()
    cut = 0
    del seen[:]
    assert command(*words, f"output={tmp_path / 'cut.jsonl'}") == 0
    assert not set(ANCHORS[:5]) & set(seen)
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not (tmp_path / "cut.jsonl.vectors").exists()
    assert command(*words, f"output={tmp_path / 'cut.jsonl'}") == 0
    with pytest.raises(InputError, match="of another job"):
        command(*words, f"output={tmp_path / 'cut.jsonl'}", "negatives=2")
    with pytest.raises(InputError, match="no anchor got 40"):
        command(*words, f"output={tmp_path / 'cut.jsonl'}", "negatives=40", "overwrite=true")
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    about = (tmp_path / "whole.jsonl.json").read_bytes()
    monkeypatch.setattr(Path, "replace", killed_before("whole.jsonl", Path.replace))
    with pytest.raises(KeyboardInterrupt):
        command(*words, f"output={tmp_path / 'whole.jsonl'}", "negatives=2", "overwrite=true")
    monkeypatch.undo()
    assert command(*words, f"output={tmp_path / 'whole.jsonl'}", "negatives=2") == 0
    assert (tmp_path / "whole.jsonl.json").read_bytes() != about
    assert command(*words, f"output={tmp_path / 'cut.jsonl'}", "negatives=2", "overwrite=true") == 0


@pytest.mark.slow
def test_several_processes_write_the_rows_of_one(encoder, tmp_path):
    path = write_rows(tmp_path / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in PAIRS])
    words = [f"encoder={encoder}", f"input={path}", "device=cpu", "window=5", "quiet=true"]
    assert command(*words, f"output={tmp_path / 'one.jsonl'}") == 0
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "datamodules.mine"]
    for name, start, more in (
        ("two", ["-m", "datamodules.mine"], ["devices=2"]),
        ("two", ["-m", "datamodules.mine"], ["devices=2", "overwrite=true"]),
        ("torchrun", launcher, []),
    ):
        done = run_command([*start, *words, f"output={tmp_path / name}.jsonl", *more], tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    left = {one.name.partition(".")[0] for one in tmp_path.iterdir() if not one.name.startswith(".")}
    assert left == {"pairs", "one", "two", "torchrun"}
    assert not list(tmp_path.glob("*.vectors"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["output={tmp}/x.csv"], "ends in .jsonl"),
        (["output={tmp}/theirs.jsonl"], "does not say that it was mined"),
        (["negatives=0"], "at least 1 negative"),
        (["range_min=5", "range_max=6"], "no room for 3 negatives"),
        (["column=text"], "is of the corpus, and there is none"),
        (["index_effort=3"], "beside index="),
        (["index=Nonsense"], "faiss refuses it for .* texts"),
    ],
)
def test_wrong_input_is_told_in_one_message_and_writes_nothing(encoder, tmp_path, words, message):
    write_rows(tmp_path / "pairs.jsonl", [{"anchor": a, "positive": b} for a, b in PAIRS])
    (tmp_path / "theirs.jsonl").write_text("{}\n")
    given = [f"encoder={encoder}", f"input={tmp_path / 'pairs.jsonl'}", f"output={tmp_path / 'mined.jsonl'}"]
    with pytest.raises(InputError, match=message):
        command(*given, "device=cpu", *(word.format(tmp=tmp_path) for word in words))
    assert not (tmp_path / "mined.jsonl").exists()
    assert (tmp_path / "theirs.jsonl").read_text() == "{}\n"
