"""A page in Chromium, used as a person would: pointer, keyboard, both colour schemes, wide and narrow."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)


def needs_browser(test):
    """Marks a test, which is skipped with a word where there is no Chromium or no driver of it."""
    missing = "" if CHROMIUM else "no Chromium: apt-get install chromium"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        missing = "no playwright: pip install playwright"
    return pytest.mark.browser(pytest.mark.skipif(bool(missing), reason=missing)(test))


_begun = list[Any]()  # the driver and the browser: each costs a second, and the tests of a module share them


def close() -> None:
    """At the end of a module: other tests fork, and a fork has no use for a browser that is half its own."""
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
    """The page with every figure drawn; at the end it has said nothing on its console and asked for no network."""
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
