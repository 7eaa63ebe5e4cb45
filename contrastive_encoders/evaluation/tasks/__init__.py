"""Evaluation tasks, one file per type."""
