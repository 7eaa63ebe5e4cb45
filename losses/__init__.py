"""Losses as functions of tensors, exact on one process and on many."""
