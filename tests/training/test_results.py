"""``results.json`` survives a round trip, and invalid content is named."""

import copy
import json
import platform
import re
import subprocess
from pathlib import Path

import pytest
import torch

from contrastive_encoders.core import InputError, Results
from contrastive_encoders.io.results import environment, peak_memory_bytes, read_results, write_results
from contrastive_encoders.training.finish import format_changes

RESULTS: Results = {
    "version": 2,
    "objective": "declutr",
    "backbone": "tiny",
    "recipe": {"model": {"temperature": 0.05}},
    "scores": {"stsb-dev/cosine/spearman": 61.25},
    "intervals": {"stsb-dev/cosine/spearman": [58.0, 64.5]},
    "best_step": 120,
    "cost": {
        "steps": 200,
        "examples": 3200,
        "real_tokens": 10**9,
        "padded_tokens": 5,
        "wall_seconds": 1.5,
        "peak_memory_bytes": 2**31,
    },
    "seeds": [1],
    "versions": {"torch": "2"},
    "device": "a CPU",
    "processes": 2,
    "git_commit": None,
    "data": [{"sha256": "0"}],
    "overlap": {"stsb-dev": {"checked": 3, "found": 0}},
}


def test_written_results_are_read_back(tmp_path):
    path = tmp_path / "deeper" / "results.json"
    write_results(path, RESULTS)
    assert read_results(path) == RESULTS
    text = path.read_text()
    assert text == json.dumps(RESULTS, indent=2, sort_keys=True) + "\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_not_written_and_the_old_file_stays(value, tmp_path):
    path = tmp_path / "results.json"
    write_results(path, RESULTS)
    bad = copy.deepcopy(RESULTS)
    bad["intervals"]["stsb-dev/cosine/spearman"][1] = value
    with pytest.raises(ValueError, match=r"intervals'\]\['stsb-dev/cosine/spearman'\]\[1\] is (nan|inf)"):
        write_results(path, bad)
    assert read_results(path) == RESULTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("cost"), "cost"),
        (lambda r: r.update(extra=1), "extra"),
        (lambda r: r.update(version=1), "earlier"),
        (lambda r: r.update(version=3), "later"),
        (lambda r: r["cost"].pop("steps"), r"\['steps'\]"),
        (lambda r: r.update(scores=[]), r"scores: .* \[\]"),
        (lambda r: r["scores"].update(x="high"), r"scores\['x'\]: .* high"),
        (lambda r: r["scores"].update(x=float("nan")), r"scores\['x'\]: .* nan"),
    ],
)
def test_the_error_of_an_invalid_file_names_the_entry(change, message, tmp_path):
    bad = copy.deepcopy(RESULTS)
    change(bad)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(bad))
    with pytest.raises(InputError, match=message) as raised:
        read_results(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_file_that_is_not_a_results_file_is_refused(content, tmp_path):
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_results(path)
    assert error.value.location == str(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError) as error:
        read_results(tmp_path / "results.json")
    assert (error.value.location, type(error.value.value)) == (str(tmp_path / "results.json"), str)


def test_the_environment_is_the_one_we_run_in():
    found = environment()
    assert torch.__version__.startswith(found["versions"]["torch"].partition("+")[0])
    assert found["versions"]["python"] == platform.python_version()
    assert {"transformers", "pytorch-lightning", "contrastive-encoders"} <= found["versions"].keys()
    assert found["device"]
    root = Path(__file__).parents[2]
    if (root / ".git").exists():
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert found["git_commit"] == head.stdout.strip()
        assert re.fullmatch("[0-9a-f]{40}", found["git_commit"])


def test_peak_memory_sees_a_large_array():
    before = peak_memory_bytes()
    held = torch.ones(64, 2**20)  # 256 MiB
    assert peak_memory_bytes() >= max(before, held.nbytes)


def test_a_single_example_of_changed_ranks_is_singular():
    example = {"query": "q", "before": "a", "after": "b", "right": "after"}
    changes = {"queries": 2, "correct_before": 0, "gained": 1, "lost": 0, "examples": [example]}
    assert "examples" not in format_changes("faq", changes)
    assert "examples" in format_changes("faq", changes | {"examples": [example] * 2})
