"""A file for each recipe of a data set."""
