"""Sampling of examples: order, spans, masks, mixtures and held-out rows."""
