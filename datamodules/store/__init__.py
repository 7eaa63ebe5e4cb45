"""The token store: tokenisation, memory-mapped ids and their statistics."""
