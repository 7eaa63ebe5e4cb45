"""Data module of pairs from the docstrings of installed packages: the summary line and the rest of each docstring."""

from collections.abc import Iterator, Sequence
from typing import Any

from contrastive_encoders.core import InputError, Prompted, RetrievalData
from contrastive_encoders.datamodules.data_configs import DataConfig, DocstringPairDataConfig
from contrastive_encoders.datamodules.row_datamodules import TripletRows
from contrastive_encoders.datamodules.sources.pydocs import PydocsSource
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.datamodules.store.tokenization import WholeRows


class PairRows:
    """Adapter that presents pairs to the token store as rows with two texts each."""

    width = 2

    def __init__(self, source: PydocsSource) -> None:
        self.pairs, self.manifest, self.min_words = source.pairs, source.manifest, source.min_words
        self.fingerprint = lambda: source.fingerprint() | {"kind": "pydocs_pairs"}

    def __iter__(self) -> Iterator[Record]:
        """Yield the pairs in the order of the modules.

        Raises:
            InputError: There are no pairs.
        """
        number = 0
        for number, pair in enumerate(self.pairs(), 1):
            yield Record(pair, None, f"pair {number} of the installed docstrings")
        if not number:
            raise InputError(
                key="data.min_words",
                value=self.min_words,
                expected="a smaller number, because no module with that many words has a docstring with both a summary "
                "and further text",
            )


class PydocsPairs(TripletRows):
    """Data module of pairs from the docstrings of the installed Python packages, except for docstrings that the
    retrieval task uses.
    """

    settings: DocstringPairDataConfig
    kind = QA

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.docstrings = PydocsSource(
            self.cache, self.settings.held_out_every, self.settings.held_out_part, self.settings.min_words
        )

    def source(self) -> PairRows:
        return PairRows(self.docstrings)

    def tokenization(self, tokenizer: Any) -> WholeRows:
        return WholeRows(tokenizer)

    def held_out(self) -> Sequence[RetrievalData]:
        query, document = self.task_prompts()
        return [
            task._replace(
                queries=Prompted(task.queries, query, "query"), documents=Prompted(task.documents, document, "document")
            )
            for task in self.docstrings.held_out()
        ]
