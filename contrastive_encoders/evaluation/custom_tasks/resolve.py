"""Resolution of an entry of ``tasks``: a YAML file of tasks, or a data file or folder.

mine:                      # name in scores: mine/cosine/ndcg@10
  kind: retrieval          # null: determined by the columns of the file
  path: data/mine          # relative to the YAML file
  query_prompt: "query: "
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.core.config_schema import build
from contrastive_encoders.evaluation.catalog import SUITES, is_task
from contrastive_encoders.evaluation.custom_tasks.task_types import KINDS, SETS, OwnTask, kind_of
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import Task
from contrastive_encoders.io.file_discovery import form_of, local
from contrastive_encoders.io.manifest import describe_files

YAML = (".yaml", ".yml")
NAME = re.compile(r"\w[\w.+-]*")
PATHS = ("path", "queries", "corpus", "qrels")  # keys with paths
Words = str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None


class CustomTaskEntry(NamedTuple):
    """A requested task. Of its files, only the column names have been read."""

    name: str
    kind: str
    keys: OwnTask

    def read(self, config: EvaluateConfig) -> list[Task]:
        """Read the files of the task.

        Raises:
            InputError: a file is damaged, or no score can be computed from it.
        """
        with _named(self.name):
            return self.keys.read(self.name, config)

    def manifest(self) -> dict[str, Any]:
        """Return the files and their SHA-256 digests."""
        return {"task": self.name, "kind": self.kind, **describe_files(self.keys.files())}


def resolve_custom_tasks(words: Words, key: str = "custom_tasks") -> list[CustomTaskEntry]:
    """Resolve entries of ``custom_tasks``, without reading more of the files than their columns.

    Raises:
        InputError: a file does not exist, a key is unknown, or a name is already used.
    """
    found = list[CustomTaskEntry]()
    for word in [words] if isinstance(words, str | Mapping) else words or []:
        for name, given, base in _described(word, key):
            if name in SUITES or is_task(name):
                raise InputError(
                    f"{key}: {name} is the name of a published task; give your own another, in a YAML file."
                )
            if name in {one.name for one in found}:
                raise InputError(f"{key}: two tasks are called {name}; give one another name, in a YAML file.")
            with _named(name):
                found.append(_own(name, given, base))
    return found


def _described(word: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any], Path | str]]:
    """Yield the name and keys of each task in an entry, and the folder or address that its paths are relative to."""
    if isinstance(word, Mapping):
        yield from _of_mapping(word, key, Path())
        return
    given, path = word, local(word, key)
    beside = next((one for ending in YAML if (one := Path(f"{path}{ending}")).is_file()), None)
    if path.suffix in YAML or (beside and not path.exists()):
        base = given.rpartition("/")[0] if is_address(given) else path.parent
        yield from _of_mapping(_read_yaml(path if path.suffix in YAML else beside or path), str(path), base)
        return
    if is_task(word) or word in SUITES:
        suite = key.replace("custom_tasks", "suite")
        raise InputError(
            key=key, value=word, expected=f"a task of your own; {word} is a published one", hint=f"Set {suite}={word}."
        )
    name = path.resolve().name
    while not path.is_dir() and (form_of(Path(name)) or name.endswith(".gz")):
        name = name.rpartition(".")[0]
    if name in SETS:  # for example STSBenchmark/test.tsv
        name = f"{path.resolve().parent.name}-{name}"
    yield re.sub(r"[^\w.+-]+", "-", name).strip("-") or "own", {"path": str(path)}, Path()


def _of_mapping(tasks: Any, where: str, base: Path | str) -> Iterator[tuple[str, Mapping[str, Any], Path | str]]:
    if not isinstance(tasks, Mapping) or not all(isinstance(given, Mapping) for given in tasks.values()):
        raise InputError(
            f"{where}: wanted NAME: {{kind: KIND, path: FILE}} for each task, with KIND of {', '.join(KINDS)}."
        )
    for name, given in tasks.items():
        if not NAME.fullmatch(str(name)):
            raise InputError(f"{where}: {name!r} cannot name a task; wanted letters, digits, and . - _ between them.")
        yield str(name), given, base


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Name another file.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: no YAML ({' '.join(str(error).split())}). Correct it.") from error


def _own(name: str, given: Mapping[str, Any], base: Path | str) -> CustomTaskEntry:
    keys = {str(key): value for key, value in given.items()}
    for one in PATHS:
        if (value := keys.get(one)) is not None:
            seen = [str(_seen_from(base, str(path), one)) for path in (value if isinstance(value, list) else [value])]
            keys[one] = seen if isinstance(value, list) else seen[0]
    kind = keys.pop("kind", None)
    if kind is None:
        path, encoding = keys.get("path"), keys.get("encoding")
        kind = kind_of(path, encoding) if path else "retrieval" if keys.get("corpus") else None
    if kind not in KINDS:
        raise InputError(f"kind={kind}: wanted one of {', '.join(KINDS)}.")
    task = build(KINDS[kind], keys, f"{kind}.")
    task.check()
    return CustomTaskEntry(name, kind, task)


def _seen_from(base: Path | str, path: str, key: str) -> Path:
    if isinstance(base, str) and not is_address(path) and not Path(path).is_absolute():
        path = f"{base}/{path}"
    return local(path, key) if is_address(path) else Path(base) / Path(path).expanduser()


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        fields = {"key": error.key, "expected": error.expected, "location": error.location, "hint": error.hint}
        raise InputError(f"task {name}: {error}", value=error.value, **fields) from error
