"""Ownership of a folder, resuming a run, and the guarantee that two processes never train in one folder."""

import multiprocessing
import shutil
import signal
import zipfile

import pytest
import torch
import toy

from contrastive_encoders.core import InputError
from contrastive_encoders.io.output_directory import MARKER, write_marker
from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints
from contrastive_encoders.training.run_directory import Start, claim_folder

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def holder():
    """A separate process that has claimed the folders."""
    started = []

    def hold(*folders):
        held = FORK.Event()
        started.append(FORK.Process(target=claim_and_stay, args=(held, *folders)))
        started[-1].start()
        assert held.wait(60)
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.join()


def claim_and_stay(held, *folders):
    for folder in folders:
        claim(folder)
    held.set()
    signal.pause()


def claim_afterwards(claimed, said, folder):
    claimed.wait(60)
    try:
        claim(folder)
    except InputError as error:
        said.put(str(error))
    else:
        said.put("claimed")


def claim(folder, resume="auto", overwrite=False):
    return claim_folder(folder, "abc", resume=resume, overwrite=overwrite)


# -------------------------------------------------------------------------------------- where a run resumes


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A run of 8 steps; its best step is the sixth."""
    folder = tmp_path_factory.mktemp("elsewhere")
    toy.train(folder, max_steps=8, save_every=4)
    return folder


def test_a_run_from_another_checkpoint_resumes_from_its_own(tmp_path, elsewhere):
    given = str(elsewhere / "checkpoints" / "last.ckpt")
    folder = tmp_path / "run"
    assert claim(folder, given) == Start(False, given)
    own = folder / "checkpoints" / "last.ckpt"
    own.parent.mkdir()
    shutil.copy(elsewhere / "checkpoints" / "last.ckpt", own)
    assert claim(folder, given) == Start(False, str(own))
    with pytest.raises(InputError) as refused:
        claim(folder, None)
    assert (refused.value.key, refused.value.value) == ("resume", None)
    assert claim(folder, given, overwrite=True) == Start(False, given)
    assert not own.exists()


def checkpoints_in(folder, *, monitor, mode="max"):
    return RunCheckpoints(
        folder / "checkpoints", every_n_steps=None, every_n_minutes=10, monitor=monitor, mode=mode, patience=None
    )


def begun_elsewhere(folder, elsewhere, **named):
    """A run that starts from the other folder's checkpoint."""
    trainer = toy.pl.Trainer(
        accelerator="cpu",
        max_steps=10,
        max_epochs=-1,
        logger=False,
        callbacks=[checkpoints_in(folder, **named)],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(toy.Toy(), toy.Stream(), ckpt_path=str(elsewhere / "checkpoints" / "last.ckpt"), weights_only=True)
    return next(callback for callback in trainer.callbacks if isinstance(callback, RunCheckpoints))


def test_the_best_of_another_folder_is_not_ours(tmp_path, elsewhere):
    begun_elsewhere(tmp_path, elsewhere, monitor=toy.SCORE)  # and nothing scores it here
    ours = tmp_path / "checkpoints"
    assert torch.load(ours / "best.ckpt", weights_only=True)["global_step"] == 10
    assert (ours / "best.ckpt").read_bytes() == (ours / "last.ckpt").read_bytes()


@pytest.mark.parametrize("other", [{"monitor": "train/loss"}, {"monitor": toy.SCORE, "mode": "min"}])
def test_a_best_score_of_another_measure_is_dropped(tmp_path, elsewhere, other):
    state = torch.load(elsewhere / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]["RunCheckpoints"]
    same = checkpoints_in(elsewhere, monitor=toy.SCORE)
    same.load_state_dict(state)
    assert (same.best_score, same.best_step) == (40.0, 6)
    differs = checkpoints_in(elsewhere, **other)
    differs.load_state_dict(state)
    assert (differs.best_score, differs.best_step) == (None, None)


# -------------------------------------------------------------------------------- one process in a folder


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_process_is_refused_and_changes_nothing(tmp_path, holder, overwrite):
    folder = tmp_path / "run"
    holder(folder)
    (folder / "metrics.csv").write_text("step\n1\n")
    with pytest.raises(InputError) as error:
        claim(folder, overwrite=overwrite)
    assert (error.value.value, "process" in error.value.expected) == (folder, True)
    assert (folder / "metrics.csv").read_text() == "step\n1\n"
    assert (folder / MARKER).is_file()


def test_a_killed_process_leaves_the_folder_free(tmp_path, holder):
    process = holder(tmp_path / "run")
    process.kill()
    process.join()
    assert claim(tmp_path / "run") == Start(False, None)


def test_one_process_holds_several_folders_and_may_come_back(tmp_path, holder):
    folders = [tmp_path / "0", tmp_path / "1"]
    holder(folders[0], folders[1], folders[0])
    for folder in folders:
        with pytest.raises(InputError) as error:
            claim(folder)
        assert (error.value.value, "process" in error.value.expected) == (folder, True)


def test_overwriting_keeps_the_lock(tmp_path):
    claimed, messages = FORK.Event(), FORK.SimpleQueue()
    other = FORK.Process(target=claim_afterwards, args=(claimed, messages, tmp_path / "run"))
    other.start()  # before there is a lock that it would inherit
    claim(tmp_path / "run")
    claim(tmp_path / "run", overwrite=True)
    claimed.set()
    other.join(60)
    assert other.exitcode == 0
    assert "process" in messages.get()


def test_a_finished_folder_is_read_while_it_is_held(tmp_path, holder):
    holder(tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text("{}")
    assert claim(tmp_path / "run") == Start(True, None)


@pytest.mark.parametrize("name", ["faq.csv", "faq.zip", "nothing"])
def test_a_file_that_is_no_checkpoint_is_refused_as_such(tmp_path, name):
    (tmp_path / "faq.csv").write_text("question,answer\n")
    with zipfile.ZipFile(tmp_path / "faq.zip", "w") as archive:
        archive.write(tmp_path / "faq.csv")
    torch.save({"epoch": 1}, tmp_path / "renamed.pt")
    assert claim(tmp_path / "other", resume=str(tmp_path / "renamed.pt")).checkpoint == str(tmp_path / "renamed.pt")
    with pytest.raises(InputError) as refused:
        claim(tmp_path / "run", resume=str(tmp_path / name))
    assert (refused.value.key, refused.value.value) == ("resume", str(tmp_path / name))
    assert "checkpoints/last.ckpt" in refused.value.hint
    assert not (tmp_path / "run").exists()


def test_hint_for_a_directory_in_resume_names_another_output_directory(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last.ckpt").touch()
    write_marker(run, "run", ["checkpoints"], {"config": "abc"})
    last = f"resume={run}/checkpoints/last.ckpt"
    for folder, overrides in ((run, f"{last} output_dir={tmp_path / 'run-2'}"), (tmp_path / "new", last)):
        with pytest.raises(InputError) as refused:
            claim(folder, resume=str(run))
        assert (refused.value.key, refused.value.value) == ("resume", str(run))
        assert refused.value.hint == f"Set {overrides}."
