"""Sources of training texts: files, datasets of the Hugging Face Hub, and docstrings."""
