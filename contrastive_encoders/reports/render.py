"""Render Vega figures in a separate process, because the threads of the rendering engine would deadlock a forked
process.

Standard input is JSON: the fixed colors of a picture by their names in a specification, and a list of pairs of a
Vega-Lite specification and the kinds of output: "vega", "svg", "png", and "pdf", or only "library". Standard output is
a list of the results, each a mapping by kind, with PNG and PDF in base 64.
"""

import signal

if __name__ == "__main__":
    # These signals reach the entire process group: the caller ends this process or waits for it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

import base64
import json
import sys
from typing import Any

import vl_convert

SCALE = 2.0  # pixels of a PNG per unit of its figure
LIBRARY = "window.vegaEmbed = vegaEmbed;"


def render(spec: dict[str, Any], kinds: list[str], colors: dict[str, str]) -> dict[str, Any]:
    svg = vl_convert.vegalite_to_svg(spec) if {"svg", "png", "pdf"} & set(kinds) else ""
    for name, color in colors.items():
        svg = svg.replace(f'"{name}"', f'"{color}"')  # a complete attribute value, so that user text is not changed
    renderers = {
        "vega": lambda: vl_convert.vegalite_to_vega(spec),
        "svg": lambda: svg,
        "png": lambda: base64.b64encode(vl_convert.svg_to_png(svg, scale=SCALE)).decode(),
        "pdf": lambda: base64.b64encode(vl_convert.svg_to_pdf(svg)).decode(),
        "library": lambda: vl_convert.javascript_bundle(LIBRARY),
    }
    return {kind: renderers[kind]() for kind in kinds}


if __name__ == "__main__":
    colors, jobs = json.load(sys.stdin)
    json.dump([render(spec, kinds, colors) for spec, kinds in jobs], sys.stdout)
