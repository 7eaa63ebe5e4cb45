"""What happens around a fit: compose, check, prepare, fit, leave."""
