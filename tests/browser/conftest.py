"""A real Chromium, and the libraries that draw Mermaid and DOT in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from places import PICTURES
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or the one that the variable CHROMIUM names."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert path, "these tests need Chromium: apt-get install chromium, or set CHROMIUM"
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield launched
        launched.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A page that asks nothing of the network, in light and in dark; what goes wrong in it fails the test."""
    context = browser.new_context(
        color_scheme=request.param, viewport={"width": 1200, "height": 900}, offline=True
    )
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}") or dialog.dismiss())
    opened.scheme = request.param  # type: ignore[attr-defined]
    yield opened
    context.close()
    assert not problems
