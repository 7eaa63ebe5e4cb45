"""Sharded datasets on disk."""
