"""Prompts of a run: ``data.prompts`` if set, else the prompts of the backbone.

Training texts, scores, and the exported directory use the same ones.
"""

import json
import logging
import shlex
from typing import Any

from contrastive_encoders.core import NO_PROMPTS, EncoderPrompts
from contrastive_encoders.datamodules.sources.records import list_setting
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.training.build import data_modules

ROLE_WORDS = (("query", "question"), ("document", "doc", "passage", "corpus"))  # in names such as search_query

log = logging.getLogger(__name__)


def settle_prompts(model: Any, data: Any) -> None:
    """Pass the prompts of each text column to the objective, and make them the encoder's prompts. If all data use the
    prompts of the backbone, the encoder keeps those. This opens the token stores of the data.

    The first text of a row is a query, the second a document; the text of a one-text row is both. If the data sources
    of a mixture have different prompts for a role, this role has no prompt in the encoder.
    """
    if not isinstance(model, Objective):
        return
    parts, backbone_prompts = data_modules(data), model.encoder.prompts
    rows = [part.prompts_of(part.store.width) for part in parts.values()]
    columns = [{row[min(place, len(row) - 1)] for row in rows} for place in range(max(map(len, rows)))]
    model.set_prompts(columns)
    inheriting = [f"{place}.prompts={{}}" for place, part in parts.items() if part.inherits_prompts]
    if len(inheriting) < len(parts):
        by_role = {"query": columns[0], "document": columns[:2][-1]}
        unique = {role: next(iter(prompts)) if len(prompts) == 1 else "" for role, prompts in by_role.items()}
        model.encoder.prompts = EncoderPrompts(unique) if any(unique.values()) else NO_PROMPTS
    for part in parts.values():
        part.encoder_prompts = model.encoder.prompts
    for place, part in parts.items():
        has_roles = bool(backbone_prompts.query or backbone_prompts.document)
        if part.inherits_prompts and part.has_roles and backbone_prompts and not has_roles:
            _warn_of_missing_roles(backbone_prompts, f"{place}.prompts", part.store.width)
    if backbone_prompts and inheriting:
        same = len(inheriting) == len(parts)
        where = ", from the backbone" if same else " in evaluation and export, because the parts differ"
        used = f"{_described(model.encoder.prompts)}{where}; set {' '.join(inheriting)} to train without them"
        model.resolved_settings = {**model.resolved_settings, "data.prompts": used}


def _warn_of_missing_roles(prompts: EncoderPrompts, key: str, width: int) -> None:
    """Warn that none of the backbone's prompts is named query or document, although the rows contain queries and
    documents.
    """
    named = {name: text for name, text in prompts.named.items() if text}
    query, document = (
        next((text for name, text in named.items() if any(word in name.lower() for word in words)), "")
        for words in ROLE_WORDS
    )
    if query or document:
        word = list_setting(key, [query, *[document] * (min(width, 3) - 1)])
    else:
        word = shlex.quote(f"{key}={prompts.default or next(iter(named.values()))}")
    log.warning(
        "The backbone has prompts (%s), but none is named query or document, so queries and documents get no prompt. "
        "To use the backbone's prompts, set %s.",
        *(", ".join(named), word),
    )


def _described(prompts: EncoderPrompts) -> str:
    texts = {"queries": prompts.query, "documents": prompts.document, "other texts": prompts.default}
    quoted = {name: json.dumps(text, ensure_ascii=False) for name, text in texts.items() if text}
    return ", ".join(f"{name} {text}" for name, text in quoted.items()) or "none"
