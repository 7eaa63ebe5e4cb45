"""The rows of a run's ``metrics.csv``, and the comparison of two runs."""

import torch

from contrastive_encoders.io.metrics import read_rows

TIMED = ("time/", "throughput/documents", "throughput/real")


def reached(folder, step):
    """Return whether the row of this step has been written."""
    try:
        return any(int(row["step"]) >= step for row in read_rows(folder / "metrics.csv"))
    except FileNotFoundError:
        return False


def without_times(folder):
    rows = read_rows(folder / "metrics.csv")
    return [{name: cell for name, cell in row.items() if not name.startswith(TIMED)} for row in rows]


def assert_same_run(folder, reference, exported=("encoder",)):
    """Compare the last checkpoints, the exported weights, and the rows of two runs, bit by bit; return the steps."""
    ours, theirs = (torch.load(one / "checkpoints" / "last.ckpt", weights_only=True) for one in (folder, reference))
    assert ours["global_step"] == theirs["global_step"]
    assert ours["state_dict"].keys() == theirs["state_dict"].keys()
    assert all(torch.equal(ours["state_dict"][name], weight) for name, weight in theirs["state_dict"].items())
    for name in exported:
        weights = [(one / name / "model.safetensors").read_bytes() for one in (folder, reference)]
        assert weights[0] == weights[1]
    assert without_times(folder) == without_times(reference)
    return theirs["global_step"]
