"""From a trained encoder to a folder that other libraries load."""
