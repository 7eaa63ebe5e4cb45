"""Files that a command writes: atomic replacement, ownership of folders, manifests, results and checkpoints."""
