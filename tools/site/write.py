"""The whole site, made beside its folder and then put in its place."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tinymodels.widgets import base, plot
from tinymodels.widgets.ladder import Ladder
from tools import readme_picture

from . import live
from .cells import Body, Part, body
from .chapters import Chapter, chapters
from .pages import Page, chapter_page, document, framed, front_page
from .words import plain

FOLDER = Path(__file__).parent
MARK = ".course-site"  # a folder with this file was written here and may be replaced
LADDER_PICTURE = "pictures/ladder.png"


def write(root: Path, out: Path) -> list[str]:
    """Write the site of the course under `root` into the folder `out`; returns its pages' paths.

    Raises ValueError where `out` holds something that is no site, or a notebook cannot be shown.
    """
    out = out.resolve()
    if out == root.resolve() or out in root.resolve().parents:
        raise ValueError(f"{out} holds the course itself: name a folder of its own")
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists())):
        raise ValueError(f"{out} is there and is no site of this course: name another folder")
    part = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        part.mkdir(parents=True)
        paths = _fill(root, part)
        (part / MARK).write_text("Written by course.py site; it may replace this folder.\n")
        old = out.with_name(f".{out.name}.{os.getpid()}.old")
        if out.exists():
            os.replace(out, old)
        os.replace(part, out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return paths


def _fill(root: Path, folder: Path) -> list[str]:
    """Make all files of the site in an empty folder."""
    course = chapters(root)
    docs = sorted((root / "docs").glob("*.md"))
    known = {c.lesson_page for c in course if c.notebook}
    known |= {c.exercise_page for c in course if c.exercises}
    known |= {f"docs/{path.stem}.html" for path in docs}
    pages, index, pictures = [], [], _pictures(root)
    for chapter in course:
        for page, made in _pages_of(chapter, course, known):
            pages.append(page)
            index += _entries(page, made.parts)
            pictures |= made.pictures
    for path in docs:
        at = f"docs/{path.stem}.html"
        page, _ = document(at, path.read_text(encoding="utf-8"), _linker(at, known))
        pages.append(page)
        index += _entries(page, _document_parts(page))
    others = [(page.path, page.title) for page in pages if page.path.startswith("docs/")]
    pages.append(front_page(course, LADDER_PICTURE, others))
    files = {page.path: framed(page) for page in pages} | _scripts(index)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    (folder / "pictures").mkdir(exist_ok=True)
    for name, content in pictures.items():
        (folder / "pictures" / name).write_bytes(content)
    return [page.path for page in pages]


def _pages_of(chapter: Chapter, course: list[Chapter], known: set[str]):
    """(page, body) of a chapter's lesson and of its exercises, where they are there."""
    there = [c for c in course if c.notebook is not None]
    around: tuple[Chapter | None, Chapter | None] = (None, None)
    if chapter in there:
        at = there.index(chapter)
        around = (there[at - 1] if at else None, there[at + 1] if at + 1 < len(there) else None)
    for path, notebook in (
        (chapter.lesson_page, chapter.notebook),
        (chapter.exercise_page, chapter.exercises),
    ):
        if notebook is not None:
            made: Body = body(notebook, _linker(path, known), path.replace(".html", ".ipynb"))
            yield chapter_page(chapter, made, path, around), made


def _linker(page: str, known: set[str]) -> Callable[[str], str | None]:
    """link(url) for one page: other pages by their names here, None for what is not here."""

    def link(url: str) -> str | None:
        if "://" in url or url.startswith(("#", "mailto:")):
            return url
        target, _, anchor = url.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        path = path.removesuffix(".ipynb").removesuffix(".md") + ".html"
        if path == "README.html":
            path = "index.html"
        elif path not in known:
            return None
        found = posixpath.relpath(path, posixpath.dirname(page) or ".")
        return f"{found}#{anchor}" if anchor else found

    return link


def _entries(page: Page, parts: list[Part]) -> list[dict]:
    """What the search knows of a page."""
    return [
        {"u": page.path, "a": p.anchor, "t": page.title, "h": p.heading, "w": p.words}
        for p in parts
        if p.words
    ]


def _document_parts(page: Page) -> list[Part]:
    """The parts of a markdown file: one for each row of its tables, else one for each section."""
    parts, anchor, heading = [], "", page.title
    main = re.sub(r'<a class="anchor".*?</a>', "", page.main)
    for block in main.replace("<tr>", "\n\0<tr>").replace("<h2 ", "\n\0<h2 ").split("\0"):
        if block.startswith("<h2 "):
            anchor = block.split('id="')[1].split('"')[0]
            heading = plain(block.split("</h2>")[0])
        words = " ".join(plain(block.replace("</td>", " · ")).split()).rstrip(" ·")
        parts.append(Part(anchor, heading, words))
    return parts


def _pictures(root: Path) -> dict[str, bytes]:
    """The two pictures of the front page."""
    figure = Ladder(6)
    png = plot.png(figure.draw(figure.view))
    name = readme_picture.PICTURE.name
    return {"ladder.png": png, name: (root / "docs" / name).read_bytes()}


def _scripts(index: list[dict]) -> dict[str, str]:
    """All files that are neither pages nor pictures."""

    def read(name: str) -> str:
        return (FOLDER / name).read_text(encoding="utf-8")

    def variables(theme: dict) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in theme.items())

    themes = (
        f":root {{ {variables(plot.LIGHT)} }}\n"
        f'[data-jp-theme-light="false"] {{ {variables(plot.DARK)} }}\n'
        f"@media (prefers-color-scheme: dark) {{\n"
        f"  :root:not([data-jp-theme-light]) {{ {variables(plot.DARK)} }}\n}}\n"
    )
    words = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    made = {
        "site.css": themes + read("site.css") + base.stylesheet(),
        "theme.js": read("theme.js"),
        "site.js": read("site.js"),
        "search.js": f"window.courseIndex = {words};\n",
    }
    return made | {f"live/{name}": text for name, text in live.scripts().items()}
