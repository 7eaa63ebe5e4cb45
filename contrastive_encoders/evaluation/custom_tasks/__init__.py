"""Evaluation tasks from the user's own files."""
