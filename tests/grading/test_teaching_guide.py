"""The guide for teachers and the rules for assistants say what they should, for every chapter."""

import re

import pytest

from grading.__main__ import COMMANDS
from grading.course_notebook import ROOT

STEMS = sorted(path.stem for path in (ROOT / "sources" / "lessons").glob("*.py"))
GUIDE = (ROOT / "docs" / "teaching.md").read_text()
ASSISTANTS = (ROOT / "AGENTS.md").read_text()


def questions(guide, chapter):
    """The numbered questions below the heading of a chapter."""
    found = re.search(rf"^## {chapter} .*?$(.*?)(?=^## |\Z)", guide, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\d+\. (.+?)(?=^\d+\. |\Z)", found[1], re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("stem", STEMS)
def test_every_chapter_has_questions_to_talk_about(stem):
    asked = questions(GUIDE, stem[:2])
    assert len(asked) >= 4, stem
    assert all("?" in text or "Draw" in text or "Name" in text for text in asked), stem
    assert sum("Listen for" in text for text in asked) >= 1, stem


def test_a_guide_without_a_chapter_is_noticed():
    with pytest.raises(TypeError):
        questions("## 00 Start\n1. Why?\n", "01")
    assert questions("## 00 Start\n1. Why?\n2. How?\n## 01 Next\n1. Who?\n", "00") == [
        "Why?\n", "How?\n"
    ]  # fmt: skip


@pytest.mark.parametrize("text", [GUIDE, ASSISTANTS, (ROOT / "grading" / "README.md").read_text()])
def test_commands_and_files_that_are_named_exist(text):
    for command in re.findall(r"course\.py grade ([a-z]+)\b", text):
        assert command in COMMANDS or command == "exercises", command
    for path in re.findall(r"`((?:docs|grading|sources|solutions|tools|exercises)/[^`\s]*)`", text):
        assert (ROOT / path).exists(), path


def test_assistants_are_told_to_give_hints_and_where_not_to_look():
    for words in ("hints, not solutions", "Do not write the solution", 'hint("01.1")', "solutions/",
                  "grading/references/"):  # fmt: skip
        assert words in ASSISTANTS
