"""What a test's own embedder has beside ``embed``."""

import torch


class OnTheCPU:
    """Vectors of any length, and nothing to be set: a call's prompt, autocast and progress are not looked at."""

    normalize = False
    device = torch.device("cpu")
