"""Positions of anchors and positives in the documents of a batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

SHOWN = 24  # documents of a batch that are drawn
ROLES = ("anchor", "positive")
ROW = 26  # pixels of a document


class Document(NamedTuple):
    row: int
    tokens: int
    spans: list[tuple[str, int, int]]  # role, start, tokens


def span_panel(batch: Sequence[Document]) -> dict[str, Any]:
    """Return a panel with the spans of the documents of a batch, a row for each document."""
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
    return {
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
