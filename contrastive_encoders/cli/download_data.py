"""Download and convert public training corpora by name: ``contrastive-encoders download-data NAME``.

    contrastive-encoders download-data simcse_nli wiki1m output=corpora

Several names are downloaded one after the other. Existing files are kept, an interrupted download
starts again, and rows are counted before a file gets its name. Exit status: 0 everything is there,
2 something is missing.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from contrastive_encoders.cli.hydra_main import run_without_hydra
from contrastive_encoders.core import InputError, check_local_output
from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field, keys_of
from contrastive_encoders.core.key_suggestions import check_known_keys
from contrastive_encoders.datamodules.data_configs import DocstringPairDataConfig
from contrastive_encoders.datamodules.sources.corpora import CORPORA, Corpus, CorpusFile
from contrastive_encoders.datamodules.sources.pydocs import PydocsSource
from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.atomic import atomic_link, atomic_write
from contrastive_encoders.io.download import FOLDER, RECORD, DownloadError, Downloads, File
from contrastive_encoders.io.output_directory import check_owner, lock_folder, read_marker, write_marker
from contrastive_encoders.io.rows import count_rows
from contrastive_encoders.training.composition.config_keys import config_from_arguments
from contrastive_encoders.training.composition.key_docs import wrap_text

log = logging.getLogger(__name__)

OUTPUT_KIND = "corpora"  # of output


class InvalidCorpusFileError(ValueError):
    """Raised if a downloaded file has an unexpected number of rows or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class DownloadConfig:
    """Configuration keys of ``contrastive-encoders download-data``."""

    output: str = config_field("corpora", "directory to which the corpora are written, each in a subdirectory")
    download_mirror: str | None = config_field(
        None, "directory or URL from which the files are read if their original host cannot be reached"
    )
    rows: Literal["published", "any"] = config_field(
        "published",
        "number of rows that a file must contain; published: the number that the publication of the "
        "corpus states; any: any number is accepted",
    )
    quiet: bool = config_field(False, "whether to hide progress bars")
    names: Sequence[str] = field(default=(), metadata=NOT_A_KEY)  # of the corpora

    @property
    def folder(self) -> Path:
        return Path(self.output).expanduser()


def read_arguments(arguments: Sequence[str]) -> DownloadConfig:
    """Parse the arguments of the command.

    Raises:
        InputError: there is no name, an unknown name or key, or an invalid value.
    """
    config, others = config_from_arguments(DownloadConfig, arguments)
    names = [argument for argument in others if "=" not in argument]
    unknown_keys = dict(argument.split("=", 1) for argument in others if "=" in argument)
    check_known_keys(unknown_keys, [one.name for one in keys_of(DownloadConfig)])
    if not names or not set(names) <= CORPORA.keys():
        unknown = [name for name in names if name not in CORPORA]
        raise InputError(key="NAME", value=unknown[0] if unknown else None, expected=f"one of {', '.join(CORPORA)}")
    check_local_output("output", config.output)
    return replace(config, names=list(dict.fromkeys(names)))


def prepare(config: DownloadConfig) -> int:
    """Download or create every requested corpus. Return the exit code: 0 if all exist, else 2."""
    claim(config.folder, config.names)
    downloads = Downloads(config.folder, config.download_mirror or None, config.quiet)
    succeeded = [get(name, CORPORA[name], downloads, config) for name in config.names]
    return 0 if all(succeeded) else 2


def claim(output: Path, names: Sequence[str]) -> None:
    """Lock the directory ``output``, and record in it that this command owns the subfolders of these corpora. This
    directory may contain other folders, such as the evaluation tables.

    Raises:
        InputError: a folder has the name of a corpus and was not created by a command of this project.
    """
    if read_marker(output) is not None:
        check_owner("output", output, OUTPUT_KIND)
    entries = _owned_entries(output)
    for name in (*names, FOLDER):
        if name not in entries:
            check_owner("output", output / name, OUTPUT_KIND)
    if RECORD not in entries and (output / RECORD).exists():
        raise InputError(
            key="output",
            value=output,
            expected=f"a directory whose {RECORD} was written by this command",
            hint="Choose another output.",
        )
    lock_folder("output", output)
    write_marker(output, OUTPUT_KIND, list(dict.fromkeys([*_owned_entries(output), *names, FOLDER, RECORD])))


def _owned_entries(output: Path) -> list[str]:
    """Return the names of the files and folders in ``output`` that earlier commands have written."""
    marker = read_marker(output)
    return [*marker.entries] if marker else []


def get(name: str, corpus: Corpus, downloads: Downloads, config: DownloadConfig) -> bool:
    """Download or create all files of a corpus, log failures, and return whether all files exist afterwards."""
    folder, wrong = config.folder / name, list[str]()
    if not corpus.pieces:
        log.info("%s: %s", name, write_docstrings(folder, config.folder / FOLDER))
    for piece in corpus.pieces:
        try:
            log.info("%s: %s", name, obtain(piece, folder, downloads, any_rows=config.rows == "any"))
        except DownloadError as error:
            wrong.append(
                f"{error}. If the host cannot be reached, download {piece.file.name} elsewhere and set "
                "download_mirror=FOLDER to its directory."
            )
        except (InvalidCorpusFileError, InvalidArchiveError) as error:
            wrong.append(f"{error}.")
    for sentence in dict.fromkeys(wrong):
        log.error("%s: %s", name, sentence)
    if not wrong:
        log.info("%s: %s; license: %s", name, corpus.about, corpus.license)
        then = corpus.then.replace("FOLDER", str(folder)).replace("ROOT", str(config.folder))
        log.info("Train on it: contrastive-encoders train %s", then)
    return not wrong


def write_docstrings(folder: Path, cache: Path) -> str:
    """Write the training pairs of ``data=pydocs_pairs`` and the table of its held-out task; return a description for
    the log.

    Raises:
        InputError: the packages whose docstrings are the queries are not installed.
    """
    keys = DocstringPairDataConfig
    source = PydocsSource(cache, keys.held_out_every, keys.held_out_part, keys.min_words)
    tasks = []
    with suppress(InputError):  # no package has documentation; the key in its message is not one of this command
        tasks = source.held_out()
    if not tasks:
        raise InputError(
            key="pydocs",
            expected="installed packages with docstrings, such as numpy, scipy, and torch",
            hint="Run the command in the Python environment in which this project's dependencies are installed.",
        )
    (task,) = tasks
    columns = ("question", "answer")
    pairs = [json.dumps(dict(zip(columns, pair, strict=True)), ensure_ascii=False) for pair in source.pairs()]
    rows = ["query\tdocument", *("\t".join(row) for row in zip(task.queries, task.documents, strict=True))]
    for file, lines in (("pairs.jsonl", pairs), ("test.tsv", rows)):
        atomic_write(folder / file, "".join(f"{line}\n" for line in lines).encode())
    return f"{folder / 'pairs.jsonl'}: {len(pairs):,} pairs; {folder / 'test.tsv'}: {len(rows) - 1:,} queries"


def obtain(piece: CorpusFile, folder: Path, downloads: Downloads, *, any_rows: bool) -> str:
    """Download or unpack a file of a corpus unless it exists, and return a description for the log.

    Raises:
        DownloadError: it is not available.
        InvalidCorpusFileError: its number of rows differs from the published one, or it is not readable; no file is
            then renamed to its final name.
        InvalidArchiveError: its archive is not readable, or does not contain it.
    """
    if existing := present(piece, folder):
        return f"{', '.join(map(str, existing))} already {'exists' if len(existing) == 1 else 'exist'}"
    parts = dict(_download(piece, folder, downloads))
    rows = sum(_rows(path) for path in parts.values())
    if not rows or (piece.rows not in (None, rows) and not any_rows):
        names = ", ".join(map(str, parts.values()))
        published = f"{piece.rows:,}" if piece.rows else "at least one"
        raise InvalidCorpusFileError(
            f"{names}: expected {published} rows, got {rows:,}. Delete the file to download it again, or set rows=any "
            "to accept this number of rows"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for target, part in reversed(parts.items()):  # the first one last: if it exists, all exist
        atomic_link(part, target)
    official = f"{piece.rows:,} published" if piece.rows else "no published number"
    return f"{', '.join(map(str, parts))}: {rows:,} rows ({official})"


def present(piece: CorpusFile, folder: Path) -> list[Path]:
    """Return the paths of the files of a corpus entry if all of them exist, otherwise an empty list. The first file is
    moved into place last, so that its existence means that all exist.
    """
    if not piece.listed:
        return [path for path in [folder / piece.name] if path.is_file()]
    first = folder / f"{piece.name}-0.parquet"
    return sorted(folder.glob(f"{piece.name}-*.parquet")) if first.is_file() else []


def _download(piece: CorpusFile, folder: Path, downloads: Downloads) -> Iterator[tuple[Path, Path]]:
    """Download the files of a corpus entry, and yield for each file its final path and the path of the download."""
    path = downloads.get(piece.file)
    if piece.listed:
        for number, address in enumerate(_addresses(path)):
            name = f"{piece.name}-{number}.parquet"
            yield folder / name, downloads.get(File(name, address))
    elif piece.member:
        unpacked = downloads.root / FOLDER / piece.name
        if not unpacked.is_file():
            atomic_write(unpacked, Members([path]).read(piece.member))
        yield folder / piece.name, unpacked
    else:
        yield folder / piece.name, path


def _addresses(path: Path) -> list[str]:
    try:
        return [str(address) for address in json.loads(path.read_bytes())]
    except (ValueError, TypeError):
        raise InvalidCorpusFileError(
            f"{path}: expected a JSON list of URLs, got {path.read_bytes()[:60]!r}. Delete the file to download it "
            "again"
        ) from None


def _rows(path: Path) -> int:
    try:
        return count_rows([path])
    except InputError as error:
        raise InvalidCorpusFileError(f"{str(error).rstrip('.')}. Delete {path} to download it again.") from None


def main(arguments: Sequence[str], command: str = "download-data") -> None:
    corpora = "\n".join(wrap_text(f"  {name}: {corpus.about}") for name, corpus in CORPORA.items())
    about = f"{__doc__}\nNames:\n{corpora}\n\nKeys:"
    run_without_hydra(
        command, lambda given: prepare(read_arguments(given)), arguments, about, DownloadConfig, failed=(OSError,)
    )
