"""Questions about passages of documents, written by a language model."""
