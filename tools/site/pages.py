"""What stands around the words: the frame of every page, and the front page."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import dataclass

from tinymodels.widgets import plot
from tinymodels.widgets.ladder import Ladder
from tools import readme_picture

from .cells import Body
from .chapters import Chapter
from .words import Sections, converter

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
    " change and run them, get the course itself and type <code>python3 course.py lab</code>."
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
<a class="skip" href="#main">Skip to the text</a>
<header class="top">
<a class="home" href="{to("index.html")}">{html.escape(COURSE)}</a>
<form class="search" role="search"><label for="search">Search</label>
<input id="search" type="search" autocomplete="off" placeholder="latent, indexer, 890 …"></form>
<a class="plain" href="{to("docs/glossary.html")}">Glossary</a>
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
    chapter: Chapter, body: Body, path: str, around: tuple[Chapter | None, Chapter | None]
) -> Page:
    """A lesson's page, or its exercises'; `around` are the chapters before and after."""
    exercises = path.startswith("exercises/")
    title = f"{chapter.digits} · {chapter.title}" + (" · exercises" if exercises else "")
    contents = tuple((name, words) for level, name, words in body.sections.found if level == 2)
    page = Page(path, title, "", contents, tuple(sorted(body.scripts)))
    links = []
    if exercises:
        note = (
            '<p class="note">To solve these, open the notebook in the course: it grades what'
            " you write and says which mistake it looks like.</p>"
        )
        if chapter.notebook:
            words = f"The lesson: {chapter.title}"
            links.append(f'<a href="{page.up(chapter.lesson_page)}">{html.escape(words)}</a>')
    else:
        note = ""
        for other, word in zip(around, ("Before", "Next")):
            if other is not None:
                words = f"{word}: {other.digits} · {other.title}"
                links.append(f'<a href="{page.up(other.lesson_page)}">{html.escape(words)}</a>')
    after = f'<nav class="around" aria-label="Chapters">{"".join(links)}</nav>' if links else ""
    return Page(path, title, note + body.markup + after, contents, page.scripts)


def front_page(chapters: list[Chapter], ladder_picture: str, docs: list[tuple[str, str]]) -> Page:
    """The question, the ladder, the picture, and the table of chapters.

    ladder_picture: the path of the still picture. docs: (path, title) of other pages.
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
    alt = html.escape(figure.view.alt)
    rows = "\n".join(_row(chapter) for chapter in chapters)
    more = "".join(f'<li><a href="{path}">{html.escape(title)}</a></li>' for path, title in docs)
    main = f"""<div class="words front">
<h1>{html.escape(COURSE)}</h1>
<p class="question">{QUESTION}</p>
<p>{LEAD}</p>
{start}
<h2 id="ladder">From {plot.exact(points[0][1])} bytes to {plot.exact(points[-1][1])}</h2>
<p>Switch on one idea after another, and watch what one remembered token costs.</p>
</div>
<figure class="live" data-widget="ladder" data-start="{html.escape(_start())}">
<img src="{ladder_picture}" alt="{alt}" width="680" height="310"></figure>
<div class="words front">
<h2 id="chapters">Chapters</h2>
<p>{HERE}</p>
<div class="scroll" tabindex="0" role="region" aria-label="Table of chapters">
<table class="chapters"><thead><tr><th scope="col">chapter</th><th scope="col">time</th>
<th scope="col">its number</th><th scope="col">to solve</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
<h2 id="numbers">The numbers of the whole series</h2>
<figure><img src="pictures/bytes_per_token.png" alt="{html.escape(readme_picture.alt(points))}"
 width="720" height="340" loading="lazy">
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
            f'<tr class="missing"><th scope="row">{title}</th><td>in work</td><td></td>'
            f"<td>{solve}</td></tr>"
        )
    number = converter(Sections(), lambda url: None)(chapter.number).strip()
    number = number.removeprefix("<p>").removesuffix("</p>")
    return (
        f'<tr><th scope="row"><a href="{chapter.lesson_page}">{title}</a></th>'
        f"<td>{html.escape(chapter.time)}</td><td>{number}</td><td>{solve}</td></tr>"
    )


def document(path: str, text: str, link: Callable[[str], str | None]) -> tuple[Page, Sections]:
    """The page of a markdown file, such as docs/glossary.md."""
    sections = Sections()
    markup = converter(sections, link)(text)
    contents = tuple((name, words) for level, name, words in sections.found if level == 2)
    title = sections.found[0][2] if sections.found else path
    main = f'<div class="words document">{markup}</div>'
    return Page(path, title, main, contents), sections
