"""Errors that stop a run: a loss or weights that are not finite, a full disk. The last good checkpoint stays."""

import errno
import math
import resource
import signal
import subprocess

import pytest
import torch
import toy

from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.training.callbacks.checkpoints import find_resumable
from contrastive_encoders.training.callbacks.rank_failures import RankFailureMonitor


def step_of(path):
    return torch.load(path, weights_only=True)["global_step"]


def test_a_nan_loss_stops_the_run_and_names_step_and_rows(tmp_path):
    with pytest.raises(TrainingError, match=r"loss of step 8 is NaN or infinite \(rows \d+, \d+, \d+, \d+\)"):
        toy.train(tmp_path, module={"bad_loss_at": 8})
    assert step_of(tmp_path / "checkpoints" / "last.ckpt") == 5


def test_a_nan_loss_between_log_steps_is_found_before_a_checkpoint_is_written(tmp_path):
    with pytest.raises(TrainingError, match=r"loss of step 8 "):
        toy.train(tmp_path, log_every=1000, module={"bad_loss_at": 8})
    assert step_of(tmp_path / "checkpoints" / "last.ckpt") == 5


def test_weights_that_a_finite_loss_left_as_nan_are_not_saved(tmp_path):
    with pytest.raises(TrainingError, match=r"After step 10 .* net\.0\.weight"):
        toy.train(tmp_path, log_every=1000, module={"bad_gradient_at": 10})
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 5
    assert all(torch.isfinite(value).all() for value in saved["state_dict"].values())


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so(tmp_path, in_child):
    def fill_up():
        toy.train(tmp_path, max_steps=5)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / "checkpoints" / "last.ckpt").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        with pytest.raises(TrainingError, match=r"no room left.*continues from there") as failure:
            toy.train(tmp_path)
        return 17 if failure.value.__cause__.errno == errno.EFBIG else 1

    assert in_child(fill_up) == 17
    assert step_of(find_resumable(tmp_path / "checkpoints")[0]) == 5
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.part")] == []


def test_what_the_first_process_alone_could_not_write_is_said_when_the_others_have_left():
    """The others leave after the last step, and the first one writes the results; their absence is not the error."""
    companions = RankFailureMonitor()
    other = subprocess.Popen(["true"])
    other.wait()
    companions.places = [companions.here, companions.here._replace(number=other.pid)]
    with pytest.raises(OutputError, match="No space left"), companions.named():
        raise OutputError("run/results.json: No space left on device.")
    with pytest.raises(TrainingError, match="process 1 of 2 is gone"), companions.named():
        raise RuntimeError("Connection closed by peer")


def test_two_broken_checkpoints_are_an_input_error(tmp_path):
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(InputError, match="overwrite=true"):
        find_resumable(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"text"])
def test_what_is_no_checkpoint_at_all_is_refused_too(content, tmp_path):
    (tmp_path / "last.ckpt").write_bytes(content)
    with pytest.raises(InputError, match=r"last\.ckpt"):
        find_resumable(tmp_path)


def test_a_file_that_would_run_code_is_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"state_dict": Evil()}, tmp_path / "last.ckpt")
    with pytest.raises(InputError, match=r"last\.ckpt"):
        find_resumable(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_weights_alone_are_no_checkpoint_to_go_on_from(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "last.ckpt")
    with pytest.raises(InputError, match=r"last\.ckpt"):
        find_resumable(tmp_path)


def test_an_empty_folder_has_nothing_to_resume(tmp_path):
    assert find_resumable(tmp_path / "nowhere") == (None, None)


def test_a_nan_score_is_never_the_best(tmp_path):
    trainer = toy.train(tmp_path, max_steps=8, scores={2: math.nan, 4: 1.0, 6: math.nan})
    best = next(callback for callback in trainer.callbacks if hasattr(callback, "best_step"))
    assert (best.best_step, best.best_score) == (4, 1.0)
