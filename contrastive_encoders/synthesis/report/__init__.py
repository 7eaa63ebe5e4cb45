"""Reports on a dataset."""
