"""Figure of the positions of anchors and positives in the documents of a batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from contrastive_encoders.reports.figure import LINE, SERIES

if TYPE_CHECKING:
    import altair as alt

MAX_DOCUMENTS = 24  # of a batch in the figure
ROLES = ("anchor", "positive")
ROW = 26  # pixels of a document


class SpanLayout(NamedTuple):
    row: int
    tokens: int
    spans: list[tuple[str, int, int]]  # role, start, tokens


def span_panel(batch: Sequence[SpanLayout]) -> "alt.TopLevelMixin":
    """Return a chart of the span positions, with one row for each document of a batch."""
    import altair as alt

    spans = [
        {
            "document": f"document {document.row}",
            "role": role,
            "from": start,
            "to": start + tokens,
            "lane": 0 if role == ROLES[0] else 1,
        }
        for document in batch[:MAX_DOCUMENTS]
        for role, start, tokens in document.spans
    ]
    documents = [{"document": f"document {one.row}", "from": 0, "to": one.tokens} for one in batch[:MAX_DOCUMENTS]]
    rows = alt.Chart().encode(
        x=alt.X("from:Q", title="token of the document", axis=alt.Axis(grid=False)),
        x2="to:Q",
        y=alt.Y("document:N", title=None, sort=None),
    )
    bars = rows.properties(data={"values": spans}).mark_bar(height=8, opacity=0.75, cornerRadius=2)
    scale = alt.Scale(domain=list(ROLES), range=SERIES[: len(ROLES)])
    more = f", the first {MAX_DOCUMENTS} of {len(batch)} documents" if len(batch) > MAX_DOCUMENTS else ""
    return alt.layer(
        rows.properties(data={"values": documents}).mark_rule(color=LINE, strokeWidth=3),
        bars.encode(
            color=alt.Color("role:N", legend=alt.Legend(orient="top", title=None), scale=scale),
            yOffset=alt.YOffset("lane:N", scale=alt.Scale(range=[0, ROW])),
        ),
    ).properties(title=f"Spans of the first batch{more}", height={"step": ROW, "for": "position"})
