"""Generate datasets with language models: prompts, self-debiased decoding, shards, and reports."""
