"""Training runs: `composition`, `compose`, `resolve`, `checks`, `prepare`, `fit`, and `finish`, in this order."""
