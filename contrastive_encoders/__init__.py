"""Train, evaluate, export, and compare contrastive sentence encoders."""
