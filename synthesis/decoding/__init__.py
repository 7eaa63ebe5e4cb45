"""Prompts to texts: a generator, its caches, and how tokens are drawn."""
