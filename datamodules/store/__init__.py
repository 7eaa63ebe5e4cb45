"""The token store: tokenization, memory-mapped ids and their statistics."""
