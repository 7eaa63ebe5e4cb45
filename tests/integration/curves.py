"""Rows of a run's ``metrics.csv``: progress, and the values that two runs must share."""

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
