"""Registry of evaluation tasks and suites, which are loaded from the tables in ``data_root``."""

import logging
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import nearest
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import SENTEVAL, table
from contrastive_encoders.evaluation.task import Task, TaskEntry
from contrastive_encoders.evaluation.tasks import (
    askubuntu,
    captions,
    cqadupstack,
    geometry,
    labeled,
    paraphrase,
    relatedness,
    retrieval,
    sts,
)
from contrastive_encoders.io.rows import count_rows

log = logging.getLogger(__name__)

ENTRIES: dict[str, TaskEntry] = {
    **sts.ENTRIES,
    **relatedness.ENTRIES,
    **labeled.SENTEVAL_ENTRIES,
    **captions.ENTRIES,
    **labeled.PROBING_ENTRIES,
    **askubuntu.ENTRIES,
    **cqadupstack.ENTRIES,
    **paraphrase.ENTRIES,
    **geometry.ENTRIES,
    **retrieval.ENTRIES,  # in no suite, because its data are installed Python packages
}
_REGRESSORS = tuple(name for name in relatedness.ENTRIES if name.endswith("-regressor"))
SUITES: dict[str, tuple[str, ...]] = {
    "sts": (*sts.ENTRIES, *_REGRESSORS),
    "transfer": ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"),
    "senteval": (*labeled.SENTEVAL_ENTRIES, *captions.ENTRIES, *_REGRESSORS, *sts.YEARS),
    "probing": tuple(labeled.PROBING_ENTRIES),
    "domain": ("askubuntu", "cqadupstack", "twitterurl", "pit", "biosses"),
    "geometry": tuple(geometry.ENTRIES),
}
SUITES["all"] = tuple(dict.fromkeys(name for suite in SUITES.values() for name in suite))
BOTH_FORMS = ("sts", "all")  # also on SentEval's form of the text, at no cost for an uncased encoder


class TaskSelection(NamedTuple):
    tasks: list[Task]
    skipped: dict[str, str]  # task of a suite -> reason why it cannot be scored
    row_count_mismatches: dict[str, str]  # table whose number of rows differs from the published one -> number of rows


def has_form(name: str) -> bool:
    """Return whether the task ``name`` also exists with SentEval's tokenized texts, as ``NAME@senteval``.

    ``name`` may also end in ``-dev``, as in the names of a task's scores.
    """
    return name in ENTRIES and ENTRIES[name].senteval


def is_task(name: str) -> bool:
    """Return whether ``name`` is the name of a task, with or without ``@senteval``."""
    return has_form(name.removesuffix(SENTEVAL)) if name.endswith(SENTEVAL) else name in ENTRIES


def listing_hint(data_root: str | Path) -> str:
    """Return a hint with the command that lists the tables and their sources."""
    where = shlex.quote(f"data_root={data_root}")
    return f"contrastive-encoders evaluate action=list {where} lists the tables and their sources."


def load_tasks(
    data_root: str | Path, suite: str | Sequence[str], config: EvaluateConfig, *, prefix: str = ""
) -> TaskSelection:
    """Read the tasks of the given suites, and tasks given by name, from the tables in ``data_root``.

    ``NAME@senteval`` is the task with its text in the form that SentEval passes to an encoder, if that differs. A
    missing task of a suite is skipped with a reason. A missing task that was requested by name is an error.

    Args:
        data_root: directory of the tables.
        suite: names of suites and tasks, as a list or separated by commas.
        config: configuration of the evaluation.
        prefix: prefix of the keys in messages.

    Raises:
        InputError: a name is unknown, a task is missing or damaged, or there is nothing to score.
    """
    root = Path(data_root)
    names = [name.strip() for name in (suite.split(",") if isinstance(suite, str) else suite)]
    selection = TaskSelection([], {}, {})
    for name, by_name in tasks_of_suites(names, prefix).items():
        missing = [path for path in task_files(root, name) if not path.is_file()]
        if not missing:
            entry = ENTRIES[name.removesuffix(SENTEVAL)]
            selection.tasks.append(entry.read(root, name, config))
        elif by_name:
            raise InputError(
                location=f"task {name}",
                expected=f"the file {missing[0]} in {prefix}data_root",
                hint=listing_hint(root),
            )
        else:
            selection.skipped[name] = f"{missing[0]} does not exist"
    if not selection.tasks:
        raise InputError(
            key=f"{prefix}data_root",
            value=root,
            expected=f"a directory that contains the tables of at least one task of {', '.join(names) or 'a suite'}, "
            "such as STS12/test.tsv",
            hint=listing_hint(root),
        )
    selection.row_count_mismatches.update(pair for task in selection.tasks for pair in _unofficial(root, task.name))
    if selection.row_count_mismatches:
        differing = [f"{one} ({how})" for one, how in selection.row_count_mismatches.items()]
        log.warning(
            "tables in %s differ from the published ones, so scores are not comparable with published scores: %s",
            root,
            ", ".join(differing),
        )
    # A second form of the text is used if it exists; otherwise, no warning is needed
    skipped_tasks = [name for name in selection.skipped if not name.endswith(SENTEVAL)]
    if skipped_tasks:
        log.info("skipped, because their tables are not in %s: %s", root, ", ".join(skipped_tasks))
    return selection


def task_files(root: Path, name: str) -> Iterator[Path]:
    """Yield the files from which a task is read."""
    entry = ENTRIES[name.removesuffix(SENTEVAL)]
    for one in entry.rows:
        yield table(root, one, name)
    yield from (root / one for one in entry.extra_files)


def _unofficial(root: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (table, numbers of rows) for each table of a task whose number of rows differs from the published
    number.
    """
    for one, official in ENTRIES[name.removesuffix(SENTEVAL)].rows.items():
        path = table(root, one, name)
        if official is not None and path.suffix in (".tsv", ".gz") and (rows := count_rows([path])) != official:
            yield str(path.relative_to(root)), f"{rows} rows, not {official}"


def tasks_of_suites(names: Sequence[str], prefix: str = "") -> dict[str, bool]:
    """Expand suites to their tasks. Return task -> whether the task itself is one of ``names``.

    Raises:
        InputError: a name is neither a suite nor a task.
    """
    tasks: dict[str, bool] = {}
    for name in names:
        plain, ending = name.removesuffix(SENTEVAL), SENTEVAL if name.endswith(SENTEVAL) else ""
        if plain in SUITES:
            for member in _members(plain, ending):
                tasks.setdefault(member, False)
        elif is_task(name):
            tasks[name] = True
        else:
            raise _unknown_suite(name, plain, prefix)
    return tasks


def _members(suite: str, ending: str) -> list[str]:
    plain = SUITES[suite]
    other = [name + SENTEVAL if has_form(name) else name for name in plain]
    if ending:
        return other
    return [*plain, *(name for name in other if name.endswith(SENTEVAL))] if suite in BOTH_FORMS else list(plain)


def _unknown_suite(name: str, plain: str, prefix: str) -> InputError:
    if plain in ENTRIES:
        expected = f"{plain} without {SENTEVAL}, because this task has only one version of its texts"
        return InputError(key=f"{prefix}suite", value=name, expected=expected, hint=f"Set {prefix}suite={plain}.")
    known = [*SUITES, *ENTRIES]
    near = nearest(plain.lower(), known)
    return InputError(
        key=f"{prefix}suite",
        value=name,
        expected=f"one of {', '.join(known)}, or NAME{SENTEVAL}",
        hint=f"The nearest is {near}." if near else None,
    )
