"""Methods that a test's own embedder has in addition to ``embed``."""

import torch


class OnTheCPU:
    """Embedder with embeddings of any norm and no settings: it ignores a call's prompt, autocast and progress."""

    normalize = False
    device = torch.device("cpu")
