"""Export of trained encoders to other libraries."""
