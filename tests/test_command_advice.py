"""Advice of the other commands: the advised arguments end the refusal, and the command gets further."""

import pytest

from contrastive_encoders.cli import compare, embed, evaluate, export, mine_negatives
from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import unknown_key
from tests.advice import advice, followed
from tests.in_process import run_here

COMMANDS = {
    "compare": compare.run,
    "evaluate": evaluate.run,
    "export": export.run,
    "embed": embed.run,
    "mine-negatives": mine_negatives.run,
}
# id; command; arguments that cause the message; text of the message; arguments to run instead
REFUSED = [
    ("contrastive_encoders.cli.compare:run", "compare", ["output=out"], "runs='[outputs/*]'", "runs=[outputs/*]"),
    (
        "contrastive_encoders.comparison.collect:collect",
        "compare",
        ["output=out", "runs=[]"],
        "runs='[outputs/*]'",
        "runs=[outputs/*]",
    ),
    (
        "contrastive_encoders.evaluation.evaluate_config:EvaluateConfig._check_tables",
        "evaluate",
        ["encoder=e"],
        "data_root=FOLDER",
        "data_root=tables",
    ),
    (
        "contrastive_encoders.evaluation.evaluate_config:EvaluateConfig._check_tables",
        "evaluate",
        ["encoder=e"],
        "custom_tasks=FILE",
        "custom_tasks=task.tsv",
    ),
    (
        "contrastive_encoders.evaluation.evaluate_config:EvaluateConfig._check_names",
        "evaluate",
        ["data_root=tables"],
        "encoder=...",
        "encoder=e",
    ),
    (
        "contrastive_encoders.evaluation.evaluate_config:EvaluateConfig._check_mteb",
        "evaluate",
        ["suite=[mteb,sts]", "encoder=e"],
        "suite=mteb",
        "suite=mteb",
    ),
    (
        "contrastive_encoders.evaluation.catalog:_unknown_suite",
        "evaluate",
        ["encoder=e", "data_root=tables", "suite=mrpc@senteval"],
        "suite=mrpc",
        "suite=mrpc",
    ),
    (
        "contrastive_encoders.evaluation.custom_tasks.resolve:_tasks_of_entry",
        "evaluate",
        ["encoder=e", "data_root=tables", "custom_tasks=[sts12]"],
        "suite=sts12",
        "~custom_tasks suite=sts12",
    ),
    (
        "contrastive_encoders.evaluation.mteb_suite:choose_tasks",
        "evaluate",
        ["suite=mteb", "encoder=e"],
        "mteb_tasks=[STSBenchmark,STS12]",
        0,
    ),
]


def refusal(command, arguments):
    """Return the message of a command, which ends at the latest at the missing encoder."""
    with pytest.raises(InputError) as error:
        run_here(command, COMMANDS[command], arguments)
    return str(error.value)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("name", "command", "arguments", "shown", "taken"),
    [pytest.param(*row, id=f"{row[0]}-{at}") for at, row in enumerate(REFUSED)],
)
def test_a_refused_command_gets_further_as_advised(name, command, arguments, shown, taken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("A text.\nAnother text.\n")
    (tmp_path / "t.tsv").write_text("anchor\tpositive\na\tb\nc\td\n")
    pattern = advice()[name].pattern
    message = refusal(command, arguments)
    assert pattern.search(message), message
    assert shown in message
    further = refusal(command, followed(arguments, taken or shown))
    assert not pattern.search(further), further
    assert str(unknown_key("k", None, [], "").expected) not in further
