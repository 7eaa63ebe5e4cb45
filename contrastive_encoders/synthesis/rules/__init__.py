"""Filters of written texts."""
