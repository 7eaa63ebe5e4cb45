"""The encoder to export and its metadata, loaded from a directory, a checkpoint, or the Hub."""

from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder_of
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.export.model_card import card_without_run, model_card
from contrastive_encoders.io.results import read_results


class Source(NamedTuple):
    """An encoder to export, and its metadata.

    Args:
        name: directory or hub id of the encoder itself.
        run: directory of the run that trained it, if there is one.
        readme: the README.md next to an encoder without a run.
    """

    encoder: SentenceEncoder
    name: str
    run: Path | None
    readme: str | None

    def card(self, library: str = "sentence-transformers", use: str | None = None) -> str:
        """Return the model card: the card of the run, the README of the encoder if it fits the format, or a new card.

        Args:
            library: name of the library that reads the exported format.
            use: usage example in Python; None: the example of sentence-transformers.
        """
        if self.run is not None:
            results = read_results(self.run / "results.json") | {"embeddings": self.encoder.embedding_info}
            results.pop("prompts", None)
            if (prompts := self.encoder.prompts.to_json()) is not None:
                results["prompts"] = prompts
            return model_card(results, use=use, library=library)
        if use is None and self.readme is not None:
            return self.readme
        return card_without_run(self.name, self.encoder.description, use=use, library=library)


def open_source(name: str, *, prompt: str | None, **settings: Any) -> Source:
    """Load an encoder to export.

    Args:
        name: directory, checkpoint, or hub id of the encoder.
        prompt: replaces all prompts of the encoder; "": no prompt.
        **settings: see `load_encoder`.

    Raises:
        InputError: the encoder does not exist, or it is of a kind that only another library can run.
    """
    encoder = load_encoder_of("run", name, "cpu", prompt=prompt, **settings)
    if not isinstance(encoder, SentenceEncoder):
        raise InputError(
            key="run",
            value=name,
            expected=f"a transformer encoder with a pooling, but {name} is {encoder.description['kind']} "
            f"({encoder.description['pooling']})",
        )
    run = Path(name) if (Path(name) / "results.json").is_file() else None
    folder = str(Path(name) / "encoder") if (Path(name) / "encoder" / "modules.json").is_file() else name
    card = Path(folder) / "README.md"
    readme = card.read_text(encoding="utf-8") if run is None and card.is_file() else None
    return Source(encoder, folder, run, readme)
