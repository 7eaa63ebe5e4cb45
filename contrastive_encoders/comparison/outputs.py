"""Names of the files that a comparison, a race (several recipes with one budget), or a sweep writes."""

from contrastive_encoders.io.output_directory import PREFIX

PAGE, MARKDOWN, NUMBERS = "report.html", "report.md", "comparison.json"
LATEX, CSV = "table.tex", "table.csv"
REFUSED_FILE = f"{PREFIX}-refused.json"  # in the directory of a run whose settings the training refused
SELECTION_RUNS, SELECTION_FILE = (
    "selection",
    "selected_hyperparameters.json",
)  # runs that select a key of each arm, and the file of their results
SWEEP = "sweep.json"  # values of the trials of a sweep
COMPARISON = "comparison"  # kind of output
ENTRIES = (
    *(PAGE, MARKDOWN, NUMBERS, LATEX, CSV, "pictures"),
    *("race.json", "pilots", "runs", "runs.jsonl"),
    *("data", SELECTION_RUNS, SELECTION_FILE, "encoder"),
    *(SWEEP, "trials.jsonl", COMPARISON),
)
