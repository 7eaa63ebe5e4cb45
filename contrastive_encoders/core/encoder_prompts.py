"""Prompts of a sentence encoder: texts that are prepended to other texts, such as ``query: ``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from contrastive_encoders.core.results import PromptsRecord

Role = Literal["query", "document"]
NAMES: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


@dataclass(frozen=True)
class EncoderPrompts:
    """The prompts of an encoder, as stored in ``config_sentence_transformers.json``.

    Args:
        named: name -> prompt.
        default_name: name of the prompt of texts without a role; None: they have no prompt.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @classmethod
    def same(cls, prompt: str) -> "EncoderPrompts":
        """Return an `EncoderPrompts` that uses the same prompt for all texts."""
        return cls({"default": prompt, "query": prompt, "document": prompt}, "default") if prompt else cls()

    @property
    def default(self) -> str:
        """The prompt that sentence-transformers' ``encode`` prepends."""
        return self.named.get(self.default_name or "") or ""

    @property
    def query(self) -> str:
        """The prompt that sentence-transformers' ``encode_query`` prepends."""
        return self.for_role("query")

    @property
    def document(self) -> str:
        """The prompt for sentence-transformers' ``encode_document``: the first of the prompts ``document``,
        ``passage``, and ``corpus`` that is not empty.
        """
        return self.for_role("document")

    def for_role(self, role: Role | None) -> str:
        """Return the prompt for texts with the given role. If ``role`` is None, return the prompt for texts without a
        role.
        """
        if role is None:
            return self.default
        return next((prompt for name in NAMES[role] if (prompt := self.named.get(name))), "")

    def named_for_export(self) -> dict[str, str]:
        """Return all prompts by name, with those of the roles under the names ``query`` and ``document``, which
        sentence-transformers looks up first, even if they are empty.
        """
        return {**self.named} | {role: prompt for role in NAMES if (prompt := self.for_role(role))}

    def to_json(self) -> PromptsRecord | None:
        """Return the arguments of ``EncoderPrompts`` as a JSON record, or None if there are no prompts."""
        return PromptsRecord(named=dict(self.named), default_name=self.default_name) if self else None

    def __bool__(self) -> bool:
        return any(self.named.values())


NO_PROMPTS = EncoderPrompts()
