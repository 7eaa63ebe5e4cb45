"""Resolve the entries of ``custom_tasks``. Each is a YAML file that defines tasks, a data file, or a folder.

mine:                      # name in scores: mine/cosine/ndcg@10
  kind: retrieval          # null: determined by the columns of the file
  path: data/mine          # relative to the YAML file
  query_prompt: "query: "
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contrastive_encoders.core import InputError, is_address
from contrastive_encoders.core.config_schema import build
from contrastive_encoders.evaluation.catalog import SUITES, is_task
from contrastive_encoders.evaluation.custom_tasks.task_types import KINDS, SPLIT_NAMES, CustomTask, kind_of
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig, Tasks
from contrastive_encoders.evaluation.task import Task
from contrastive_encoders.io.file_discovery import local_path
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.manifest import describe_files

YAML = (".yaml", ".yml")
NAME = re.compile(r"\w[\w.+-]*")
PATHS = ("path", "queries", "corpus", "qrels")  # keys with paths


class CustomTaskEntry(NamedTuple):
    """A custom task that the key ``custom_tasks`` requests. Only the column names of its files have been read."""

    name: str
    kind: str
    keys: CustomTask

    def read(self, config: EvaluateConfig) -> list[Task]:
        """Read the files of the task.

        Raises:
            InputError: a file is damaged, or no score can be computed from it.
        """
        with _name_task_in_errors(self.name):
            return self.keys.read(self.name, config)

    def manifest(self) -> dict[str, Any]:
        """Return the task's files and their SHA-256 digests."""
        return {"task": self.name, "kind": self.kind, **describe_files(self.keys.files())}


def resolve_custom_tasks(tasks: Tasks, key: str = "custom_tasks") -> list[CustomTaskEntry]:
    """Resolve the entries of ``custom_tasks``. Only the column names of the files are read.

    Raises:
        InputError: a file does not exist, a key is unknown, or a name is already used.
    """
    entries = list[CustomTaskEntry]()
    for word in [tasks] if isinstance(tasks, str | Mapping) else tasks or []:
        for name, keys, base in _tasks_of_entry(word, key):
            if name in SUITES or is_task(name):
                hint = "Rename the file, or set a different name in a YAML file."
                raise InputError(key=key, value=name, expected="a name that no published task has", hint=hint)
            if name in {one.name for one in entries}:
                hint = "Two tasks have this name. Rename a file, or set a different name in a YAML file."
                raise InputError(key=key, value=name, expected="different names", hint=hint)
            with _name_task_in_errors(name):
                entries.append(_build_entry(name, keys, base))
    return entries


def _tasks_of_entry(entry: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any], Path | str]]:
    """Yield (name, keys, base) for each task in an entry; paths in the keys are relative to ``base``, a folder or an
    address.
    """
    if isinstance(entry, Mapping):
        yield from _tasks_of_mapping(entry, key, Path())
        return
    text, path = entry, local_path(entry, key)
    yaml_path = next((one for ending in YAML if (one := Path(f"{path}{ending}")).is_file()), None)
    if path.suffix in YAML or (yaml_path and not path.exists()):
        base = text.rpartition("/")[0] if is_address(text) else path.parent
        yield from _tasks_of_mapping(_read_yaml(path if path.suffix in YAML else yaml_path or path), str(path), base)
        return
    if is_task(entry) or entry in SUITES:
        suite = key.replace("custom_tasks", "suite")
        raise InputError(
            key=key,
            value=entry,
            expected="a file or directory of a custom task, but this is a published task",
            hint=f"Set {suite}={entry}.",
        )
    name = path.resolve().name
    while not path.is_dir() and (form_of(Path(name)) or name.endswith(".gz")):
        name = name.rpartition(".")[0]
    if name in SPLIT_NAMES:  # for example STSBenchmark/test.tsv
        name = f"{path.resolve().parent.name}-{name}"
    yield re.sub(r"[^\w.+-]+", "-", name).strip("-") or "own", {"path": str(path)}, Path()


def _tasks_of_mapping(tasks: Any, where: str, base: Path | str) -> Iterator[tuple[str, Mapping[str, Any], Path | str]]:
    if not isinstance(tasks, Mapping) or not all(isinstance(keys, Mapping) for keys in tasks.values()):
        expected = f"NAME: {{kind: KIND, path: FILE}} for each task, where KIND is one of {', '.join(KINDS)}"
        raise InputError(location=where, expected=expected)
    for name, keys in tasks.items():
        if not NAME.fullmatch(str(name)):
            expected = "a name of letters and digits, with . - _ between them"
            raise InputError(location=where, key="name of a task", value=repr(name), expected=expected)
        yield str(name), keys, base


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(location=str(path), expected="an existing YAML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(location=str(path), value=error, expected="a readable YAML file") from error
    except yaml.YAMLError as error:
        raise InputError(location=str(path), value=" ".join(str(error).split()), expected="a YAML file") from error


def _build_entry(name: str, raw_keys: Mapping[str, Any], base: Path | str) -> CustomTaskEntry:
    keys = {str(key): value for key, value in raw_keys.items()}
    for one in PATHS:
        if (value := keys.get(one)) is not None:
            paths = [
                str(_resolve_path(base, str(path), one)) for path in (value if isinstance(value, list) else [value])
            ]
            keys[one] = paths if isinstance(value, list) else paths[0]
    kind = keys.pop("kind", None)
    if kind is None:
        path, encoding = keys.get("path"), keys.get("encoding")
        kind = kind_of(path, encoding) if path else "retrieval" if keys.get("corpus") else None
    if kind not in KINDS:
        raise InputError(key="kind", value=kind, expected=f"one of {', '.join(KINDS)}")
    task = build(KINDS[kind], keys, f"{kind}.")
    task.check()
    return CustomTaskEntry(name, kind, task)


def _resolve_path(base: Path | str, path: str, key: str) -> Path:
    if isinstance(base, str) and not is_address(path) and not Path(path).is_absolute():
        path = f"{base}/{path}"
    return local_path(path, key) if is_address(path) else Path(base) / Path(path).expanduser()


@contextmanager
def _name_task_in_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise error.with_prefix(f"task {name}") from error
