"""docs/metrics.md names every score that is computed, and no task that does not exist."""

import itertools
import re

from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.generator_dev import GeneratorDev
from contrastive_encoders.evaluation.paper_tables import AVERAGES
from contrastive_encoders.evaluation.tables import SENTEVAL
from tests.guide import text_of


def expanded(pattern: str) -> list[str]:
    """Expand ``{a,b}/x`` to a/x, b/x; ``{n}``, which is a number, stays."""
    parts = [part.split(",") for part in re.split(r"\{([^{}]+,[^{}]+)\}", pattern)[1::2]]
    fixed = re.split(r"\{[^{}]+,[^{}]+\}", pattern)
    return ["".join(itertools.chain(*zip(fixed, (*one, ""), strict=True))) for one in itertools.product(*parts)]


ROWS = re.findall(r"^\| (`[^|]+`) \|", text_of("docs/metrics").partition("## During training")[0], re.M)
SAID = {name for row in ROWS for pattern in re.findall(r"`([^`]+)`", row) for name in expanded(pattern)}


def test_computed_scores_are_on_the_page(small_tables):
    """The tasks are those with tables in the tests; the page may omit an ending of the task, as it says."""
    chosen = load_tasks(small_tables, "all", EvaluateConfig())
    found = {name.replace(SENTEVAL, "") for task in chosen.tasks for name in task.score_names()}
    assert len(found) > 30
    found = {re.sub(r"/default/(accuracy|f1)$", r"/PROTOCOL/\1", name) for name in found}
    found |= {one.average.replace("{protocol}", "PROTOCOL") for one in AVERAGES}
    found |= set(GeneratorDev().score_names())
    assert {name for name in found if not {name, name.replace("-dev/", "/")} & SAID} == set()
