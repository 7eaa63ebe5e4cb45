"""``contrastive-encoders evaluate`` as a user types it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from contrastive_encoders.core import Results
from contrastive_encoders.io.results import read_results
from tests.forks import run_command

ROOT = Path(__file__).resolve().parents[2]
SUITE = "suite=[sts,mr,trec,biosses,stsb-regressor]"


def evaluate(*arguments: str, processes: int = 1, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return run_command(
        [*(launcher if processes > 1 else []), "-m", "contrastive_encoders", "evaluate", *arguments], cwd or ROOT
    )


@pytest.fixture(scope="module")
def scored(small_tables, small_word_vectors, tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("scored")
    done = evaluate(
        f"encoder={small_word_vectors}",
        SUITE,
        f"data_root={small_tables}",
        "protocol=fast",
        f"output={folder / 'scores.json'}",
    )
    assert done.returncode == 0, done.stderr
    return done, folder


def test_the_json_is_a_results_file(scored, small_tables, small_word_vectors):
    _, folder = scored
    results: Results = read_results(folder / "scores.json")
    scores = results["scores"]
    assert {"sts12/mean/spearman", "stsb/cosine/spearman", "stsb/regressor/spearman", "stsb/max/pearson"} <= set(scores)
    assert {"mr/fast/accuracy", "mr-dev/fast/accuracy", "trec/fast/accuracy"} <= set(scores)
    assert scores["mr/fast/accuracy"] > 90, "whether a word is there is linear in the mean of word vectors"
    for name, (low, high) in results["intervals"].items():
        assert low <= scores[name] <= high or name.startswith("stsb/geometry"), name
    assert "STS13/test.tsv" in results["skipped"]["sts13"]
    assert re.findall(r"\d+", results["row_count_mismatches"]["STS12/test.tsv"]) == ["60", "3108"]
    assert results["backbone"] == str(small_word_vectors)
    assert set(results["data"][0]["tables"]) >= {"MR/all", "STS12/test", "STSBenchmark/train"}


def test_two_processes_find_the_same(scored, small_tables, small_word_vectors, tmp_path):
    _, folder = scored
    arguments = [f"encoder={small_word_vectors}", SUITE, f"data_root={small_tables}", "protocol=fast", "quiet=true"]
    done = evaluate(*arguments, f"output={tmp_path / 'two.json'}", processes=2)
    assert done.returncode == 0, done.stderr
    alone, two = (json.loads(path.read_text()) for path in (folder / "scores.json", tmp_path / "two.json"))
    assert (alone["processes"], two["processes"]) == (1, 2)
    assert two["scores"] == pytest.approx(alone["scores"], abs=1e-6)
    assert list(two["scores"]) == list(alone["scores"])


BAD = [
    (["data_root={data}"], [" encoder=..."]),
    (["encoder={vectors}", "data_root=/nowhere"], ["data_root=/nowhere", "action=list"]),
    (["encoder={vectors}", "data_root={data}", "suite=stss"], ["suite=stss: ", " sts."]),
    (["encoder={vectors}", "suite=stss"], ["suite=stss: ", " sts."]),
    (["encoder={vectors}", "data_root={data}", "suite=cr"], ["task cr: ", "CR/all.tsv"]),
    (["encoder={vectors}", "data_root={data}", "suite=trec@senteval"], ["expected", "TREC/train.senteval.tsv"]),
    (["encoder={vectors}", "data_root={data}", "protocol=slow"], ["protocol=slow", "default, fast, sklearn"]),
    (["encoder={vectors}", "data_root={data}", "suite=biosses", "output={vectors}/a/b.json"], ["/a/b.json: "]),
    (["encoder={vectors}", "data_root={data}", "device=cuda:7"], ["device=cuda:7: ", "auto"]),
    (["encoder={vectors}", "data_root={data}", "encodr=x"], ["encodr=x: ", " encoder."]),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=lambda value: " ".join(value)[-40:] or "bare")
def test_bad_input_gets_one_line_and_status_2(arguments, expected, small_tables, small_word_vectors, tmp_path):
    filled = [override.format(data=small_tables, vectors=small_word_vectors) for override in arguments]
    done = evaluate(*filled, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("contrastive-encoders evaluate: ")
    for part in expected:
        assert part in last
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_the_state_of_the_data(small_tables):
    listed = evaluate("action=list", f"data_root={small_tables}", "suite=sts")
    assert listed.returncode == 0
    assert "STS13/test" in listed.stdout
    checked = evaluate("action=check", f"data_root={small_tables}", "suite=[sts12,mr]")
    assert checked.returncode == 2, "60 rows are not the official 3,108"
    assert "STS12/test" in checked.stdout


def test_a_task_at_an_address_is_written_without_what_lets_one_in(small_word_vectors, server, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASTIVE_ENCODERS_CACHE", str(tmp_path / "cache"))
    rows = "".join(f"tea salt {n}\tgull drum {n}\t{n % 5}\n" for n in range(20))
    (server.folder / "mine.tsv").write_text(f"sentence1\tsentence2\tscore\n{rows}")
    address = f"{server.url.replace('http://', 'http://me:secret-1@')}/mine.tsv?sig=secret-2"
    done = evaluate(f"encoder={small_word_vectors}", f"custom_tasks='{address}'", f"output={tmp_path / 'scores.json'}")
    assert done.returncode == 0, done.stderr
    assert "secret-" not in (tmp_path / "scores.json").read_text() + done.stdout + done.stderr
