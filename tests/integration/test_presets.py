"""A preset monitors what its paper monitored, if the tables for it are available, and trains in any case."""

import re
import shutil

import pytest

from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.results import read_results
from tests.data import write_rows
from tests.integration.conftest import TINY

PUBLISHED, PLAIN = "stsb-dev@senteval/cosine/spearman", "stsb-dev/cosine/spearman"


@pytest.fixture(scope="module")
def overrides(tmp_path_factory, tested):
    path = tmp_path_factory.mktemp("texts") / "sentences.txt"
    path.write_text("".join(f"{number} {tested}\n" for number in range(20)))
    small = [*TINY, "model.mlp=false", "model.pooling=mean"]
    run = ["precision=fp32", "batch_size=4", "max_steps=3", "max_epochs=null", "evaluation.every_n_steps=1"]
    return ["experiment=simcse_unsup", f"data.path={path}", *small, *run]


@pytest.mark.rotates
@pytest.mark.parametrize("form", [PUBLISHED, PLAIN, None])
def test_a_preset_monitors_the_available_form_of_its_score(form, overrides, small_eval, command, tmp_path):
    root = tmp_path / "eval"
    if form:
        shutil.copytree(small_eval, root)
        overrides = [*overrides, f"evaluation.data_root={root}", "evaluation.suite=[stsb]"]
    if form == PUBLISHED:
        dev = root / "STSBenchmark" / "dev.tsv"
        (root / "STSBenchmark" / "dev.senteval.tsv").write_text(dev.read_text().lower())
    done = command(*overrides, f"output_dir={tmp_path / 'run'}")
    assert done.status == 0, done.err
    said = {
        PLAIN: r"; stsb-dev ",
        None: r"evaluation\.data_root .*sts,.* stsb-dev@senteval",
    }
    assert [bool(re.search(said[one], done.err)) for one in said] == [one == form for one in said]
    scored = [row for row in read_rows(tmp_path / "run" / "metrics.csv") if form and row.get(form) and int(row["step"])]
    assert len(scored) == (3 if form else 0)
    best = max(scored, key=lambda row: float(row[form]))["step"] if form else 3
    assert read_results(tmp_path / "run" / "results.json")["best_step"] == int(best)


def test_a_monitor_of_the_command_line_is_not_dropped(overrides, command, tmp_path):
    done = command(*overrides, f"monitor={PUBLISHED}", f"output_dir={tmp_path / 'run'}")
    assert done.status == 2
    assert "evaluation.during_training=stsb-dev@senteval: " in done.err


def test_both_kinds_of_rows_are_learnt_from_and_scored(rows, small_eval, tiny_bert, command, tmp_path):
    questions = write_rows(tmp_path / "qa.jsonl", ({"query": f"who {n}?", "answer": f"Ferry {n}."} for n in range(40)))
    tasks = write_rows(tmp_path / "asked.jsonl", ({"query": f"where {n}?", "document": f"Boat {n}."} for n in range(9)))
    overrides = [f"data.parts.nli.path={rows}", "data.parts.nli.name=null", f"data.parts.questions.path={questions}"]
    overrides += [f"backbone={tiny_bert}", "batch_size=4", "max_steps=4", f"evaluation.data_root={small_eval}"]
    overrides += ["evaluation.suite=[stsb]", f"evaluation.custom_tasks=[{tasks}]", f"output_dir={tmp_path / 'run'}"]
    done = command("experiment=sts_and_retrieval", *overrides)
    assert done.status == 0, done.err
    results = read_results(tmp_path / "run" / "results.json")
    assert {"stsb/cosine/spearman", "asked/cosine/ndcg@10"} <= results["scores"].keys() & results[
        "scores_before"
    ].keys()
    assert "verdict" in results
    names = [manifest.get("parts", {}).keys() for manifest in results["data"]]
    assert names == [{"nli", "questions"}]
