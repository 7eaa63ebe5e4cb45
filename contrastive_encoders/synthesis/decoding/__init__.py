"""Decoding of texts: generators, key-value caches, and sampling."""
