"""The site: ``make docs`` builds it from these pages, offline; a link that leads nowhere is an error."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from every_key import page  # noqa: E402

(HERE / "keys.md").write_text(page(), encoding="utf-8")

project = html_title = "Contrastive Encoders"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links to a heading as on GitHub
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "native"
