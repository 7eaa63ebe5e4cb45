"""What happens around a fit. ``from training import train, compose``: the same from Python, without a command line."""

from training.from_python import Trained, compose, train

__all__ = ["Trained", "compose", "train"]
