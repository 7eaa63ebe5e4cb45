"""Recipes, one file each."""
