"""Statistics of scores: bootstrap intervals, paired tests, and verdicts."""
