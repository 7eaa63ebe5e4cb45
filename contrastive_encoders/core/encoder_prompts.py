"""Prompts of a sentence encoder: texts that are prepended to other texts, such as ``query: ``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from contrastive_encoders.core.results import PromptsRecord

Role = Literal["query", "document"]
NAMES: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


@dataclass(frozen=True)
class EncoderPrompts:
    """The prompts in ``config_sentence_transformers.json``.

    Args:
        named: name -> prompt.
        default_name: name of the prompt of texts without a role; None: they have no prompt.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @classmethod
    def same(cls, prompt: str) -> "EncoderPrompts":
        """Return prompts that use one prompt for all texts."""
        return cls({"default": prompt, "query": prompt, "document": prompt}, "default") if prompt else cls()

    @property
    def default(self) -> str:
        """The prompt of sentence-transformers' ``encode``."""
        return self.named.get(self.default_name or "") or ""

    @property
    def query(self) -> str:
        """The prompt of sentence-transformers' ``encode_query``."""
        return self.of("query")

    @property
    def document(self) -> str:
        """The prompt of sentence-transformers' ``encode_document``; if it is empty, ``passage`` or ``corpus``."""
        return self.of("document")

    def of(self, role: Role | None) -> str:
        """Return the prompt for texts with this role; None selects texts without a role."""
        if role is None:
            return self.default
        return next((prompt for name in NAMES[role] if (prompt := self.named.get(name))), "")

    def to_json(self) -> PromptsRecord | None:
        """Return the record from which ``EncoderPrompts(**record)`` can be created; None if there are no prompts."""
        return PromptsRecord(named=dict(self.named), default_name=self.default_name) if self else None

    def __bool__(self) -> bool:
        return any(self.named.values())


NO_PROMPTS = EncoderPrompts()
