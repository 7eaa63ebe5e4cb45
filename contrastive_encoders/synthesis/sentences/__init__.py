"""Read and prepare the input texts of a synthesis."""
