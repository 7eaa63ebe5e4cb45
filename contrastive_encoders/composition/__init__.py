"""Composition of configs: keys, overrides, Hydra's config store."""
