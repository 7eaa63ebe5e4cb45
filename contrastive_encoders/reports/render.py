"""Rendering of Vega figures in a separate process: the engine holds threads that would deadlock a fork.

Read from standard input: JSON, the colors of a picture by what a specification calls them, and a list of pairs of a
Vega-Lite specification and what to make of it: "vega", "svg", "png" and "pdf", or "library" alone. Written to standard
output: a list of the results, each a mapping by kind; PNG and PDF in base 64.
"""

import signal

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # of a whole group: the caller goes on with this, or ends it
        signal.signal(number, signal.SIG_IGN)

import base64
import json
import sys
from typing import Any

import vl_convert

SCALE = 2.0  # pixels of a PNG a unit of its figure
LIBRARY = "window.vegaEmbed = vegaEmbed;"


def render(spec: dict[str, Any], kinds: list[str], colors: dict[str, str]) -> dict[str, Any]:
    svg = vl_convert.vegalite_to_svg(spec) if {"svg", "png", "pdf"} & set(kinds) else ""
    for name, color in colors.items():
        svg = svg.replace(f'"{name}"', f'"{color}"')  # the whole value of an attribute, so no text of a user
    made = {
        "vega": lambda: vl_convert.vegalite_to_vega(spec),
        "svg": lambda: svg,
        "png": lambda: base64.b64encode(vl_convert.svg_to_png(svg, scale=SCALE)).decode(),
        "pdf": lambda: base64.b64encode(vl_convert.svg_to_pdf(svg)).decode(),
        "library": lambda: vl_convert.javascript_bundle(LIBRARY),
    }
    return {kind: made[kind]() for kind in kinds}


if __name__ == "__main__":
    colors, jobs = json.load(sys.stdin)
    json.dump([render(spec, kinds, colors) for spec, kinds in jobs], sys.stdout)
