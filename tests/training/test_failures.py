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
    with pytest.raises(TrainingError, match=r"step 8 .*\(rows \d+, \d+, \d+, \d+\)"):
        toy.train(tmp_path, module={"bad_loss_at": 8})
    assert step_of(tmp_path / "checkpoints" / "last.ckpt") == 5


def test_a_nan_loss_between_log_steps_is_found_before_a_checkpoint_is_written(tmp_path):
    with pytest.raises(TrainingError, match=r"step 8 .*\(rows "):
        toy.train(tmp_path, log_every=1000, module={"bad_loss_at": 8})
    assert step_of(tmp_path / "checkpoints" / "last.ckpt") == 5


def test_nan_weights_after_a_finite_loss_are_not_saved(tmp_path):
    with pytest.raises(TrainingError, match=r"step 10.* net\.0\.weight"):
        toy.train(tmp_path, log_every=1000, module={"bad_gradient_at": 10})
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 5
    assert all(torch.isfinite(value).all() for value in saved["state_dict"].values())


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, in_child):
    def fill_up():
        toy.train(tmp_path, max_steps=5)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / "checkpoints" / "last.ckpt").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        with pytest.raises(TrainingError) as failure:
            toy.train(tmp_path)
        has_place = f"to {tmp_path / 'checkpoints'}: " in str(failure.value)
        return 17 if has_place and failure.value.__cause__.errno == errno.EFBIG else 1

    assert in_child(fill_up) == 17
    assert step_of(find_resumable(tmp_path / "checkpoints")[0]) == 5
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.part")] == []


def test_an_output_error_of_rank_zero_is_not_replaced_by_one_about_dead_ranks():
    """The other ranks exit after the last step, and rank 0 writes the results; their exit is not the error."""
    rank_monitor = RankFailureMonitor()
    other = subprocess.Popen(["true"])
    other.wait()
    rank_monitor.places = [rank_monitor.here, rank_monitor.here._replace(number=other.pid)]
    with pytest.raises(OutputError), rank_monitor.name_dead_ranks():
        raise OutputError("run/results.json: No space left on device.")
    with pytest.raises(TrainingError, match="Rank 1 of 2"), rank_monitor.name_dead_ranks():
        raise RuntimeError("Connection closed by peer")


def test_two_broken_checkpoints_are_an_input_error(tmp_path):
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(InputError) as refused:
        find_resumable(tmp_path)
    assert refused.value.location == str(tmp_path / "last.ckpt")
    assert "overwrite=true" in refused.value.hint


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"text"])
def test_a_file_of_another_format_is_refused_as_a_checkpoint(content, tmp_path):
    (tmp_path / "last.ckpt").write_bytes(content)
    with pytest.raises(InputError) as refused:
        find_resumable(tmp_path)
    assert refused.value.location == str(tmp_path / "last.ckpt")


def test_a_file_that_would_run_code_is_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"state_dict": Evil()}, tmp_path / "last.ckpt")
    with pytest.raises(InputError) as refused:
        find_resumable(tmp_path)
    assert refused.value.location == str(tmp_path / "last.ckpt")
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_of_weights_only_is_not_resumed(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "last.ckpt")
    with pytest.raises(InputError) as refused:
        find_resumable(tmp_path)
    assert refused.value.location == str(tmp_path / "last.ckpt")


def test_an_empty_folder_has_nothing_to_resume(tmp_path):
    assert find_resumable(tmp_path / "nowhere") == (None, None)


def test_a_nan_score_is_never_the_best(tmp_path):
    trainer = toy.train(tmp_path, max_steps=8, scores={2: math.nan, 4: 1.0, 6: math.nan})
    best = next(callback for callback in trainer.callbacks if hasattr(callback, "best_step"))
    assert (best.best_step, best.best_score) == (4, 1.0)
