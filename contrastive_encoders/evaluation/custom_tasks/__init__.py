"""Evaluation tasks that are defined by a user's files."""
