"""Train one sentence encoder: ``python train.py model=declutr data=openwebtext``."""

import sys

from contrastive_encoders.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
