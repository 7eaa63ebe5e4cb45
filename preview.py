"""Show training batches: ``python -m preview data=text data.path=FILE``, with the keys of train.py."""

from cli.signals import heed_signals

if __name__ == "__main__":
    heed_signals()  # before imports that take a moment

from training.preview.command import main

if __name__ == "__main__":
    main()
