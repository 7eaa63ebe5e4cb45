"""Reports on a data set."""
