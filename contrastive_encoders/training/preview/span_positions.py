"""Positions of anchors and positives in their documents, for one batch and as a density over many."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

BINS = 50  # of a document, from its first token to its last
SHOWN = 24  # documents of a batch that are drawn
ROLES = ("anchor", "positive")
ROW = 26  # pixels of a document


class Document(NamedTuple):
    """``spans`` are (role, start, tokens); ``draws`` that this is of others by its row and pass."""

    row: int
    tokens: int
    spans: list[tuple[str, int, int]]


def coverage(documents: Sequence[Document], role: str) -> np.ndarray:
    """(BINS,) how often a token of each part of a document lies in a span of this role, per draw."""
    found = np.zeros(BINS)
    for document in documents:
        edges = np.linspace(0, document.tokens, BINS + 1)
        for kind, start, tokens in document.spans:
            if kind == role:
                inside = np.minimum(edges[1:], start + tokens) - np.maximum(edges[:-1], start)
                found += np.maximum(inside, 0) / np.diff(edges)
    return found / max(1, len(documents))


def span_panels(batch: Sequence[Document], draws: Sequence[Document]) -> list[dict[str, Any]]:
    """Return two panels: the spans of the documents of ``batch``, a row each, and their density over ``draws``."""
    if not draws:
        return []
    colour = {
        "field": "role",
        "type": "nominal",
        "legend": {"orient": "top", "title": None},
        "scale": {"domain": list(ROLES), "range": ["@c1", "@c2"]},
    }
    spans = [
        {
            "document": f"document {document.row}",
            "role": role,
            "from": start,
            "to": start + tokens,
            "lane": 0 if role == ROLES[0] else 1,
        }
        for document in batch[:SHOWN]
        for role, start, tokens in document.spans
    ]
    whole = [{"document": f"document {one.row}", "from": 0, "to": one.tokens} for one in batch[:SHOWN]]
    x = {"field": "from", "type": "quantitative", "title": "token of the document", "axis": {"grid": False}}
    y = {"field": "document", "type": "nominal", "title": None, "sort": None}
    more = f", the first {SHOWN} of {len(batch)} documents" if len(batch) > SHOWN else ""
    positions = {
        "title": f"Spans of the first batch{more}",
        "height": {"step": ROW, "for": "position"},
        "layer": [
            {
                "data": {"values": whole},
                "mark": {"type": "rule", "color": "@line", "strokeWidth": 3},
                "encoding": {"x": x, "x2": {"field": "to"}, "y": y},
            },
            {
                "data": {"values": spans},
                "mark": {"type": "bar", "height": 8, "opacity": 0.75, "cornerRadius": 2},
                "encoding": {
                    "x": x,
                    "x2": {"field": "to"},
                    "y": y,
                    "color": colour,
                    "yOffset": {"field": "lane", "type": "nominal", "scale": {"range": [0, ROW]}},
                },
            },
        ],
    }
    lines = [
        {"role": role, "at": (place + 0.5) / BINS, "share": float(value)}
        for role in ROLES
        for place, value in enumerate(coverage(draws, role))
    ]
    density = {
        "title": f"Spans over a token, by its position in the document; {len(draws):,} draws",
        "height": 220,
        "data": {"values": lines},
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "at",
                "type": "quantitative",
                "title": "place in the document",
                "axis": {"format": ".0%", "grid": False},
            },
            "y": {"field": "share", "type": "quantitative", "title": "spans over a token"},
            "color": colour,
            "strokeDash": {"field": "role", "type": "nominal", "legend": None},
        },
    }
    return [positions, density]
