"""Sources of training texts: files, data sets of the hub, docstrings."""
