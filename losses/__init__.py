"""Losses as functions of tensors, whose values do not depend on the number of processes."""
