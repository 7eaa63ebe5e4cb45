"""Losses as functions of tensors, with the same values on one process as on several."""
