"""docs/papers.md is a promise: every command of it composes, every name is one of ours, every table is there."""

import re
import shlex

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf

from command.config_files import CONFIGS, ROOT
from command.keys import check_types, declared, settings
from comparison.sweep import read_words as sweep_words
from comparison.sweep_file import words_of
from datamodules.corpora import CORPORA
from datamodules.prepare import read_words as corpora_words
from encoders.pooling import POOLERS
from evaluation.catalogue import ENTRIES, SUITES
from evaluation.papers import AVERAGES
from synthesis.__main__ import Keys as SynthesisKeys
from synthesis.report.afterwards import Afterwards
from training.checks import check_choice, check_values
from training.stages import forced, stages_of

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
BLOCKS = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]
COMMANDS = list(dict.fromkeys([*BLOCKS, *re.findall(r"`(python [^`]+)`", PAGE)]))


def those(beginning: str) -> list[str]:
    return [line for line in COMMANDS if line.startswith(beginning)]


TRAININGS, EVALUATIONS = those("python train.py "), those("python -m evaluation ")
SYNTHESES, SWEEPS = those("python -m synthesis "), those("python -m comparison.sweep ")
PREVIEWS, CORPORA_GOT = those("python -m preview "), those("python -m datamodules.prepare ")


def composed(config: str, words: list[str]):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(config, overrides=words)


def test_every_command_is_of_a_kind_that_is_composed_here():
    kinds = [TRAININGS, EVALUATIONS, SYNTHESES, SWEEPS, PREVIEWS, CORPORA_GOT]
    assert all(kinds)
    assert set(COMMANDS) == {line for kind in kinds for line in kind}


@pytest.mark.parametrize("command", TRAININGS)
def test_trainings(command):
    """All that is checked of a run before its data is read."""
    words = forced(["output_dir=somewhere", *shlex.split(command)[2:]])
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        stages = stages_of(compose("train", overrides=words), words)
        for stage in stages:
            cfg = OmegaConf.create(OmegaConf.to_container(stage.cfg, resolve=True))
            if stage.name == "domain" and cfg.get("domain"):
                cfg.data.path = "of the synthesis"  # which is begun by the run
            check_choice(cfg)
            check_values(cfg)
            known(cfg.evaluation.suite)
    assert stages


def known(suite):
    for name in [suite] if isinstance(suite, str) else suite:
        assert name.removesuffix("@senteval") in {*SUITES, *ENTRIES}


@pytest.mark.parametrize("command", EVALUATIONS)
def test_evaluations(command):
    cfg = composed("evaluation", shlex.split(command)[3:])
    known(cfg.suite)
    assert cfg.data_root == "eval"
    assert cfg.pooling in {None, *POOLERS}
    assert (cfg.encoder is None) == (cfg.action == "fetch")
    if cfg.encoder and cfg.encoder.startswith("outputs/"):
        assert any(f"output_dir={cfg.encoder}" in line for line in TRAININGS), "no command of the page makes it"


@pytest.mark.parametrize("command", SYNTHESES)
def test_syntheses(command):
    cfg = composed("synthesis", shlex.split(command)[3:])
    check_types(cfg, declared(SynthesisKeys))
    if cfg.annotate is None and cfg.annotations is None:
        recipe = settings(get_class(cfg.recipe._target_), cfg, besides=Afterwards._fields)
        assert recipe.folder
    if str(cfg.generator).startswith("outputs/"):
        assert any(f"output_dir={cfg.generator}" in line for line in TRAININGS), "no command of the page makes it"


@pytest.mark.parametrize("command", SWEEPS)
def test_sweeps(command, monkeypatch):
    """The first and the last trial; tests of sweeps compose all."""
    monkeypatch.chdir(ROOT)
    asked = sweep_words(shlex.split(command)[3:])
    for values in (asked.sweep.grid()[0], asked.sweep.grid()[-1]):
        check_values(composed("train", ["output_dir=somewhere", *asked.sweep.words, *words_of(values), *asked.words]))


@pytest.mark.parametrize("command", [*PREVIEWS, *CORPORA_GOT])
def test_the_others(command):
    words = shlex.split(command)[3:]
    if command in PREVIEWS:
        assert composed("train", ["output_dir=somewhere", *words]).model
    else:
        assert corpora_words(words).names == list(CORPORA)


def test_what_is_read_is_made_or_said_to_be_got():
    """Each folder of data of the page is the output of a command there, or named in its first section."""
    made = {word.split("=")[1] for line in COMMANDS for word in shlex.split(line) if word.startswith("output=")}
    read = set(re.findall(r"(?:path|input)=((?:triplets|dino)[\w/-]*)", PAGE))
    assert read
    assert {one for one in read if not any(one == other or one.startswith(f"{other}/") for other in made)} == set()
    first = PAGE[: PAGE.index("\n## DINO")]
    corpora = {name.split("/")[1] for name in re.findall(r"corpora/[\w./-]+", PAGE)} - set(CORPORA)
    assert {name for name in corpora if f"corpora/{name}" not in first} == set()


def test_every_score_of_the_page_is_one_that_is_computed():
    names = {one.average.format(n=len(one.averaged()), protocol="default") for one in AVERAGES}
    said = {name.replace("@senteval", "") for name in re.findall(r"`([a-z]+-avg\d[^`]*/[^`]+)`", PAGE)}
    assert len(said) >= 6
    assert said <= names


def test_every_table_and_figure_has_a_heading_and_every_link_a_target():
    wanted = {"DINO": [*range(1, 6)], "DeCLUTR": [*range(1, 5)], "GenSE": [*range(1, 10)]}
    for paper, tables in wanted.items():
        section = re.search(rf"^## {paper}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S).group(1)
        headings = " ".join(re.findall(r"^### (.*)", section, re.M))
        assert [n for n in tables if not re.search(rf"Tables? (\d and )?{n}\b", headings)] == []
        assert "igure" in headings
    for path, anchor in re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", PAGE):
        target = ROOT / "docs" / path
        assert target.is_file()
        slugs = {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                 for line in target.read_text(encoding="utf-8").splitlines() if line.startswith("#")}  # fmt: skip
        assert not anchor or anchor in slugs


def test_every_row_says_how_it_is_made_or_why_it_is_quoted():
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in PAGE.splitlines() if line[:2] == "| "]
    table_3_of_dino = ("human label", "0", "0.1", "0.5", "0.9")
    rows = [row for row in rows if len(row) == 6 and row[1] != "command" and row[0] not in table_3_of_dino]
    assert len(rows) > 80
    for row in rows:
        quoted = row[1].startswith("*quoted*: ")
        assert quoted == (row[-1] == "no"), row
        made = re.search(r"`(python|outputs/)|(th|Th)at of|the (first|second|sweep)|as there|x2 of table", row[1])
        assert quoted or made, row
        assert row[4], "no number of the paper"


def test_averages_are_those_of_the_numbers_before_them():
    """Typing errors show: seven STS sets and their mean. The papers round; that of SBERT is 0.03 off in its source."""
    found = re.findall(r"\| ((?:\d+\.\d\d ){6}\d+\.\d\d), \*\*(\d+\.\d\d)\*\*", PAGE)
    assert len(found) == 12 + 14
    for numbers, average in found:
        assert sum(map(float, numbers.split())) / 7 == pytest.approx(float(average), abs=0.031)
