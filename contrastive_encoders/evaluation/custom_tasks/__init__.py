"""Evaluation on the user's own files."""
