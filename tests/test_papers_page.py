"""Pages of the papers: inputs of their commands are outputs of others, every name exists, every table is present."""

import re

from contrastive_encoders.datamodules.sources.corpora import CORPORA
from contrastive_encoders.evaluation.paper_tables import AVERAGES
from tests.guide import PAPERS, commands_of, parts_of, text_of

PAGE = "".join(text_of(page) for page in PAPERS)
COMMANDS = [parts_of(line) for page in PAPERS for line in commands_of(page)]  # tests/test_guide.py composes them


def test_evaluations_and_syntheses_name_what_a_command_of_the_page_makes():
    made = {override for _, overrides in COMMANDS for override in overrides if override.startswith("output_dir=")}
    for target, overrides in COMMANDS:
        given = dict(override.split("=", 1) for override in overrides if "=" in override)
        name = given.get({"evaluate": "encoder", "generate": "generator"}.get(target, ""), "")
        assert not name.startswith("outputs/") or f"output_dir={name}" in made, "no command of the page makes it"
        assert target != "evaluate" or given["data_root"] == "eval"
    assert {target for target, _ in COMMANDS} >= {
        "train",
        "evaluate",
        "generate",
        "sweep",
        "preview",
    }
    hosted = [name for name, corpus in CORPORA.items() if corpus.pieces]
    assert [overrides[:-1] for target, overrides in COMMANDS if target == "download-data"] == [hosted]


def test_what_is_read_is_made_or_said_to_be_got():
    """Each data folder of the page is the output of a command there, or named in its first section."""
    made = {
        override.split("=")[1] for _, overrides in COMMANDS for override in overrides if override.startswith("output=")
    }
    read = set(re.findall(r"(?:path|input)=((?:triplets|dino)[\w/-]*)", PAGE))
    assert read
    assert {one for one in read if not any(one == other or one.startswith(f"{other}/") for other in made)} == set()
    first = text_of("docs/papers")
    corpora = {name.split("/")[1] for name in re.findall(r"corpora/[\w./-]+", PAGE)} - set(CORPORA)
    assert {name for name in corpora if f"corpora/{name}" not in first} == set()


def test_every_score_of_the_page_is_one_that_is_computed():
    names = {one.average.format(n=len(one.member_scores()), protocol="default") for one in AVERAGES}
    said = {name.replace("@senteval", "") for name in re.findall(r"`([a-z]+-avg\d[^`]*/[^`]+)`", PAGE)}
    assert len(said) >= 6
    assert said <= names
