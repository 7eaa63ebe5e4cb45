"""Report on custom tasks: their files, and whether they can be scored."""

from collections.abc import Sequence

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.custom_tasks.resolve import CustomTaskEntry
from contrastive_encoders.evaluation.download.registry import DataStatus, TableStatus
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite


def custom_task_report(own: Sequence[CustomTaskEntry], config: EvaluateConfig | None) -> DataStatus:
    """Report each custom task with its kind and files.

    If ``config`` is given, the files are read, and the report also contains the number of texts and the score names.
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
