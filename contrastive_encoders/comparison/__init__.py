"""Comparison of objectives over many runs."""
