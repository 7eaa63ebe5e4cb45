"""Decoding: generators, key-value caches and sampling."""
