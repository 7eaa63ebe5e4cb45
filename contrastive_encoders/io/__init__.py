"""Reading of files and of their rows, wherever they lie: local, at an address, on the hub, in an archive."""
