"""Sharded data sets on disk."""
