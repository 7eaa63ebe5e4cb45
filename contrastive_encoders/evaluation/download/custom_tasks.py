"""Report on the user's own tasks and whether their files can be scored."""

from collections.abc import Sequence

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.custom_tasks.resolve import CustomTaskEntry
from contrastive_encoders.evaluation.download.registry import DataStatus, TableStatus
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite


def custom_task_report(own: Sequence[CustomTaskEntry], config: EvaluateConfig | None) -> DataStatus:
    """Report each task with its kind and files and, with ``config``, the numbers of its texts and scores.

    With ``config``, all files are read.
    """
    rows = list[TableStatus]()
    for one in own:
        files = ", ".join(map(str, one.keys.files()))
        try:
            rows.append(
                TableStatus(one.name, "ok" if config else "there", f"{one.kind} from {files}{_contents(one, config)}")
            )
        except InputError as error:
            rows.append(TableStatus(one.name, "damaged", str(error)))
    return DataStatus(rows, ok=all(row.state != "damaged" for row in rows))


def _contents(one: CustomTaskEntry, config: EvaluateConfig | None) -> str:
    if config is None:
        return ""
    suite = Suite(one.read(config))
    texts = {text for task in suite for side in task.texts() for text in side}
    return f"; {len(texts):,} texts; scores {', '.join(suite.score_names())}"
