"""Write and read sharded datasets on disk."""
