"""Compare training objectives, each over several runs."""
