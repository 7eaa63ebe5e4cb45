"""Recipes, one per file."""
