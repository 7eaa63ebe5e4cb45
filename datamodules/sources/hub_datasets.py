"""Datasets of the Hugging Face Hub, which are found by name. A split is read like a file of rows."""

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.core.batches import RELATIONS
from contrastive_encoders.io.file_discovery import TextFile, list_files
from contrastive_encoders.io.file_formats import DOCUMENTS, FORMS, form_of
from contrastive_encoders.io.hub import hub_answers
from contrastive_encoders.io.manifest import describe_files
from contrastive_encoders.io.nested_columns import top_level
from contrastive_encoders.io.rows import read_rows
from contrastive_encoders.io.text_files import AUTO, BadRow, Encoding, ParsedRow

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # OWNER/NAME
LARGE = 10 * 2**30  # bytes: larger datasets are streamed, without a copy on disk
ROWS_PER_BATCH = 1_000

log = logging.getLogger(__name__)


class HubKeys(NamedTuple):
    """Configuration keys ``data.KEY`` for a dataset on the hub, except for its path and its split."""

    name: str | None = None
    revision: str | None = None
    data_files: str | Sequence[str] | None = None
    streaming: bool | None = None  # None: stream large datasets


DEFAULT_HUB_KEYS = HubKeys()  # a dataset with a single config, in its current version


class HubSet:
    """A split of a dataset on the hub, or of a local folder with the same layout.

    Raises:
        InputError: The dataset, config, or split does not exist, or the hub cannot be reached and there is no local
            copy.
    """

    def __init__(self, id: str, split: str, keys: HubKeys, key: str) -> None:
        files = keys.data_files
        self.asked: dict[str, Any] = {
            "id": id,
            "name": keys.name,
            "split": split,
            "revision": keys.revision,
            "data_files": files if files is None or isinstance(files, str) else list(files),
        }
        self.id, self.split, self.streaming = id, split, keys.streaming
        self.key, self.prefix = key, key[: key.rfind(".") + 1]

    def __str__(self) -> str:
        return f"{self.id}[{self.split}]"

    def rows(self, columns: Sequence[str] = ()) -> Iterator[ParsedRow]:
        """Yield all rows in order, with the given columns, or with all columns if the first of the given columns does
        not exist.
        """
        selected = top_level(columns, self.columns)
        dataset = self.dataset.select_columns(selected) if selected else self.dataset
        label_names = {name: known for name in selected or self.columns if (known := self._relations(name))}
        line = 0
        for batch in dataset.iter(ROWS_PER_BATCH):
            for values in zip(*batch.values(), strict=True):
                line += 1
                row = dict(zip(batch, values, strict=True))
                yield ParsedRow(
                    row | {name: known.get(row[name], row[name]) for name, known in label_names.items()}, line
                )

    @cached_property
    def columns(self) -> list[str]:
        return list(self.dataset.column_names or next(iter(self.dataset), {}))

    @cached_property
    def splits(self) -> list[str]:
        if self._is_saved:
            return list(self._saved) if isinstance(self._saved, dict) else []
        return list(self._builder.info.splits or self._builder.config.data_files or {})

    @cached_property
    def bytes(self) -> int:
        """The total size in bytes of the split's files."""
        import fsspec

        files = (self._builder.config.data_files or {}).get(self.split.partition("[")[0], [])
        found = [fsspec.core.url_to_fs(str(one)) for one in files]
        return sum(system.info(path)["size"] for system, path in found)

    @cached_property
    def _saved(self) -> Any:
        """The dataset in a directory that ``save_to_disk`` has written. A dataset with splits is a dict."""
        import datasets

        try:
            return datasets.load_from_disk(self.id)
        except (OSError, ValueError, RuntimeError) as error:
            raise self._load_error(error) from error

    @cached_property
    def dataset(self) -> Any:
        if self._is_saved:
            if isinstance(self._saved, dict) and self.split not in self._saved:
                raise InputError(
                    key=f"{self.prefix}split",
                    value=self.split,
                    expected=f"one of {', '.join(self._saved)}, the splits of {self.id}",
                )
            return self._saved[self.split] if isinstance(self._saved, dict) else self._saved
        builder = self._builder
        if unknown := [
            one for one in map(_split_name, self.split.split("+")) if one not in self.splits and one != "all"
        ]:
            raise InputError(
                key=f"{self.prefix}split",
                value=unknown[0],
                expected=f"one of {', '.join(self.splits)}, the splits of {self.id}",
            )
        try:
            if self._is_streamed():
                return builder.as_streaming_dataset(self.split)
            builder.download_and_prepare()
            return builder.as_dataset(self.split)
        except (OSError, ValueError, RuntimeError) as error:
            raise self._load_error(error) from error

    @cached_property
    def _builder(self) -> Any:
        import datasets

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        if not self._is_folder and not hub_answers(self.id, self.asked["revision"]):
            datasets.config.HF_HUB_OFFLINE = True  # without this, it retries for minutes
        asked = {key: value for key, value in self.asked.items() if key not in ("id", "split")}
        try:
            return datasets.load_dataset_builder(self.id, **asked)
        except (OSError, ValueError, RuntimeError) as error:  # the hub's own errors are OSErrors
            raise self._load_error(error) from error

    @property
    def _is_saved(self) -> bool:
        return is_saved(Path(self.id))

    @property
    def _is_folder(self) -> bool:
        return Path(self.id).is_dir()

    def _is_streamed(self) -> bool:
        if self.streaming is not None or self._is_folder or not hub_answers(self.id, self.asked["revision"]):
            streamed = bool(self.streaming)
        elif streamed := self.bytes >= LARGE:
            log.info(
                "%s: %d GB, streamed without a copy on disk.",
                *(self, self.bytes // 2**30),
            )
        if streamed and self.split not in self.splits:
            raise InputError(
                key=f"{self.prefix}streaming",
                value=self.streaming,
                expected=f"false, because {self.split} is not a complete split, which streaming requires",
            )
        return streamed

    def _relations(self, column: str) -> dict[int, str]:
        """Return a mapping from the numbers in a label column to the names of NLI relations; empty for other columns.

        The order of names differs between datasets.
        """
        names = getattr((self.dataset.features or {}).get(column), "names", None) or []
        return dict(enumerate(names)) if names and set(names) <= set(RELATIONS) else {}

    def identity(self) -> dict[str, Any]:
        """Return values that identify the content of the dataset, without reading it. Contains JSON types only."""
        return {**self.asked, "commit": None if self._is_folder else self._builder.hash, "files": self._files()}

    def _files(self) -> list[list[str | int]]:
        inside = sorted(Path(self.id).rglob("*")) if self._is_folder else []
        return [file_identity(path) for path in inside if path.is_file()]

    def manifest(self) -> dict[str, Any]:
        """Return the provenance of the dataset.

        The hub has no cheap SHA-256 of a dataset; the token store adds that of the texts it read.
        """
        size = {} if self._is_folder else {"bytes": self.bytes, "commit": self._builder.hash}
        return {**self.asked, **size}

    def _load_error(self, error: Exception) -> InputError:
        reason = " ".join(str(error).split()).rstrip(".")
        several = f" {self.prefix}name if the dataset has several configs," if self.prefix else ""
        files = "" if self._is_folder else f"an existing file or directory (relative to {Path.cwd()}), or "
        return InputError(
            key=self.key,
            value=self.id,
            expected=f"{files}a dataset that can be loaded ({type(error).__name__}: {reason})",
            hint=f"Check the name, the network,{several} and HF_TOKEN if it is private.",
        )


def _split_name(split: str) -> str:
    return split.partition("[")[0].strip()


# ------------------------------------------------------------------------------------------------ among files


Rows = Path | HubSet  # source of rows


def find_rows(
    paths: str | Path | Sequence[str | Path],
    split: str,
    hub: HubKeys,
    documents: Literal["none", "named", "all"] = "none",
    key: str = "data.path",
) -> list[TextFile | HubSet]:
    """Return the files and hub datasets that the paths refer to (see `list_files`), in the given order.

    A local file or folder has priority over a dataset with the same name. ``name`` and ``data_files`` describe a folder
    with the layout of a dataset.

    Raises:
        InputError: There is nothing to read.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not any(_is_set(one, hub) for one in several):
        return list(list_files(paths, key, documents=documents))
    found: list[TextFile | HubSet] = []
    for one in several:
        found += (
            [HubSet(str(Path(one).expanduser()), split, hub, key)]
            if _is_set(one, hub)
            else list_files(one, key, documents=documents)
        )
    return found


def _is_set(path: str | Path, hub: HubKeys) -> bool:
    here = Path(path).expanduser()
    if is_address(path) or here.exists():
        return here.is_dir() and (is_saved(here) or bool(hub.name or hub.data_files))
    return bool(NAME.fullmatch(str(path))) and not here.parent.is_dir() and not form_of(here, (*FORMS, *DOCUMENTS))


def is_saved(folder: Path) -> bool:
    """Return whether a directory was written by ``save_to_disk`` of a ``datasets.Dataset`` or ``DatasetDict``."""
    one = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return one or (folder / "dataset_dict.json").is_file()


def rows_in(
    where: Rows, columns: Sequence[str] = (), encoding: Encoding = AUTO, form: str = ""
) -> Iterator[ParsedRow | BadRow]:
    if isinstance(where, HubSet):
        return where.rows([name for name in columns if name != "split"])  # all rows of the dataset are of one split
    return read_rows(where, columns, form, encoding)


def file_identity(where: Rows) -> Any:
    """Return values that identify the version of a file or dataset. For a file, they include its change time.

    The modification time is not enough, since rsync and tar set it back to that of older files.
    """
    if isinstance(where, HubSet):
        return where.identity()
    path, stat = where.resolve(), where.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def describe_sources(several: Sequence[Rows]) -> dict[str, Any]:
    """Return the manifest entries about the files that were read. Reads all of the files."""
    files = [one for one in several if isinstance(one, Path)]
    sets = [one for one in several if isinstance(one, HubSet)]
    found = describe_files(files) if files or not sets else {}
    return found | ({"hub": [one.manifest() for one in sets]} if sets else {})


def names_of(several: Sequence[Rows]) -> str:
    return str(several[0]) if len(several) == 1 else f"{several[0]} and {len(several) - 1} more file(s)"
