"""Scores any ``contracts.Embedder``; nothing here knows how the encoder was trained."""
