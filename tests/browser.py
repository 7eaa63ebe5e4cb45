"""A page in Chromium, used as a person would: pointer, keyboard, both color schemes, wide and narrow."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)


def needs_browser(test):
    """Mark a test that needs a browser; it is skipped with a message if Chromium or its driver is missing."""
    missing = "" if CHROMIUM else "no Chromium: apt-get install chromium"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        missing = "no playwright: pip install playwright"
    return pytest.mark.browser(pytest.mark.skipif(bool(missing), reason=missing)(test))


_begun = list[Any]()  # the driver and the browser each cost a second, so the tests of a module share them


def close() -> None:
    """Close the browser at the end of a module: other tests fork, and a fork cannot use a browser that it half owns."""
    while _begun:
        one = _begun.pop()
        (one.close if hasattr(one, "close") else one.stop)()


def _browser() -> Any:
    from playwright.sync_api import sync_playwright

    if not _begun:
        _begun.append(sync_playwright().start())
        _begun.append(_begun[0].chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]))
    return _begun[1]


@contextmanager
def opened(path: Path, *, width: int = 1400, dark: bool = False) -> Iterator:
    """Open the page with every figure drawn. At the end, its console is empty and it has requested no network."""
    said, asked = list[str](), list[str]()
    page = _browser().new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    try:
        page.set_default_timeout(15_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(error.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("report.drawAll()")
        yield page
    finally:
        page.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
