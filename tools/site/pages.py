"""What stands around the words: the frame of every page, and the front page."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from tinymodels.widgets import plot
from tinymodels.widgets.ladder import Ladder
from tools import readme_picture

from . import glossary
from .cells import Body
from .chapters import STANDS_ON, Chapter
from .dark import both
from .search import language
from .words import PICTURE_SIZE, Sections, converter

COURSE = "KV cache, from MHA to CED"
QUESTION = (
    "A language model is writing sentence 100. How does it still know sentence 1, and what does"
    " that memory cost?"
)
LEAD = (
    "You build a tiny transformer, chapter by chapter, and give it the memory of every DeepSeek"
    " generation. Each mechanism runs, and is weighed in real bytes: what the formula says, what"
    " the storage measures and what was published agree to the byte."
)
HERE = (
    "These pages are the course to read: every output below a cell is what the cell printed. To"
    " change and run them, get the course itself and type <code>python3 course.py lab</code>:"
    ' <a href="README.html">the README</a> says what that needs.'
)


@dataclass(frozen=True)
class Page:
    """path: from the site's folder, with slashes. title: of the window. main: its HTML."""

    path: str
    title: str
    main: str
    contents: tuple[tuple[str, str], ...] = ()  # (id, words) of the headings beside it
    scripts: tuple[str, ...] = ()
    language: str = "en"

    def up(self, target: str) -> str:
        """A path from the site's folder, seen from this page."""
        return os.path.relpath(target, os.path.dirname(self.path) or ".").replace(os.sep, "/")


def framed(page: Page) -> str:
    """The whole HTML file of a page."""
    to = page.up
    title = COURSE if page.title == COURSE else f"{page.title} · {COURSE}"
    aside = ""
    if page.contents:
        items = "".join(
            f'<li><a href="#{name}">{html.escape(words)}</a></li>' for name, words in page.contents
        )
        aside = (
            f'<nav class="contents" aria-label="On this page"><details open>'
            f"<summary>On this page</summary><ol>{items}</ol></details></nav>"
        )
    live = "".join(
        f'<script src="{to(f"live/{name}.js")}" defer></script>\n' for name in page.scripts
    )
    return f"""<!doctype html>
<html lang="{page.language}" data-root="{to("index.html").removesuffix("index.html")}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{to("site.css")}">
<script src="{to("theme.js")}"></script>
{live}<script src="{to("site.js")}" defer></script>
</head>
<body>
<a class="skip" href="#main" lang="en">Skip to the text</a>
<header class="top" lang="en">
<a class="home" href="{to("index.html")}">{html.escape(COURSE)}</a>
<form class="search" role="search"><label for="search">Search</label>
<input id="search" type="search" autocomplete="off" placeholder="latent, 缓存, 890"></form>
<a class="plain" href="{to("docs/glossary.html")}">Glossary</a>
<a class="plain" href="{to("README.zh-CN.html")}" lang="zh-CN" hreflang="zh-CN">中文</a>
<button type="button" class="theme" aria-pressed="false">Dark</button>
</header>
<div id="found" hidden><p role="status"></p><ol></ol></div>
<div class="page{" with-contents" if aside else ""}">
{aside}<main id="main" tabindex="-1">
{page.main}
</main>
</div>
</body>
</html>
"""


def chapter_page(
    chapter: Chapter,
    body: Body,
    path: str,
    around: tuple[Chapter | None, Chapter | None],
    course: list[Chapter],
) -> Page:
    """A lesson's page, or its exercises'; `around` are the chapters before and after."""
    exercises = path.startswith("exercises/")
    title = f"{chapter.digits} · {chapter.title}" + (" · exercises" if exercises else "")
    contents = tuple((name, words) for level, name, words in body.sections.found if level == 2)
    page = Page(path, title, "", contents, tuple(sorted(body.scripts)))
    before, after = around
    links = [_link(page, before, "Before: ")] if before and not exercises else []
    note = ""
    if exercises:
        note = (
            '<p class="note">To solve these, open the notebook in the course: it grades what'
            " you write and says which mistake it looks like.</p>"
        )
        if chapter.notebook:
            links.append(_link(page, chapter, "The lesson: "))
    elif chapter.exercises:
        words = f"Exercises of chapter {chapter.digits}"
        links.append(f'<a href="{page.up(chapter.exercise_page)}">{words}</a>')
    if after:
        links.append(_link(page, after, "Next: "))
    end = f'<nav class="around" aria-label="Chapters">{"".join(links)}</nav>' if links else ""
    place = _place(page, chapter, course, exercises)
    return Page(path, title, place + note + body.markup + end, contents, page.scripts)


def _link(page: Page, chapter: Chapter, word: str = "") -> str:
    words = html.escape(f"{word}{chapter.digits} · {chapter.title}")
    return f'<a href="{page.up(chapter.lesson_page)}">{words}</a>'


def _place(page: Page, chapter: Chapter, course: list[Chapter], exercises: bool) -> str:
    """What a page stands on, and what it leads to."""
    there = [other for other in course if other.notebook is not None]
    if exercises:
        below = [chapter] if chapter.notebook else []
    else:
        below = [other for other in there if other.digits in STANDS_ON[chapter.digits]]
    above = [other for other in there if chapter.digits in STANDS_ON[other.digits]]
    parts = []
    for word, others in (("Stands on", below), ("Leads to", above)):
        if others:
            names = ", ".join(_link(page, other) for other in others)
            parts.append(f"<li>{word} {names}</li>")
    if not parts:
        return ""
    return f'<nav class="place" aria-label="Where this stands"><ul>{"".join(parts)}</ul></nav>'


def front_page(chapters: list[Chapter], ladder_picture: str, docs: list[Page]) -> Page:
    """The question, the ladder, the picture, and the table of chapters.

    ladder_picture: the path of the still picture. docs: the pages beside the chapters.
    """
    points = readme_picture.series()
    first = next((c for c in chapters if c.notebook is not None), None)
    start = ""
    if first is not None:
        start = (
            f'<p class="start"><a class="button" href="{first.lesson_page}">'
            f"Begin with chapter {first.digits}</a></p>"
        )
    figure = Ladder(6)
    still = both(ladder_picture, figure.view.alt, 680, 310)
    series = both(
        f"pictures/{readme_picture.PICTURE.name}", readme_picture.alt(points), *PICTURE_SIZE
    )
    rows = "\n".join(_row(chapter) for chapter in chapters)
    more = "".join(
        f'<li><a href="{page.path}" lang="{page.language}">{html.escape(page.title)}</a></li>'
        for page in docs
    )
    main = f"""<div class="words front">
<h1>{html.escape(COURSE)}</h1>
<p class="question">{QUESTION}</p>
<p>{LEAD}</p>
{start}
<h2 id="ladder">From {plot.exact(points[0][1])} bytes to {plot.exact(points[-1][1])}</h2>
<p>Switch on one idea after another, and watch what one remembered token costs.</p>
</div>
<figure class="live" data-widget="ladder" data-start="{html.escape(_start())}">
{still}</figure>
<div class="words front">
<h2 id="chapters">Chapters</h2>
<p>{HERE}</p>
<div class="scroll" tabindex="0" role="region" aria-label="Table of chapters">
<table class="chapters" role="table"><thead role="rowgroup"><tr role="row">
<th scope="col" role="columnheader">chapter</th><th scope="col" role="columnheader">time</th>
<th scope="col" role="columnheader">its number</th><th scope="col" role="columnheader">to solve</th>
</tr></thead>
<tbody role="rowgroup">
{rows}
</tbody></table></div>
<h2 id="numbers">The numbers of the whole series</h2>
<figure>{series}
<figcaption>C: its source states the number. R: read off a chart that its source printed.
D: derived here from sourced shapes.</figcaption></figure>
<h2 id="more">Beside the chapters</h2>
<ul>{more}</ul>
</div>"""
    return Page("index.html", COURSE, main, (), ("ladder",))


def _start() -> str:
    import json

    return json.dumps(Ladder(1).start)


def _row(chapter: Chapter) -> str:
    title = html.escape(f"{chapter.digits} · {chapter.title}")
    solve = ""
    if chapter.exercises is not None:
        solve = (
            f'<a href="{chapter.exercise_page}" aria-label="Exercises of chapter'
            f' {chapter.digits}">exercises</a>'
        )
    if chapter.notebook is None:
        return (
            f'<tr role="row" class="missing"><th scope="row" role="rowheader">{title}</th>'
            f'<td role="cell">in work</td><td role="cell"></td><td role="cell">{solve}</td></tr>'
        )
    number = converter(Sections(), lambda url: None)(chapter.number).strip()
    number = number.removeprefix("<p>").removesuffix("</p>")
    return (
        '<tr role="row"><th scope="row" role="rowheader">'
        f'<a href="{chapter.lesson_page}">{title}</a></th>'
        f'<td role="cell">{html.escape(chapter.time)}</td><td role="cell">{number}</td>'
        f'<td role="cell">{solve}</td></tr>'
    )


def document(path: str, text: str, link: Callable[[str], str | None], title: str) -> Page:
    """The page of a markdown file, such as docs/glossary.md."""
    sections = Sections()
    markup = converter(sections, link)(text)
    if path == "docs/glossary.html":
        markup = glossary.marked(markup)
    contents = tuple((name, words) for level, name, words in sections.found if level == 2)
    main = f'<div class="words document">{markup}</div>'
    return Page(path, title, main, contents, (), language(path))


def beside(page: Page, others: list[Page]) -> Page:
    """A document's page with the way back to the course and on to the other documents."""
    place = (
        '<nav class="place" aria-label="Where this stands"><ul><li>Beside the chapters of '
        f'<a href="{page.up("index.html")}">the course</a></li></ul></nav>'
    )
    links = "".join(
        f'<a href="{page.up(other.path)}" lang="{other.language}">{html.escape(other.title)}</a>'
        for other in others
        if other.path != page.path
    )
    end = f'<nav class="around" aria-label="Beside the chapters">{links}</nav>'
    return replace(page, main=place + page.main + end)
