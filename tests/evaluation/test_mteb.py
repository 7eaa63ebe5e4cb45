"""``suite=mteb``: the official library's scores of the encoder equal those of this package for shared protocols."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from contrastive_encoders.cli.evaluate import run
from contrastive_encoders.core import EncoderPrompts, InputError, RatedPairs
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.mteb_suite import choose_tasks, run_tasks
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks.sts import LAYOUTS, read_pairs
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from contrastive_encoders.io.results import read_results
from tests.forks import run_command

ROOT = Path(__file__).resolve().parents[2]
WORDS = "tea salt gull drum moss lamp rope fern coal bell kite plum sand wool reed jade".split()


def local_task(pairs: RatedPairs, name: str = "LocalSTS"):
    """Return the pairs as one of the library's own tasks."""
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    rows = {"sentence1": pairs.left, "sentence2": pairs.right, "score": [float(gold) for gold in pairs.gold]}
    unknown = "date domains task_subtypes license annotations_creators dialect sample_creation reference".split()

    class Local(AbsTaskSTS):
        metadata = TaskMetadata(
            name=name,
            dataset={"path": "local/pairs", "revision": "1"},
            type="STS",
            eval_langs=["eng-Latn"],
            eval_splits=["test"],
            main_score="cosine_spearman",
            bibtex_citation="",
            description="-",
            category="t2t",
            modalities=["text"],
            **dict.fromkeys(unknown),
        )

        def load_data(self, *_, **__):
            self.dataset = DatasetDict({"test": Dataset.from_dict(rows)})
            self.data_loaded = True

    return Local()


def invented(pairs: int = 80) -> RatedPairs:
    rng = np.random.default_rng(0)
    left, right = ([" ".join(rng.choice(WORDS, 5)) for _ in range(pairs)] for _ in range(2))
    shared = [len(set(a.split()) & set(b.split())) for a, b in zip(left, right, strict=True)]
    gold = np.array(shared) + 0.1 * (np.arange(pairs) % 7)
    return RatedPairs("mine", left, right, gold, ["a"] * (pairs // 2) + ["b"] * (pairs - pairs // 2))


@pytest.mark.parametrize("kind", ["words", "transformer"])
def test_its_sts_is_our_protocol_all(kind, small_word_vectors, tiny_mlm):
    encoder = load_encoder(small_word_vectors if kind == "words" else tiny_mlm)
    pairs = invented()
    ours = Suite([pairs]).run(encoder, intervals=False).values["mine/all/spearman"]
    theirs = run_tasks(encoder, [local_task(pairs)])
    assert theirs == {"LocalSTS/mteb/cosine_spearman": pytest.approx(ours, abs=1e-4)}
    assert abs(ours) > 1


def test_named_prompts_are_used_as_the_library_chooses_them(tiny_mlm, tmp_path):
    base = load_encoder(tiny_mlm)
    prompts = {"default": "text: ", "STS": "compare: ", "LocalSTS": "this one: "}
    parts = {**parts_of(base), "prompts": EncoderPrompts(prompts, "default")}
    folder = export_encoder(tmp_path / "e", **parts)
    encoder, pairs = load_encoder(folder), invented()
    heard: list[str] = []
    before = encoder.tokenize
    encoder.tokenize = lambda texts: (heard.extend(texts), before(texts))[1]  # type: ignore[method-assign]
    for name, chosen in (("LocalSTS", "this one: "), ("OtherSTS", "compare: ")):
        heard.clear()
        found = run_tasks(encoder, [local_task(pairs, name)])
        assert all(text.startswith(chosen) for text in heard)
        ours = Suite([pairs]).run(load_encoder(folder, prompt=chosen), intervals=False).values["mine/all/spearman"]
        assert found == {f"{name}/mteb/cosine_spearman": pytest.approx(ours, abs=1e-4)}
    assert encoder.prompt == "text: "


def evaluate(cwd: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        ["-m", "contrastive_encoders", "evaluate", "suite=mteb", *overrides], cwd, HF_HOME=str(cwd / "home")
    )


@pytest.mark.slow
def test_the_official_stsbenchmark_from_the_command_line(shared_data, minilm_path, tmp_path):
    """A folder with the data set's name in the working directory is read instead of the hub's data.

    The published score is also that of this package: see test_minilm.py.
    """
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    pairs = read_pairs(shared_data / "eval", "stsb", LAYOUTS["stsb"])
    folder = tmp_path / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        rows = [
            json.dumps({"sentence1": a, "sentence2": b, "score": float(gold)})
            for a, b, gold in zip(pairs.left, pairs.right, pairs.gold, strict=True)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    done = evaluate(tmp_path, f"encoder={minilm_path}", "mteb_tasks=[STSBenchmark]", f"output={tmp_path / 's.json'}")
    assert done.returncode == 0, done.stderr[-3000:]
    found = read_results(tmp_path / "s.json")["scores"]
    assert found == {"STSBenchmark/mteb/cosine_spearman": pytest.approx(82.03, abs=0.01)}
    assert "STSBenchmark/mteb/cosine_spearman" in done.stdout
    assert json.loads((tmp_path / "s.mteb" / "STSBenchmark.json").read_text())["task_name"] == "STSBenchmark"


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the single line of the refusal."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("contrastive-encoders evaluate: ")
    return last


def test_unavailable_data_is_refused(small_word_vectors, tmp_path):
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    said = refused(evaluate(tmp_path, f"encoder={small_word_vectors}", "mteb_tasks=[STS13]"))
    assert re.search(r"task STS13: .*\bmteb/sts13-sts", said)


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["STSBenchmrk"], "STSBenchmrk"),
        (["STS12", "CIFAR10"], "CIFAR10"),
        (["CQADupstackRetrieval"], "CQADupstackRetrieval"),
    ],
)
def test_tasks_that_cannot_be_scored_are_refused(names, value):
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    with pytest.raises(InputError) as refusal:
        choose_tasks(names)
    assert (refusal.value.key, refusal.value.value) == ("mteb_tasks", value)


WRONG_WITHOUT_THE_LIBRARY = [
    (["mteb_tasks=[]", "encoder=x"], ("mteb_tasks", None)),
    (["mteb_tasks=[STS12]", "encoder=x", "suite=[mteb,sts]"], ("suite", "[mteb,sts]")),
    (["mteb_tasks=[STS12]", "action=check", "data_root=."], ("action", "check")),
]


def refused_key(*overrides: str) -> tuple[str | None, object]:
    """Return the key and the value of the refusal."""
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("evaluate", ["suite=mteb", *map(str, overrides)])
    with pytest.raises(InputError) as refusal:
        run(cfg)
    return refusal.value.key, refusal.value.value


@pytest.mark.parametrize(("overrides", "expected"), WRONG_WITHOUT_THE_LIBRARY, ids=lambda value: str(value)[:40])
def test_keys_are_checked_before_the_library_is_imported(overrides, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mteb", None)
    assert refused_key(*overrides) == expected
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert refused_key("mteb_tasks=[STS12]", "encoder=x") == ("suite", "mteb")
