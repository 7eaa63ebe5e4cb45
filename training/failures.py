"""The one error of a run that has started: it could not go on, and says where and what is left."""


class TrainingFailed(RuntimeError):
    """Training stopped for a reason that the user must know about; the process exits with status 1.

    The last good checkpoint is on disk when this is raised.
    """
