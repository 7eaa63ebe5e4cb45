"""Shared parts of all command lines: exit codes, config checks, process groups, devices, and signals."""
