"""A browser, a page that remembers every complaint, and a folder for pictures."""

import pytest
from lab_driver import FLAGS, PATIENCE_MS

from tools.chromium import find_chromium


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=find_chromium(), args=list(FLAGS), timeout=PATIENCE_MS
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def new_page(browser):
    """new_page(width, height) -> a page whose `complaints` collects errors of any kind."""
    contexts = []

    def make(width: int = 1400, height: int = 1000):
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda message: _keep(page, message))
        return page

    yield make
    for context in contexts:
        context.close()


def _keep(page, message) -> None:
    if message.type == "error":
        page.complaints.append(f"{message.text} ({message.location.get('url', '')})")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Where screenshots go; the path is printed at the end of a test that made some."""
    return tmp_path_factory.mktemp("screenshots")
