"""``python -m contrastive_encoders COMMAND``, as ``contrastive-encoders COMMAND``."""

from contrastive_encoders.cli.main import main

if __name__ == "__main__":
    main()
