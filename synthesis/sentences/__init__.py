"""The texts that a data set is made for."""
