"""A corpus that every machine has: the documentation in the docstrings of the installed Python packages."""

from pathlib import Path


class PydocsSource:
    """One document per module, read with `ast`; nothing is imported. See `sources.DocumentSource`.

    ``held_out()`` is one RetrievalTask "pydocs" of the modules left out of ``documents()``.
    """

    def __init__(self, cache_dir: str | Path, held_out_every: int = 10, min_words: int = 1024) -> None: ...
