"""Process management: signals, exit codes, process groups, child processes, and workers."""
