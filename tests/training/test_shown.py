"""Output for the user: the live line on a terminal, the closing table, the learning curve."""

import io
import json
import math
import re
import struct
from xml.etree import ElementTree

import pytest
import toy
from rich.console import Console
from test_results import RESULTS

from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.reports.curves import Curves, add_scores
from contrastive_encoders.reports.figure import draw
from contrastive_encoders.training.callbacks.progress import TrainingProgress, described
from contrastive_encoders.training.callbacks.telemetry import Telemetry
from contrastive_encoders.training.curve import Reference, draw_curve, loss_names, others_of, score_names
from contrastive_encoders.training.curve_figure import curve_figure
from contrastive_encoders.training.finish import closing_table, scores_table
from contrastive_encoders.training.metrics_csv import MetricsCSV

NUMBER = re.compile(r"[\d.]*\d")

LATEST = {
    "train/loss": 0.41234,
    "throughput/documents_per_s": 35.4,
    "throughput/real_tokens_per_s": 9120.0,
    "throughput/padding_share": 0.041,
}


def shown(table):
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


def progress_of_a_run(folder, monkeypatch, terminal, quiet=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    progress = TrainingProgress(quiet=quiet, monitor=toy.SCORE, console=console)
    monkeypatch.setattr(toy, "Reseed", lambda seed: Telemetry(every_n_steps=2))  # which precedes it in a run
    monkeypatch.setattr(toy, "Telemetry", lambda every_n_steps, resumed: progress)
    toy.train(folder, max_steps=8)
    return console.file.getvalue()


def test_a_terminal_shows_steps_rates_loss_and_score(tmp_path, monkeypatch):
    text = progress_of_a_run(tmp_path, monkeypatch, terminal=True)
    task, metric = toy.SCORE.split("/")[0], toy.SCORE.split("/")[-1]
    for part in ("step 8/8", "loss", "ex/s", "0:00:00 left", "tokens/s", "9% padding", f"{task} {metric} 40.00"):
        assert part in text, part


def test_elsewhere_each_log_step_is_a_line_and_when_quiet_nothing_is_shown(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="contrastive_encoders")
    assert progress_of_a_run(tmp_path / "lines", monkeypatch, terminal=False) == ""
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "contrastive_encoders.training.callbacks.progress"
    ]
    assert [line.partition("  ")[0] for line in lines] == ["step 2/8", "step 4/8", "step 6/8", "step 8/8"]
    caplog.clear()
    assert progress_of_a_run(tmp_path / "quiet", monkeypatch, terminal=True, quiet=True) == ""
    assert [record for record in caplog.records if record.name.startswith("contrastive_encoders")] == []


def test_80_columns_show_step_loss_score_rate_and_time_left():
    line = described(12_345, 100_000, LATEST, "stsb-dev/cosine/spearman", 61.2, 4_210.0)
    first, _, rest = line.partition(" left")
    assert first == "step 12345/100000  loss 0.412  stsb-dev spearman 61.20  35 ex/s  1:10:10"
    assert len(first + " left") <= 80
    assert rest == "  9,120 tokens/s  4% padding"
    assert described(1, None, {}, None, None, None) == "step 1"
    unpadded = LATEST | {"throughput/padding_share": 0.0}
    assert described(1, None, unpadded, None, None, None).endswith("9,120 tokens/s")


def test_the_table_holds_before_after_change_and_baseline():
    text = shown(scores_table({"a/x": 40.0}, {"a/x": 61.256, "b/y": 3.0}, {"a/x": 50.0, "a/tfidf/x": 7.0}))
    row = next(line for line in text.splitlines() if "a/x" in line and "tfidf" not in line)
    for cell in ("40.00", "61.26", "+21.26", "50.00"):
        assert cell in row
    assert any("a/tfidf/x" in line and "7.00" in line for line in text.splitlines())
    assert "at start" not in text


def test_the_closing_table_has_the_changed_encoder_before_training(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    scores = {"scores_before": {"a/x": 40.0}, "scores_at_start": {"a/x": 33.5}, "scores": {"a/x": 61.25}}
    closing_table(RESULTS | scores, tmp_path, None, console)
    heading, row = (line for line in console.file.getvalue().splitlines() if "at start" in line or "a/x" in line)
    assert re.findall(r"before|at start|after|change", heading) == ["before", "at start", "after", "change"]
    assert re.findall(r"[+\d.]+", row) == ["40.00", "33.50", "61.25", "+21.25"]


def test_tfidf_baselines_are_a_column_of_the_table():
    after = {"pydocs/cosine/mrr": 61.25, "pydocs/cosine/recall@10": 90.0, "stsb/cosine/spearman": 70.0}
    text = shown(scores_table(after, after, {"pydocs/tfidf/mrr": 68.5, "pydocs/tfidf/recall@10": 89.25}))
    rows = {line.split()[1]: line for line in text.splitlines() if "/cosine/" in line}
    assert "TF-IDF" in text
    assert ["68.50" in rows[name] for name in after] == [True, False, False]
    assert "89.25" in rows["pydocs/cosine/recall@10"]
    assert "tfidf" not in text


def test_changes_of_the_ranking_are_shown_with_examples(tmp_path):
    example = {"query": "Return the mean.", "before": "Sum of\n\nall rows.", "after": "Mean " * 60, "right": "after"}
    changes = {"queries": 500, "correct_before": 300, "gained": 50, "lost": 21, "examples": [example]}
    console = Console(file=io.StringIO(), width=80)
    closing_table(RESULTS | {"changes": {"pydocs": changes}}, tmp_path, None, console)
    text = console.file.getvalue()
    line = next(line for line in text.splitlines() if line.startswith("pydocs: "))
    assert re.findall(r"\d+", line) == ["300", "500", "329", "50", "21"]
    assert "  Return the mean.\n    before wrong  Sum of all rows.\n    after  right  Mean Mean" in text
    assert max(map(len, text.partition(line)[2].splitlines()[1:5])) < 130


def test_examples_show_the_beginning_of_long_queries_and_of_texts_without_blanks(tmp_path):
    example = {"query": "why " * 300, "before": "退货政策是什么" * 40, "after": "yes", "right": "before"}
    changes = {"queries": 500, "correct_before": 300, "gained": 50, "lost": 21, "examples": [example]}
    console = Console(file=io.StringIO(), width=80)
    closing_table(RESULTS | {"changes": {"pydocs": changes}}, tmp_path, None, console)
    query, before, _ = console.file.getvalue().partition("pydocs: ")[2].splitlines()[2:5]
    assert query == f"  {'why ' * 25}..."
    assert before == f"    before right  {('退货政策是什么' * 40)[:100]} ..."


def test_without_earlier_scores_and_baselines_the_table_has_two_columns():
    text = shown(scores_table({}, {"a/x": 1.0}))
    assert "before" not in text
    assert "baseline" not in text
    assert "1.00" in text


def test_the_closing_table_works_without_a_terminal(tmp_path):
    console = Console(file=io.StringIO(), width=120)
    closing_table(RESULTS, tmp_path, "Try [this] next.\n", console)
    text = console.file.getvalue()
    assert text.endswith("\nTry [this] next.\n")
    assert "61.25" in text
    assert "200 steps" in text
    assert "0:00:02" in text
    assert str(tmp_path) in text


def closing(tmp_path, **changed):
    console = Console(file=io.StringIO(), width=80)
    closing_table({**RESULTS, **changed}, tmp_path, None, console)
    return console.file.getvalue()


def test_the_closing_lines_warn_of_tasks_with_texts_of_the_training_data(tmp_path):
    counts = {"faq": (113, 113), "few": (1_000, 10), "fewer": (1_000, 9), "none": (0, 0)}
    overlap = {task: {"checked": checked, "found": found} for task, (checked, found) in counts.items()}
    [first, second] = [line for line in closing(tmp_path, overlap=overlap).splitlines() if "training" in line]
    assert re.search(r"\b113 of 113 .*\bfaq\b", first)
    assert re.search(r"\b10 of 1,000 .*\bfew\b", second)


def test_of_many_scores_the_averages_and_the_monitored_one_are_shown(tmp_path):
    scores = {f"sts{n}/all/{metric}": 50.0 + n for n in range(60) for metric in ("pearson", "spearman")}
    scores |= {"stsb-dev/cosine/spearman": 71.5, "sts-avg7/all/spearman": 66.6}
    recipe = {"monitor": "stsb-dev/cosine/spearman", "monitor_mode": None}
    given = {"scores": scores, "averages": {"sts-avg7/all/spearman": ["sts1/all/spearman"]}, "recipe": recipe}
    text = closing(tmp_path, **given, scores_before={"stsb-dev/cosine/spearman": 72.0}, baselines={})
    assert [line.split()[1] for line in text.splitlines() if "/" in line and "│" in line] == [
        "sts-avg7/all/spearman",
        "stsb-dev/cosine/spearman",
    ]
    assert re.search(r"\b120 .*results\.json", text)


def test_the_verdict_and_its_suggestions_follow_the_table(tmp_path):
    verdict = {
        "sentence": "Worse: nDCG@10 of [faq] 42.1 -> 40.0. Keep what you had.",
        "suggestions": ["Half [the] rate."],
    }
    lines = closing(tmp_path, verdict=verdict).splitlines()
    assert lines[lines.index(verdict["sentence"]) + 2] == "  Half [the] rate."
    lines = closing(tmp_path, verdict=verdict | {"suggestions": []}).splitlines()
    assert "200 steps" in lines[lines.index(verdict["sentence"]) + 1]


def test_a_curve_is_drawn_from_a_run(tmp_path):
    toy.train(tmp_path)
    picture = tmp_path / "curve.png"
    draw_curve(tmp_path / "metrics.csv", picture, monitor=toy.SCORE, against=Reference(), title="toy")
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20])[0] > 1500


def texts_of(picture):
    return [text.text for text in ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text")]


def test_each_loss_has_a_panel_and_the_monitored_score_its_interval_start_and_best_step(tmp_path):
    logger = MetricsCSV(tmp_path)
    for step in (10, 20, 30):
        logger.log_metrics({"train/loss": 9.0 / step, "train/mlm": 2.0, "train/lr": 1e-3}, step=step)
        logger.log_metrics({"z/cosine/mrr": 50.0 + step, "stsb-dev/cosine/spearman": 6.0}, step=step)
    baselines = {"z/tfidf/mrr": 45.0, "y/tfidf/mrr": 1.0}
    against = Reference(20, {}, {"z/cosine/mrr": [68.0, 73.5]}, {"z/cosine/mrr": 44.0}, baselines)
    figure = curve_figure(read_rows(tmp_path / "metrics.csv"), "z/cosine/mrr", against, "@ink $x$")
    picture = draw([figure])["curve"]
    shown = [text for text in texts_of(picture) if not re.fullmatch(r"[\d.,]+", text)]
    shown = [", ".join(NUMBER.findall(text)) if re.match("best|before", text) else text for text in shown]
    assert sorted(shown) == sorted(
        [
            "@ink $x$",
            "z/cosine/mrr",
            "20, 70.00, 95, 68.00, 73.50",
            "44.00",
            "TF-IDF 45.00",
            "stsb-dev/cosine/spearman",
            "train/loss",
            "train/mlm",
            "learning rate",
        ]
    )


def test_ticks_of_the_step_axis_are_integers(tmp_path):
    logger = MetricsCSV(tmp_path)
    for step in (1, 2, 3):
        logger.log_metrics({"train/loss": 40.0 - 10 * step}, step=step)
    texts = texts_of(draw([curve_figure(read_rows(tmp_path / "metrics.csv"), None, Reference(), "toy")])["curve"])
    assert {"1", "2", "3"} <= set(texts)
    assert not [text for text in texts if "." in text]


def test_a_run_evaluated_only_at_start_and_end_has_a_curve_with_both(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"z/cosine/mrr": 44.0, "z-dev/cosine/pearson": 4.0, "z-dev/cosine/spearman": 5.0}, step=0)
    logger.log_metrics({"train/loss": 1.0}, step=30)
    final = {"z/cosine/mrr": 70.0, "z-dev/cosine/spearman": 6.0, "sts12/cosine/spearman": 50.0}
    against = Reference(30, final, {"z-dev/cosine/spearman": [5.5, 6.5]}, {"z-dev/cosine/spearman": 5.0})
    figure = curve_figure(read_rows(tmp_path / "metrics.csv"), None, against, "toy")
    drawn = json.dumps(figure.picture_panels[0].to_dict())
    for before, after in ((44.0, 70.0), (5.0, 6.0)):
        assert f'[{{"step": 0.0, "value": {before}}}, {{"step": 30.0, "value": {after}}}]' in drawn
    shown = texts_of(draw([figure])["curve"])
    assert "z-dev/cosine/spearman" in shown
    assert ["30", "6.00", "95", "5.50", "6.50"] in map(NUMBER.findall, shown)


def test_a_final_score_neither_moves_logged_values_nor_starts_a_curve():
    logged = {"a/b/c": ([0.0, 20.0, 40.0], [50.0, 60.0, 55.0]), "d/e/perplexity": ([0.0], [90.0])}
    final = {"a/b/c": 61.0, "d/e/perplexity": math.inf, "new/b/c": 1.0}
    assert add_scores(logged, 20.0, final) == logged
    assert add_scores(logged, 30.0, final)["a/b/c"] == ([0.0, 20.0, 30.0, 40.0], [50.0, 60.0, 61.0, 55.0])


def test_scores_during_training_precede_scores_of_start_and_end():
    line, ends = ([0.0, 20.0, 40.0], [1.0, 2.0, 3.0]), ([0.0, 40.0], [1.0, 3.0])
    while_training = [f"stsb-dev/{protocol}" for protocol in ("cosine/spearman", "max/spearman", "cosine/pearson")]
    at_the_ends = [f"{task}/cosine/{metric}" for metric in ("spearman", "pearson") for task in ("sickr", "sts12")]
    lines = dict.fromkeys(while_training, line) | dict.fromkeys(at_the_ends, ends) | {"mr/x/accuracy": ([0.0], [1.0])}
    names = score_names([{name: "1" for name in lines}], "sts12/cosine/spearman")
    assert names[:4] == ["sts12/cosine/spearman", *while_training]  # scores for the choice first
    run = Curves("", "", lines, {})
    assert others_of(run, names) == [*while_training, "sickr/cosine/spearman", "sickr/cosine/pearson"]
    late = Curves("", "", lines | {"sts12/cosine/pearson": line, "stsb-dev/cosine/pearson": ends}, {})
    assert others_of(late, names)[:3] == [*while_training[:2], "sts12/cosine/pearson"]


@pytest.mark.rotates
@pytest.mark.parametrize("title", [r"on tiny: $\frac$", "on tiny: لغة 文", "a\x00b \x1b[31m", ""])
def test_any_name_of_a_folder_is_a_title(title, tmp_path):
    (tmp_path / "metrics.csv").write_text("step,x/perplexity\n0,5000\n1,30\n", encoding="utf-8")
    draw_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", monitor=None, against=Reference(), title=title)
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_a_run_without_rows_still_gets_a_picture(tmp_path):
    (tmp_path / "metrics.csv").write_text("step\n")
    assert any(texts_of(draw([curve_figure([], None, Reference(), "")])["curve"]))
    draw_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", monitor=None, against=Reference(), title="")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_losses_and_scores_are_sorted_with_the_monitored_score_first(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/loss": 1.0, "train/mlm": 2.0, "train/lr": 3.0, "time/elapsed_s": 1.0}, step=1)
    logger.log_metrics({"z/cosine/spearman": 5.0, "stsb-dev/cosine/spearman": 6.0, "train/loss": 0.5}, step=2)
    rows = read_rows(tmp_path / "metrics.csv")
    assert loss_names(rows) == ["train/loss", "train/mlm"]
    assert score_names(rows, "z/cosine/spearman") == ["z/cosine/spearman", "stsb-dev/cosine/spearman"]
