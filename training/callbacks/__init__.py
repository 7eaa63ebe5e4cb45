"""What Lightning calls while it trains."""
