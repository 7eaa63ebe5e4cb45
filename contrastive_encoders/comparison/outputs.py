"""Names of the files that a comparison, a race (several recipes trained alike) or a sweep writes."""

from contrastive_encoders.io.output_directory import PREFIX

PAGE, MARKDOWN, NUMBERS = "report.html", "report.md", "comparison.json"
LATEX, CSV = "table.tex", "table.csv"
REFUSED = f"{PREFIX}-refused.json"  # in the directory of a run whose settings the training refused
CHOOSING, CHOSEN = "choosing", "chosen.json"  # runs that choose a key of each arm, and what they came to
SWEEP = "sweep.json"  # values of the trials of a sweep
COMPARISON = "comparison"  # kind of output
ENTRIES = (
    *(PAGE, MARKDOWN, NUMBERS, LATEX, CSV, "pictures"),
    *("race.json", "pilots", "runs", "runs.jsonl"),
    *("made", CHOOSING, CHOSEN, "encoder"),
    *(SWEEP, "trials.jsonl", COMPARISON),
)
