"""Several encoders in one evaluation, and texts on which one was trained."""

import csv
import json
import random
import re
import shutil

import numpy as np
import pytest
import torch

from contrastive_encoders.cli.evaluate import run
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sampling.held_out import HeldOutSplit
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.evaluation.several_encoders import short_names
from contrastive_encoders.evaluation.trained_texts import trained_texts
from contrastive_encoders.io.item_scores import items_path, read_items
from contrastive_encoders.io.manifest import describe_files
from contrastive_encoders.io.results import read_results, write_results
from tests.comparison.conftest import make_run
from tests.in_process import run_here

WORDS = [f"word{place}" for place in range(400)]
PAIRS = [(" ".join(WORDS[3 * i : 3 * i + 3]), " ".join(WORDS[3 * i + 1 : 3 * i + 12])) for i in range(60)]


def write_pairs(path, pairs, columns=("query", "document")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *pairs])
    return path


@pytest.fixture
def two_encoders(tmp_path):
    """Make random word vectors, with few and with more dimensions."""
    paths = []
    for name, width in (("narrow", 2), ("wide", 24)):
        vectors = torch.randn(len(WORDS), width, generator=torch.Generator().manual_seed(width))
        lines = [
            f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(WORDS, vectors.tolist(), strict=True)
        ]
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def evaluate(*overrides):
    return run_here("evaluate", run, ("suite=[]", "device=cpu", *overrides))


def test_differences_are_paired_and_each_encoder_has_a_file(two_encoders, tmp_path, capsys):
    task = write_pairs(tmp_path / "mine.csv", PAIRS)
    encoders = ",".join(map(str, two_encoders))
    assert evaluate(f"encoder=[{encoders}]", f"custom_tasks={task}", f"output={tmp_path / 'scores.json'}") == 0
    files = [tmp_path / f"scores-{name}.json" for name in ("narrow", "wide")]
    first, second = (read_results(file)["scores"] for file in files)
    before, after = (read_items(items_path(file)).replicates for file in files)
    name = "mine/cosine/ndcg@10"
    low, high = np.quantile(after[name].astype(float) - before[name].astype(float), [0.025, 0.975])
    cell = f"+{second[name] - first[name]:.2f} (+{low:.2f} to +{high:.2f}) better"
    assert low > 0
    [row] = [line for line in (tmp_path / "scores.md").read_text().splitlines() if line.startswith(f"| `{name}`")]
    assert row == f"| `{name}` | {first[name]:.2f} | {second[name]:.2f} | {cell} |"
    assert max(map(len, capsys.readouterr().out.splitlines()[:8])) <= 80

    alone = tmp_path / "alone.json"
    evaluate(f"encoder={two_encoders[1]}", f"custom_tasks={task}", f"output={alone}", "quiet=true")
    assert read_results(alone)["scores"] == second


def test_an_encoder_against_its_copy_is_not_better(two_encoders, tmp_path):
    task, copy = write_pairs(tmp_path / "mine.csv", PAIRS), shutil.copy(two_encoders[0], tmp_path / "copy.txt")
    evaluate(
        f"encoder=[{two_encoders[0]},{copy}]", f"custom_tasks={task}", f"output={tmp_path / 's.json'}", "quiet=true"
    )
    rows = [line for line in (tmp_path / "s.md").read_text().splitlines() if line.startswith("| `mine")]
    assert all("+0.00 (+0.00 to +0.00) |" in row for row in rows)


@pytest.mark.parametrize(
    "overrides",
    [["encoder=[a.txt,a.txt]", "custom_tasks={task}"], ["encoder=[a,b]", "suite=mteb", "mteb_tasks=[STSBenchmark]"]],
    ids=["equal", "mteb"],
)
def test_invalid_lists_of_encoders_are_refused(overrides, tmp_path):
    task = write_pairs(tmp_path / "mine.csv", PAIRS)
    with pytest.raises(InputError) as caught:
        evaluate(*(override.format(task=task) for override in overrides))
    assert (caught.value.key, caught.value.value) == ("encoder", overrides[0].partition("=")[2])


@pytest.mark.parametrize("place", [0, 1])
def test_an_encoder_that_is_not_there_is_refused_before_one_is_scored(place, two_encoders, tmp_path):
    encoders = [str(two_encoders[0])]
    encoders.insert(place, str(tmp_path / "nosuch"))
    task = write_pairs(tmp_path / "mine.csv", PAIRS)
    with pytest.raises(InputError) as refused:
        evaluate(f"encoder=[{','.join(encoders)}]", f"custom_tasks={task}", f"output={tmp_path / 's.json'}")
    assert str(tmp_path / "nosuch") in str(refused.value)
    assert not list(tmp_path.glob("s*.json"))


def test_a_page_that_is_no_evaluations_is_kept(two_encoders, tmp_path):
    task = write_pairs(tmp_path / "mine.csv", PAIRS)
    (tmp_path / "s.md").write_text("notes")
    with pytest.raises(InputError) as caught:
        evaluate(
            f"encoder=[{two_encoders[0]},{two_encoders[1]}]", f"custom_tasks={task}", f"output={tmp_path / 's.json'}"
        )
    assert caught.value.key == "output"
    assert (tmp_path / "s.md").read_text() == "notes"


def test_names_are_last_parts_that_differ():
    assert short_names(["outputs/a", "outputs/b/encoder"]) == ["a", "b"]
    assert short_names(["x/run/encoder", "y/run/encoder"]) == ["x-run", "y-run"]
    assert short_names(["org/model-a", "site/gt_package/model"]) == ["model-a", "gt_package"]


@pytest.fixture
def trained(tmp_path):
    """Make a run whose manifest names a file of forty pairs and one long document."""
    document = " ".join(["Something before."] + [answer for _, answer in PAIRS[40:45]] + ["And after."])
    data = write_pairs(tmp_path / "train.csv", [*PAIRS[:40], ("the title", document)], ("question", "answer"))
    folder = make_run(tmp_path / "run", "pairs", 1, 0.2)
    results = read_results(folder / "results.json")
    manifest = {"kept": 40, "source": describe_files([data])}
    write_results(folder / "results.json", results | {"data": [manifest]})
    (folder / "encoder").mkdir()
    return folder


def test_texts_that_a_run_was_trained_on_are_counted(trained):
    sentences = {
        "seen": [answer.upper() for _, answer in PAIRS[:10]],  # as values of rows
        "inside": [answer for _, answer in PAIRS[40:44]]
        + [answer for _, answer in PAIRS[50:56]],  # four in the document
        "unseen": [answer for _, answer in PAIRS[50:]],
        "short": ["yes", "no"],
    }
    for encoder in (trained, trained / "encoder"):
        found = trained_texts(str(encoder), sentences)
        assert found.files == ["train.csv"]
        assert {task: (one["found"], one["checked"]) for task, one in found.overlap.items()} == {
            "seen": (10, 10),
            "inside": (4, 10),
            "unseen": (0, 10),
            "short": (0, 0),
        }


def test_rows_of_the_file_that_were_not_trained_on_are_not_counted(tmp_path):
    rng = random.Random(0)
    rows = [
        {"question": " ".join(rng.choices(WORDS, k=5)), "answer": " ".join(rng.choices(WORDS, k=12))} for _ in PAIRS
    ]
    lines = [json.dumps(row | {"split": "train" if number < 40 else "test"}) for number, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    source = RecordSource(tmp_path / "train.jsonl", QA, columns=None, split="train", on_error="fail")
    used = HeldOutSplit(source, 0.25, tmp_path / "cache")
    trained = {text for record in used for text in record.texts}
    folder = make_run(tmp_path / "run", "pairs", 1, 0.2)
    results = read_results(folder / "results.json") | {"data": [{"source": used.manifest()}]}
    write_results(folder / "results.json", results)
    texts = [text for row in rows for text in row.values()]
    found = trained_texts(str(folder), {"all": texts, "trained": [text for text in texts if text in trained]}).overlap
    assert found == {"all": {"checked": 120, "found": 60}, "trained": {"checked": 60, "found": 60}}


def test_a_run_that_began_from_another_run_was_trained_on_its_data_too(trained, tmp_path):
    later = make_run(tmp_path / "later", "pairs", 1, 0.2)
    sentences = {"seen": [answer for _, answer in PAIRS[:10]]}
    assert trained_texts(str(later), sentences).overlap == {}
    results = read_results(later / "results.json") | {"backbone": str(trained / "encoder")}
    write_results(later / "results.json", results)
    assert trained_texts(str(later), sentences).overlap == {"seen": {"checked": 10, "found": 10}}


def test_a_run_at_learning_rate_0_was_trained_on_nothing(trained):
    results = read_results(trained / "results.json")
    sentences = {"seen": [answer for _, answer in PAIRS[:10]]}
    for head_lr, overlap in ((None, {}), (0.0, {}), (0.01, {"seen": {"checked": 10, "found": 10}})):
        results["recipe"]["model"] |= {"lr": 0.0, "head_lr": head_lr}
        write_results(trained / "results.json", results)
        assert trained_texts(str(trained), sentences).overlap == overlap


def test_without_the_files_the_runs_own_count_is_taken(trained):
    (trained.parent / "train.csv").unlink()
    results = read_results(trained / "results.json")
    overlap = {"seen": {"checked": 200, "found": 3}}
    write_results(trained / "results.json", results | {"overlap": overlap | {"other": {"checked": 9, "found": 9}}})
    assert trained_texts(str(trained), {"seen": ["x"]}).overlap == overlap


def test_nothing_is_known_of_other_encoders(two_encoders, tmp_path, caplog):
    assert trained_texts(str(two_encoders[0]), {"a": ["some text that is long"]}).overlap == {}
    assert trained_texts("sentence-transformers/all-MiniLM-L6-v2", {"a": ["some text that is long"]}).overlap == {}


def test_the_warning_names_the_task_and_the_count(two_encoders, trained, tmp_path, caplog):
    shutil.copy(two_encoders[0], trained / "vectors.txt")
    seen = write_pairs(tmp_path / "seen.csv", PAIRS[:20])
    output = tmp_path / "s.json"
    evaluate(f"encoder={trained / 'vectors.txt'}", f"custom_tasks={seen}", "quiet=true", f"output={output}")
    [warning] = [record.getMessage() for record in caplog.records if "trained" in record.getMessage()]
    assert re.search(r"\b40 of 40 .*\bseen\b", warning)  # queries and documents
    assert read_results(output)["overlap"] == {"seen": {"checked": 40, "found": 40}}
    assert re.search(r"\b40 of 40 .*\bseen\b", output.with_suffix(".md").read_text())
    encoders = f"encoder=[{trained / 'vectors.txt'},{two_encoders[1]}]"
    evaluate(encoders, f"custom_tasks={seen}", "quiet=true", f"output={tmp_path / 'both.json'}")
    assert re.search(r"vectors: 40 of 40 .*\bseen\b", (tmp_path / "both.md").read_text())
    assert "overlap" not in read_results(tmp_path / "both-wide.json")  # unknown
    caplog.clear()
    unseen = write_pairs(tmp_path / "unseen.csv", PAIRS[50:])
    evaluate(f"encoder={trained / 'vectors.txt'}", f"custom_tasks={unseen}", "quiet=true")
    assert not [record for record in caplog.records if "trained" in record.getMessage()]
