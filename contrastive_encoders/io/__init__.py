"""Reading and writing of files: rows and records, local or remote files, archives, checkpoints, and output folders."""
