"""What all tests share: the mark of the tests that drive a browser (others: pyproject.toml)."""

from pathlib import Path

import pytest

from tools.chromium import find_chromium, why_none

BROWSER = Path(__file__).resolve().parent / "browser"


def pytest_collection_modifyitems(items):
    """Mark what lies in tests/browser, and skip it, with the reason, without a Chromium."""
    for item in items:
        if not item.path.is_relative_to(BROWSER):
            continue
        item.add_marker("browser")
        if find_chromium() is None:
            item.add_marker(pytest.mark.skip(reason=why_none()))
