"""Questions that a language model writes for passages of documents."""
