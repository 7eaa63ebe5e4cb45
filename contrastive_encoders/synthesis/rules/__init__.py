"""Filters and rules that accept or reject generated texts."""
