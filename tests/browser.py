"""A page in Chromium, used as a person would: pointer, keyboard, both colour schemes, wide and narrow."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def opened(path: Path, *, width: int = 1400, dark: bool = False) -> Iterator:
    """The page with every figure drawn; at the end it has said nothing on its console and asked for no network."""
    from playwright.sync_api import sync_playwright

    said, asked = list[str](), list[str]()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        page.set_default_timeout(15_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(error.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("report.drawAll()")
        yield page
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
