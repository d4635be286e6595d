"""Group leak: what is marked is what moves, at every setting.

What holds for each widget is asked of this one too.
"""

import pytest
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels import leak
from tinymodels.widgets.group_leak import RULES, SIZES, TOKENS, GroupLeak, leaked, look


@pytest.fixture
def widget():
    return GroupLeak()


def marked(marks, kind):
    return [t for t, mark in enumerate(marks) if mark["kind"] == kind]


@pytest.mark.parametrize("m", SIZES)
def test_only_started_groups_leak_and_each_view_says_so(m):
    for rule in RULES:
        for token in range(TOKENS):
            first = token // m * m
            should = list(range(first, token)) if rule == "started" else []
            assert leaked(m, rule, token) == should
            view = look(m, rule, token)
            assert view.number == str(len(should)) and f"token {token} " in view.unit
            marked = [
                t for t, mark in enumerate(view.chart["outputs"]) if mark["kind"] == "earlier"
            ]
            assert marked == should
            assert ("a leak." in view.lines[1]) == (rule == "started")
            changed = [
                t for t, mark in enumerate(view.chart["tokens"]) if mark["kind"] == "changed"
            ]
            assert changed == [token]


@pytest.mark.parametrize("m", SIZES)
def test_what_moves_later_is_what_may_read_the_group(m):
    for rule, visible in leak.RULES.items():
        for token in range(TOKENS):
            outputs = look(m, rule, token).chart["outputs"]
            for t in range(token, TOKENS):
                read = visible(t, m) > token // m or t == token and visible(t, m) > 0
                # A softmax over one entry is 1 whatever the query: only what is read moves it.
                if t == token and visible(t, m) == 1 and token // m > 0:
                    read = False
                if visible(t, m) > 1 or token // m == 0:
                    assert (outputs[t]["kind"] == "later") == read, (rule, token, t)


def test_groups_cover_the_text_and_the_last_may_be_open():
    for m in SIZES:
        groups = look(m, "complete", 3).chart["groups"]
        assert [g["at"] for g in groups[1:]] == [g["end"] for g in groups[:-1]]
        assert (groups[0]["at"], groups[-1]["end"]) == (0, 1)
        assert (groups[-1]["text"] == "open") == (TOKENS % m > 0)
