"""Hard negative mining."""
