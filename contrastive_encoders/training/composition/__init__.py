"""Composition of configs with Hydra: config store, overrides, checks of keys, and key descriptions."""
