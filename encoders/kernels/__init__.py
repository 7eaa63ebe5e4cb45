"""Efficient computation of models: chunks, unpadded attention, compilation, and reduced precision."""
