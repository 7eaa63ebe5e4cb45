"""The encoder to be exported and its metadata, from any of its names."""

from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder


class Source(NamedTuple):
    """``card`` is the README.md that lies beside an encoder which is no run's."""

    encoder: SentenceEncoder
    name: str  # folder or hub id of the encoder itself
    run: Path | None
    card: str | None


def open_source(name: str, *, prompt: str | None, **settings: Any) -> Source:
    """``prompt`` takes the place of all prompts of the folder; "" means none. ``settings`` are those of `load_encoder`.

    Raises:
        InputError: there is no such encoder, or it is one that our code does not run itself.
    """
    encoder = load_encoder(name, prompt=prompt, device="cpu", **settings)
    if not isinstance(encoder, SentenceEncoder):
        raise InputError(
            f"run={name} is {encoder.description['kind']} ({encoder.description['pooling']}); wanted an encoder that "
            "is a transformer with a pooling. Such a model is used as it is, by the library that it was made with."
        )
    run = Path(name) if (Path(name) / "results.json").is_file() else None
    own = str(Path(name) / "encoder") if (Path(name) / "encoder" / "modules.json").is_file() else name
    card = Path(own) / "README.md"
    return Source(
        encoder,
        own,
        run,
        card.read_text(encoding="utf-8") if run is None and card.is_file() else None,
    )
