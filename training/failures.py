"""The error of a run that has started and cannot continue."""


class TrainingFailed(RuntimeError):
    """Training stopped for a reason that the user must know about; the process exits with status 1.

    The last good checkpoint is on disk when this is raised.
    """
