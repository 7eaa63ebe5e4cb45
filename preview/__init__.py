"""What a batch is, before a GPU-day is spent on it."""
