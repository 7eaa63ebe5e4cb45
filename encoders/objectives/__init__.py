"""Training objectives: one LightningModule per file."""
