"""Sampling of training examples: order, spans, masks, mixtures, and held-out rows."""
