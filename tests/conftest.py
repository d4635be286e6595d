"""What all tests share: the marks that go by place or by trained model (others: pyproject.toml)."""

import re
from pathlib import Path

import pytest

from tools.chromium import find_chromium, why_none

BROWSER = Path(__file__).resolve().parent / "browser"


def another_seed(params: dict) -> bool:
    """True where a test is about a trained model that is not the first of its kind."""
    return any(isinstance(v, str) and re.search(r"-seed[1-9]\d*$", v) for v in params.values())


def pytest_collection_modifyitems(items):
    """Mark what lies in tests/browser, and skip it, with the reason, without a Chromium. What is
    said of the first seed of a model is asked of its other seeds by the full suite only."""
    for item in items:
        if hasattr(item, "callspec") and another_seed(item.callspec.params):
            item.add_marker("slow")
        if not item.path.is_relative_to(BROWSER):
            continue
        item.add_marker("browser")
        if find_chromium() is None:
            item.add_marker(pytest.mark.skip(reason=why_none()))
