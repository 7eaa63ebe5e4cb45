"""Losses are functions of tensors: no model, no logger, no mode flags, and the same on one process as on many."""
