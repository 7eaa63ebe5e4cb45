"""Shared parts of all command lines: exit statuses, config checks, process groups, devices and signals."""
