"""docs/glossary.md has every term that a lesson introduces in bold, once, in both languages."""

import re
from pathlib import Path

import nbformat
import pytest

from tools.site.chapters import STEMS

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Bold words that stress something and introduce nothing.
STRESSED = {
    "one", "first", "even", "at the story", "the answer", "neither does", "local", "contextual",
    "lamp", "park", "the first group", "window only", "assumption", "one small row",
    "all", "best", "newest", "random", "select", "both", "and nothing else", "assume",
    "everything", "one shape",
}  # fmt: skip
NAMED_BEFORE = {"key", "value"}  # chapter 00 only says that they are kept; 01 explains them
TWO_MEANINGS = re.compile(r"\([a-z]")  # "head (of the model)": a bold "head" may be another one
LONGEST = 3  # words: what is longer is a sentence or a formula


def rows() -> list[list[str]]:
    """The cells of each line of the table."""
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("| **")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cell: str) -> set[str]:
    """All names of a term: its own without what stands in brackets, those in them, its others."""
    found = set()
    for name in cell.replace("**", "").split(";"):
        found |= {name, re.sub(r"\([^)]*\)", "", name), *re.findall(r"\(([^)]*)\)", name)}
        found |= set(name.split(","))
    return {_plain(name) for name in found if name.strip()}


def _plain(name: str) -> str:
    name = " ".join(name.lower().split())
    name = re.sub(r"sses$", "ss", re.sub(r"ies$", "y", name))
    return re.sub(r"(?<![sui])s$", "", name)


def introduced(text: str) -> set[str]:
    """The bold phrases of a markdown text that can be terms."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"^>.*$", "", text, flags=re.M)
    found = {" ".join(phrase.split()) for phrase in re.findall(r"\*\*(.+?)\*\*", text, re.S)}
    return {
        phrase
        for phrase in found
        if not re.search(r"[.:?!=\d)]$|=|[×\"]", phrase)
        and len(phrase.split()) <= LONGEST
        and phrase.lower() not in STRESSED
    }


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_every_term_of_a_lesson_is_explained(lesson):
    known = set().union(*(names(row[0]) for row in rows()))
    missing = {term for term in introduced(markdown(lesson)) if _plain(term) not in known}
    assert not missing, (
        f"{lesson.name} introduces {sorted(missing)}: give each a line in docs/glossary.md, or "
        "add it to STRESSED here if it is no term"
    )


def test_a_missing_term_is_seen():
    assert introduced("The **flux capacitor** is new. **Objectives.** > **3 = 3**") == {
        "flux capacitor"
    }
    assert "flux capacitor" not in set().union(*(names(row[0]) for row in rows()))
    assert {_plain("Entries"), _plain("logits")} == {"entry", "logit"}


def test_each_line_is_whole():
    for row in rows():
        assert len(row) == 4, row
        term, chinese, sentence, chapter = row
        assert re.search(r"[\u4e00-\u9fff]", chinese) or chinese.lower() in term.lower(), row
        assert sentence[0].isupper() or sentence[0] in "m", row
        assert sentence.endswith(".") and len(sentence) < 160, row
        assert chapter[1:3] in {stem[:2] for stem in STEMS} and len(chapter) == 4, row


def test_lines_are_sorted_and_no_name_comes_twice():
    terms = [row[0].replace("**", "").lower() for row in rows()]
    first = [term.split("; ")[0] for term in terms]
    assert first == sorted(first) and len(terms) > 100
    all_names = [name for term in terms for name in term.split("; ")]
    assert len(all_names) == len(set(all_names))


def markdown(lesson: Path) -> str:
    """All that a lesson says, its code left out."""
    cells = nbformat.read(lesson, 4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def too_late(lines: list[list[str]], texts: dict[str, str]) -> set[str]:
    """The terms whose line names a later chapter than the first that sets one of them in bold."""
    bold = {at: {_plain(term) for term in introduced(text)} for at, text in texts.items()}
    found = set()
    for term, *_, chapter in lines:
        own = [part for part in term.replace("**", "").split("; ") if not TWO_MEANINGS.search(part)]
        for name in set().union(*map(names, own)):
            if any(name in terms for at, terms in bold.items() if at < chapter[1:3]):
                found.add(term)
    return found


def test_each_line_names_the_first_chapter_that_explains_it():
    texts = {lesson.name[:2]: markdown(lesson) for lesson in LESSONS}
    lines = [row for row in rows() if row[0].strip("*") not in NAMED_BEFORE]
    assert not too_late(lines, texts)
    told = [["**layer**", "", "", "[02]"], ["**norm**", "", "", "[01]"]]
    assert too_late(told, {"00": "It has **layers**.", "01": "A **norm**."}) == {"**layer**"}


def test_every_chapter_can_be_followed():
    links = dict(re.findall(r"^\[(\d\d)\]: \.\./notebooks/(\w+)\.ipynb$", GLOSSARY, re.M))
    assert links == {stem[:2]: stem for stem in STEMS}
    for row in rows():
        assert row[3][1:3] in links
