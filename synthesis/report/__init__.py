"""What lies beside a data set for a person."""
