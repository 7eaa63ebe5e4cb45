"""Scores of several families of tasks in one table, names of arms, and tables that fit a terminal."""

import csv
import io

import pytest
from rich.console import Console

from contrastive_encoders.cli.compare import run
from contrastive_encoders.comparison import tables
from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric, contrasts, ranking
from contrastive_encoders.comparison.families import families_of
from contrastive_encoders.comparison.latex_table import format_csv, format_latex
from contrastive_encoders.comparison.setting_figures import settings_figures
from contrastive_encoders.io.results import read_results, write_results
from contrastive_encoders.reports.tables import Cell, Table, columns, split_to_fit, to_terminal_table
from tests.in_process import run_here

TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
AVERAGE = "transfer-avg7/default/accuracy"


def score(folder, more, averages=None):
    results = read_results(folder / "results.json")
    results["scores"] |= more
    write_results(folder / "results.json", results | {"averages": averages or {}})


@pytest.fixture
def compared(run_folder, tmp_path):
    """Two arms with two STS tasks, seven transfer tasks, their average, two retrieval tasks, and a development set."""
    for arm, noise, value in (("good", 0.2, 80.0), ("poor", 0.6, 60.0)):
        folder = run_folder(tmp_path / arm, arm, 1, noise)
        accuracies = {f"{task}/default/accuracy": value + place for place, task in enumerate(TRANSFER)}
        retrieval = {f"{task}/cosine/{metric}": value / 2 for task in ("cisi", "mine") for metric in ("mrr", "ndcg@10")}
        others = {AVERAGE: value + 3, "mr-dev/default/accuracy": 1.0, "cisi@64/cosine/ndcg@10": 1.0}
        score(folder, accuracies | retrieval | others, {AVERAGE: list(accuracies)})
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    headline = choose_ranking_metric(arms, None)
    return arms, families_of(arms, headline), ranking(arms, headline, contrasts(arms, headline))


def test_each_family_has_its_tasks_and_one_average(compared):
    _, families, _ = compared
    assert [(family.kind, len(family.score.scores)) for family in families] == [
        ("STS", 2),
        ("retrieval", 2),
        ("transfer", 7),
    ]
    assert families[2].score.name == AVERAGE
    assert families[1].score.scores == ["cisi/cosine/ndcg@10", "mine/cosine/ndcg@10"]


def test_a_single_task_is_a_family_without_an_average(run_folder, tmp_path):
    score(run_folder(tmp_path / "a", "a", 1, 0.2), {"cisi/cosine/ndcg@10": 40.0, "toxic/cosine/accuracy": 70.0})
    arms = arms_of(collect([str(tmp_path / "a")])[0])
    _, *others = families_of(arms, choose_ranking_metric(arms, None))
    assert [(one.kind, one.heading, [score.name for score in one.scores]) for one in others] == [
        ("retrieval", "cisi/cosine/ndcg@10", ["cisi/cosine/ndcg@10"]),
        ("triplets", "toxic/cosine/accuracy", ["toxic/cosine/accuracy"]),
    ]


def test_all_families_are_in_every_table(compared):
    arms, families, standings = compared
    board = tables.scores_by_family(arms, families, standings)
    assert [row[3:5] for row in board.rows] == [[40.0, 83.0], [30.0, 63.0]]
    rows = list(csv.DictReader(io.StringIO(format_csv(arms, families, standings))))
    found = {(row["arm"], row["score"]): (row["family"], float(row["mean"])) for row in rows}
    assert len(rows) == 2 * (3 + 3 + 8)
    assert found["poor", "mrpc/default/accuracy"] == ("transfer", 66.0)
    assert ("retrieval", 40.0) in [value for (arm, name), value in found.items() if arm == "good" and "2" in name]
    latex = format_latex(arms, families, standings)
    assert latex.count(r"\textbf{83.00}") == 2  # the average; subj's 83 is another value
    widths = {line.count("&") for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line}
    [head] = [line for line in latex.splitlines() if line.startswith(r"\begin{tabular}")]
    assert max(widths) + 1 <= len(head.partition("{tabular}{")[2].strip("}"))
    names = {column.heading for column in tables.task_scores(arms, families, standings).columns}
    assert {AVERAGE, "mr/default/accuracy", "cisi/cosine/ndcg@10", "stsb/cosine/spearman"} <= names


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_tables_fit_the_terminal_and_numbers_stay_whole(compared, width):
    arms, families, standings = compared
    arms = [arm._replace(label=f"{arm.label} encoder with a long name of its own") for arm in arms]
    board = tables.scores_by_family(arms, families, standings)
    console = Console(file=io.StringIO(), width=width)
    for part in split_to_fit(board, width, tables.OPTIONAL):
        console.print(to_terminal_table(part, width))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for value in ("40.00", "83.00", "30.00", "63.00"):
        assert any(value in line for line in lines)
    borders = [line for line in lines if line.startswith("│")]
    assert all(line.rstrip().endswith("│") for line in borders)


def test_columns_that_cannot_be_beside_each_other_are_below_each_other():
    table = Table(columns("arm", *(f"task {place}" for place in range(9)), right=True), [["a", *[Cell("12.34")] * 9]])
    parts = split_to_fit(table, 40)
    assert [column.heading for part in parts for column in part.columns if column.heading != "arm"] == [
        f"task {place}" for place in range(9)
    ]
    assert all(part.columns[0].heading == "arm" for part in parts)
    assert split_to_fit(table, 400) == [table]


def test_an_arm_whose_settings_are_long_is_called_by_its_directory(run_folder, tmp_path):
    for place, (rate, path) in enumerate(((0.1, "sentences_of_wikipedia.txt"), (0.2, "triplets_of_snli_and_mnli.txt"))):
        for seed in (1, 2):
            run_folder(tmp_path / f"run{place}-seed{seed}", "one", seed, 0.2, model={"lr": rate}, data={"path": path})
    assert [arm.label for arm in arms_of(collect([str(tmp_path / "*")])[0])] == ["run0", "run1"]


def test_names_of_arms(run_folder, tmp_path):
    for place in range(2):
        run_folder(tmp_path / f"run{place}", "one", 1, 0.2, model={"lr": 0.1 * (place + 1)})
    named = {"mine": str(tmp_path / "run1"), "the base": str(tmp_path / "run0")}
    assert [arm.label for arm in arms_of(collect(named)[0])] == ["mine", "the base"]
    arguments = [f"runs={{mine: {tmp_path / 'run1'}, base: {tmp_path / 'run0'}}}", f"output={tmp_path / 'out'}"]
    assert run_here("compare", run, (*arguments, "sentences=0", "quiet=true")) == 0
    assert (tmp_path / "out" / "table.csv").read_text().count("mine,") == 3


def test_a_run_names_its_own_arm(run_folder, tmp_path):
    for place, seed in ((0, 1), (0, 2), (1, 1)):
        name = {"name": "mine"} if place == 0 else {}
        run_folder(tmp_path / f"run{place}-{seed}", "one", seed, 0.2, model={"lr": 0.1 * (place + 1)}, **name)
    assert [(arm.label, len(arm.runs)) for arm in arms_of(collect([str(tmp_path / "*")])[0])] == [
        ("mine", 2),
        ("one", 1),
    ]


def test_configs_of_a_data_set_are_arms_of_their_own(run_folder, tmp_path):
    for place, name in enumerate(("en", "de")):
        run_folder(tmp_path / f"run{place}", "one", 1, 0.2, data={"name": name}, name=None)
    assert [arm.label for arm in arms_of(collect([str(tmp_path / "*")])[0])] == ["one name=en", "one name=de"]


def test_labels_of_paths_are_their_last_parts_and_have_a_limit(run_folder, tmp_path):
    for place, path in enumerate(("/a/b/questions.jsonl", "/a/b/sentences.txt", "/a/c/titles.csv")):
        run_folder(tmp_path / f"run{place}", "one", 1, 0.2 + place / 10, data={"path": path})
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    [figure] = settings_figures(arms, choose_ranking_metric(arms, None))
    texts = [layer for layer in figure.panels[0].layer if layer.mark.type == "text"]
    assert all("limit" in layer.mark.to_dict() for layer in texts)
    said = {label["text"] for layer in texts for label in layer.data["values"]}
    assert {"questions.jsonl", "sentences.txt", "titles.csv"} <= said
