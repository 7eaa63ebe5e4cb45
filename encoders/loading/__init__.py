"""Loading of backbones, exported folders, and other encoders."""
