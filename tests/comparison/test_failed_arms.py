"""Arms of a race that cannot be trained, or whose training fails: the report, and the exit code."""

import contextlib
import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from contrastive_encoders.cli import compare
from contrastive_encoders.comparison import report, run_scheduler
from contrastive_encoders.comparison.run_scheduler import JobResult
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.io.results import read_results, write_results
from contrastive_encoders.reports.figure import RenderedFigure
from tests.comparison.conftest import make_run
from tests.conftest import ROOT

ARMS = ("titles", "declutr", "questions")
REASON = "data: expected documents that are long enough, got none in 9 documents."


class Trains:
    """Pool whose runs end at once; the runs whose names contain a key of ``ends`` fail with that exit code."""

    def __init__(self, ends: dict[str, int]) -> None:
        self.ends, self.names = ends, list[str]()

    def run(self, work, tasks):
        for task in tasks:
            job = task.payload
            yield None, task.number
            self.names.append(job.name)
            status = next((status for key, status in self.ends.items() if key in job.name), 0)
            if not status:
                arm, _, seed = job.name.partition("-seed")
                make_run(job.folder, arm, int(seed or 1), 0.3)
                path = job.folder / "results.json"
                scores = {f"{task}/cosine/ndcg@10": 50.0 + len(job.name) for task in ("held_out", "development")}
                write_results(path, read_results(path) | {"scores": scores})
                (job.folder / "encoder").mkdir()
            yield task.number, JobResult(job.name, status, 0.0, 1, REASON if status else "")


@pytest.fixture
def race(tmp_path, monkeypatch):
    """Return a function that runs `compare race=documents` with these failures: (exit code, pool, report)."""
    monkeypatch.chdir(tmp_path)
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        left_out = [f"~race.arms.{name}" for name in ("tsdae", "dino", "questions-hard", "titles-and-questions")]
        given = ["race.texts=docs", "race.backbone=b", "race.generator=g", "~race.prepare", "output=out", "sentences=0"]
        cfg = compose("compare", ["race=documents", *given, *left_out])

    drawn = RenderedFigure([], b"<svg/>", b"")

    def run(ends: dict[str, int], choose: bool = True) -> tuple[int, Trains, dict]:
        pool, own = Trains(ends), cfg.copy()
        if not choose:
            own.race.choose = None
        monkeypatch.setattr(report, "draw", lambda figures, pdf: {one.name: drawn for one in figures})
        monkeypatch.setattr(run_scheduler, "open_workers", lambda *_: contextlib.nullcontext(pool))
        status = compare.run(own)
        return status, pool, json.loads(Path("out/comparison.json").read_text())

    return run


@pytest.mark.parametrize(("failing", "times"), [("pilot of declutr", 2), ("declutr model.lr", 1)])
def test_an_arm_that_is_refused_is_left_out_with_its_reason(race, capsys, failing, times):
    """It would be refused again, so the command must not ask for another try."""
    for _ in range(times):
        status, _, page = race({failing: 2})
        assert status == 0
        assert {*ARMS} - {*page["arms"]} == {"declutr"}
        assert "declutr" in page["recommended"]
        reasons = [reason for path, reason in page["left_out"].items() if "declutr" in path]
        assert reasons
        assert all(REASON in reason and "erun" not in reason for reason in reasons)
        assert REASON in " ".join(capsys.readouterr().out.split())
        assert REASON in Path("out/report.md").read_text()


@pytest.mark.parametrize("failing", ["pilot of declutr", "declutr model.lr", "declutr-seed2"])
def test_an_arm_that_fails_otherwise_is_trained_by_the_next_command(race, failing):
    status, _, page = race({failing: 1})
    assert status == 1
    assert any("declutr" in path and "erun" in reason for path, reason in page["left_out"].items())
    status, pool, page = race({})
    assert (status, page["left_out"]) == (0, {})
    assert {*ARMS} <= {*page["arms"]}
    assert all("declutr" in name for name in pool.names)
    assert "declutr" not in page["recommended"].partition("Not compared")[2]


def test_one_value_of_an_arm_that_fails_is_listed(race):
    status, _, page = race({"declutr model.lr=5e-05": 2})
    assert (status, {*ARMS} - {*page["arms"]}) == (0, set())
    [(path, reason)] = page["left_out"].items()
    assert path.endswith("declutr-5e-05")
    assert REASON in reason


@pytest.mark.parametrize(("status", "error"), [(2, InputError), (1, OutputError)])
def test_a_race_without_any_arm_ends_with_the_code_of_its_runs(race, status, error):
    for choose in (True, False):
        with pytest.raises(error, match="long enough"):
            race(dict.fromkeys(ARMS, status), choose=choose)


def test_a_race_that_selects_nothing_has_no_invalid_arm(race):
    """The arms are what the user asks for, so a script must see that one is missing."""
    assert race({"declutr-seed": 2}, choose=False)[0] == 2
