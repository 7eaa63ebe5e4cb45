"""Evaluation of any ``Embedder``, independent of how it was trained."""
