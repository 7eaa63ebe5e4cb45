"""Data sets made by a language model: prompts, decoding with self-debiasing, shards, and the report beside them."""
