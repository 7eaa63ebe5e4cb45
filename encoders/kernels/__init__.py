"""Computation: chunks, unpadded attention, compilation, and reduced precision."""
