"""docs/papers.md is a promise: what a command reads is made, every name is one of ours, every table is there."""

import re

import pytest

from datamodules.sources.corpora import CORPORA
from evaluation.papers import AVERAGES
from tests.guide import ROOT, commands_of, parts_of, text_of

PAGE = text_of("docs/papers")
COMMANDS = [parts_of(line) for line in commands_of("docs/papers")]  # tests/test_guide.py composes them


def test_evaluations_and_syntheses_name_what_a_command_of_the_page_makes():
    made = {word for _, words in COMMANDS for word in words if word.startswith("output_dir=")}
    for target, words in COMMANDS:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        name = given.get({"evaluation": "encoder", "synthesis": "generator"}.get(target, ""), "")
        assert not name.startswith("outputs/") or f"output_dir={name}" in made, "no command of the page makes it"
        assert target != "evaluation" or given["data_root"] == "eval"
    assert {target for target, _ in COMMANDS} >= {"train.py", "evaluation", "synthesis", "comparison.sweep", "preview"}
    hosted = [name for name, corpus in CORPORA.items() if corpus.pieces]
    assert [words[:-1] for target, words in COMMANDS if target == "datamodules.prepare"] == [hosted]


def test_what_is_read_is_made_or_said_to_be_got():
    """Each folder of data of the page is the output of a command there, or named in its first section."""
    made = {word.split("=")[1] for _, words in COMMANDS for word in words if word.startswith("output=")}
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
        slugs = {
            re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in target.read_text(encoding="utf-8").splitlines()
            if line.startswith("#")
        }
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
