"""Synthesis recipes, one per file."""
