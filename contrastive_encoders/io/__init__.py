"""Reading of files and of their rows from a local path, an address, the Hub, or an archive."""
