"""Datasets written by language models: prompts, self-debiased decoding, shards, and reports."""
