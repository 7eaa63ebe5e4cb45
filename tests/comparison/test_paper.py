"""Comparison outputs for a paper, the evaluation of retrieval, and config folders of races and sweeps."""

import csv
import io
import itertools
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from contrastive_encoders.cli.sweep import read_arguments
from contrastive_encoders.comparison.arms import arms_of
from contrastive_encoders.comparison.baselines import tfidf_arm
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric, contrasts, ranking
from contrastive_encoders.comparison.families import families_of
from contrastive_encoders.comparison.latex_table import escape, format_csv, format_latex
from contrastive_encoders.comparison.run_scheduler import Job, open_workers, run_all
from contrastive_encoders.core import InputError, RetrievalData
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tasks.cqadupstack import Forum, ForumRetrieval
from contrastive_encoders.io.item_scores import write_items
from contrastive_encoders.io.results import read_results, write_results
from contrastive_encoders.statistics.paired_tests import sign_flip_test
from tests.embedders import OnTheCPU


def test_tables_hold_the_scores_of_the_runs(run_folder, tmp_path):
    for seed in (1, 2):
        run_folder(tmp_path / f"a{seed}", "50% & a_b", seed, 0.2)
    run_folder(tmp_path / "b", "other", 1, 0.6)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    headline = choose_ranking_metric(arms, "stsb/cosine/spearman")
    standings = ranking(arms, headline, contrasts(arms, headline))
    values = [read_results(tmp_path / f"a{seed}" / "results.json")["scores"][headline.name] for seed in (1, 2)]
    families = families_of(arms, headline)[:1]
    rows = list(csv.DictReader(io.StringIO(format_csv(arms, families, standings))))
    assert [row["arm"] for row in rows] == ["50% & a_b", "other"]
    assert float(rows[0]["mean"]) == pytest.approx(np.mean(values))
    assert float(rows[0]["sd_over_seeds"]) == pytest.approx(np.std(values, ddof=1))
    latex = format_latex(arms, families, standings, "contrastive-encoders compare\nruns=x")
    assert latex.startswith("% Written by: contrastive-encoders compare runs=x\n")
    assert rf"50\% \& a\_b & 1 & \textbf{{{np.mean(values):.2f}}} $\pm$ {np.std(values, ddof=1):.2f} \\" in latex
    assert escape("a\\b{c}^~") == r"a\textbackslash{}b\{c\}\textasciicircum{}\textasciitilde{}"
    assert (escape("[1,2] a"), escape("*")) == ("{[}1,2] a", "{*}")  # otherwise arguments of the \\\\ before them


def test_the_test_over_queries_is_scipys():
    differences = np.random.default_rng(0).normal(0.3, 1, 60)
    found = stats.permutation_test(
        (differences,), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=9999, rng=1
    )
    assert sign_flip_test(differences[:, None], "x").p_values()[0] == pytest.approx(found.pvalue, abs=0.015)


def test_retrieval_is_ranked_by_ndcg_and_tfidf_is_an_arm(run_folder, tmp_path):
    """Queries that share their only word with their document: TF-IDF finds all, embeddings without meaning do not."""
    words = [f"word{place}" for place in range(40)]
    suite = Suite([RetrievalData("found", [f"the {word}" for word in words], [f"a {word} here" for word in words])])

    class Meaningless(OnTheCPU):
        def embed(self, texts, **_):
            return torch.randn(len(texts), 8, generator=torch.Generator().manual_seed(len(texts)))

    scores = suite.run(Meaningless(), intervals=True)
    folder = run_folder(tmp_path / "a", "m", 1, 0.2)
    write_items(folder / "item_scores.npz", suite.with_baselines(scores.items))
    results = read_results(folder / "results.json") | {"scores": scores.values, "baselines": suite.baselines()}
    write_results(folder / "results.json", results)
    arms = arms_of(collect([str(folder)])[0])
    headline = choose_ranking_metric(arms, None)
    assert headline.name == "found/cosine/ndcg@10"
    arms.append(tfidf_arm(arms, headline))
    [found] = contrasts(arms, headline)
    assert arms[1].values(headline.name)[0] == pytest.approx(100)
    assert (found.distinguishable, found.p < 0.001, found.over_items[1] < 0) == (True, True, True)


def test_a_mean_over_sets_of_queries_is_tested_over_all_queries(run_folder, tmp_path):
    """Enumerate every exchange of two encoders on twelve queries.

    The nine queries of one forum each have a third of the weight of the three queries of the other forum.
    """
    forums = [
        Forum(
            name,
            [f"{name} {place}" for place in range(size)],
            [f"{name} answer {place}" for place in range(40)],
            [[place] for place in range(size)],
            [1] * size,
        )
        for name, size in (("android", 9), ("tex", 3))
    ]
    suite, score = Suite([ForumRetrieval("cqadupstack", forums)]), "cqadupstack/cosine/map@100"

    class Drawn(OnTheCPU):
        def __init__(self, seed):
            self.seed = seed

        def embed(self, texts, **_):
            return torch.randn(len(texts), 8, generator=torch.Generator().manual_seed(self.seed))

    by_forum = []
    for seed, name in enumerate("ab"):
        scores = suite.run(Drawn(seed), intervals=True)
        folder = run_folder(tmp_path / name, name, 1, 0.2)
        write_items(folder / "item_scores.npz", scores.items)
        write_results(folder / "results.json", read_results(folder / "results.json") | {"scores": scores.values})
        by_forum.append([scores.items.values[f"cqadupstack-{one.name}/cosine/map@100"] for one in forums])
    differences = [one - other for one, other in zip(*by_forum, strict=True)]
    means = [
        np.mean([(np.array(signs) * one).mean() for signs, one in zip((both[:9], both[9:]), differences, strict=True)])
        for both in itertools.product((1, -1), repeat=12)
    ]
    exact = np.mean(np.abs(means) >= abs(means[0]) - 1e-9)
    arms = arms_of(collect([str(tmp_path / "*")])[0])
    [found] = contrasts(arms, choose_ranking_metric(arms, score))
    assert abs(found.difference) == pytest.approx(abs(means[0]))
    assert found.p == pytest.approx(exact, abs=0.02)


def test_config_folders_reach_every_run_before_its_words(tmp_path, monkeypatch):
    (tmp_path / "conf").mkdir()
    sweep = tmp_path / "s.yaml"
    sweep.write_text("method: grid\ncommand: ['${args_no_hyphens}']\nparameters: {batch_size: {values: [1]}}\n")
    for given in ([f"--config-dir={tmp_path / 'conf'}"], ["-cd", str(tmp_path / "conf")]):
        asked = read_arguments([str(sweep), *given, "output=x", "model=mine"])
        assert (asked.options, asked.overrides) == ([f"--config-dir={tmp_path / 'conf'}"], ["model=mine"])
    with pytest.raises(InputError) as refused:
        read_arguments([str(sweep), f"--config-dir={tmp_path / 'none'}", "output=x"])
    assert f"--config-dir={tmp_path / 'none'}: " in str(refused.value)
    program = tmp_path / "train.py"
    program.write_text("import sys, mine; print(*sys.argv[1:]); sys.exit(2)")
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setattr("contrastive_encoders.comparison.run_scheduler.TRAIN", (str(program),))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with open_workers(tmp_path) as pool:
        [done] = run_all(pool, [Job("j", ["model=mine", *asked.options], tmp_path / "run")], tmp_path / "record.jsonl")
    assert done.output_tail.split() == [*asked.options, "model=mine", f"output_dir={tmp_path / 'run'}"]
