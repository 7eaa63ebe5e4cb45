"""Commands of ``contrastive-encoders``, one module each, and their common entry point."""
