"""A data set on disk, written in pieces that appear whole."""
