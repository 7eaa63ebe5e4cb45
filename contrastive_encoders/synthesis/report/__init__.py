"""Reports on generated datasets."""
