"""Input texts of a synthesis."""
