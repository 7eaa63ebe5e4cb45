"""The token store: tokenization, memory-mapped token ids, and their statistics."""
