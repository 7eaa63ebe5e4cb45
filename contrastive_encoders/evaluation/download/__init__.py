"""Evaluation data: download, conversion to tables, and integrity checks."""
