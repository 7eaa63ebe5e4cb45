"""The tokenizer of a backbone, by name: a folder, the folder of a run, or an id of the hub."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from contracts import InputError


def load_tokenizer(name: str) -> Any:
    """InputError where there is none."""
    if (Path(name) / "checkpoints" / "best.ckpt").is_file():  # the folder of a finished run
        parts = [Path(name) / part for part in ("encoder", "generator")]
        name = str(next((part for part in parts if part.is_dir()), parts[0]))
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)  # left open, it asks at a prompt
    except (OSError, ValueError) as error:
        raise InputError(
            f"backbone={name}: no tokenizer could be loaded ({str(error).splitlines()[0]}). Pass a folder that "
            "transformers wrote, or an id of the hub that can be reached."
        ) from error
