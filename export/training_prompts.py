"""Prompts of the training texts, under the names that sentence-transformers uses."""

from collections.abc import Iterator, Mapping
from typing import Any

from contracts import Results

ROLES = ("query", "document")  # encode_query, encode_document, or prompt_name=


def learnt_prompts(results: Results) -> dict[str, str]:
    """``{"query": "query: ", "document": "passage: "}``: what stood before the first text of a row, and before the
    second, where all data of the last stage agree on it; empty where nothing did.

    A single text is both. None is the default: plain texts are encoded as they are scored while training.
    """
    rows = [prompts for account in results["data"][-1:] for prompts in _rows(account)]
    found = {name: {prompts[min(place, len(prompts) - 1)] for prompts in rows} for place, name in enumerate(ROLES)}
    return {name: several.pop() for name, several in found.items() if len(several) == 1 and any(several)}


def _rows(account: Mapping[str, Any]) -> Iterator[list[str]]:
    for part in (account.get("parts") or {"": account}).values():
        yield (part.get("source") or {}).get("prompts") or [""]
