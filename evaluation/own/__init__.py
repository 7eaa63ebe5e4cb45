"""A user's own evaluation: what the words of ``tasks`` mean, and how files become tasks like any other."""
