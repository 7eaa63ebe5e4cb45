"""What every package does with files: read rows, write whole, claim a folder, say what is in it."""
