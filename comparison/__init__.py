"""Objectives head to head: runs collected, tested and shown."""
