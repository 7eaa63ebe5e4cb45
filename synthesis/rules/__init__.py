"""What is kept of that which was written."""
