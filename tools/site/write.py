"""The whole site, made beside its folder and then put in its place."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Callable
from pathlib import Path

from tinymodels.widgets import base, plot
from tinymodels.widgets.ladder import Ladder
from tools import readme_picture

from . import live, search
from .cells import Body, body
from .chapters import Chapter, chapters
from .dark import named, twin
from .pages import beside, chapter_page, document, framed, front_page

FOLDER = Path(__file__).parent
MARK = ".course-site"  # a folder with this file was written here and may be replaced
LADDER_PICTURE = "pictures/ladder.png"
# The markdown files that are pages too, in the order of the front page, and what they are called.
DOCUMENTS = {
    "README.md": "README: get it and run it",
    "README.zh-CN.md": "中文介绍",
    "docs/glossary.md": "Glossary · 词汇表",
    "docs/syllabi.md": "Three ways through the course",
    "docs/teaching.md": "Teaching with this course",
    "grading/README.md": "How grading works",
    "docs/elsewhere.md": "Running it elsewhere",
    "docs/map.md": "A map of the repository",
    "CONTRIBUTING.md": "How to contribute",
    "CHANGELOG.md": "Changes",
    "AGENTS.md": "For AI assistants",
}


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
    texts = {name: root / name for name in DOCUMENTS if (root / name).is_file()}
    known = {c.lesson_page for c in course if c.notebook}
    known |= {c.exercise_page for c in course if c.exercises}
    known |= {_page_of(name) for name in texts}
    pages, index, pictures, as_drawn = [], [], _pictures(root), set()
    for chapter in course:
        for page, made in _pages_of(chapter, course, known):
            pages.append(page)
            index += search.of_parts(page.path, page.title, made.parts)
            pictures |= made.pictures
            as_drawn |= made.as_drawn
    docs = []
    for name, path in texts.items():
        at = _page_of(name)
        text = path.read_text(encoding="utf-8")
        docs.append(document(at, text, _linker(at, known), DOCUMENTS[name]))
        index += search.of_document(at, docs[-1].title, docs[-1].main)
    pages += [beside(page, docs) for page in docs]
    pages.append(front_page(course, LADDER_PICTURE, docs))
    glossary = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    files = {page.path: framed(page) for page in pages}
    files |= _scripts() | {"search.js": search.script(index, glossary)}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    (folder / "pictures").mkdir(exist_ok=True)
    for name, content in pictures.items():
        (folder / "pictures" / name).write_bytes(content)
        dark = content if name in as_drawn else twin(content)
        (folder / "pictures" / named(name)).write_bytes(dark)
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
            yield chapter_page(chapter, made, path, around, course), made


def _page_of(name: str) -> str:
    """The path of a markdown file's page."""
    return name.removesuffix(".md") + ".html"


def _linker(page: str, known: set[str]) -> Callable[[str], str | None]:
    """link(url) for one page: other pages by their names here, None for what is not here."""

    def link(url: str) -> str | None:
        if "://" in url or url.startswith(("#", "mailto:")):
            return url
        target, _, anchor = url.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if path == f"docs/{readme_picture.PICTURE.name}":
            path = f"pictures/{readme_picture.PICTURE.name}"
        else:
            path = path.removesuffix(".ipynb").removesuffix(".md") + ".html"
            if path not in known:
                return None
        found = posixpath.relpath(path, posixpath.dirname(page) or ".")
        return f"{found}#{anchor}" if anchor else found

    return link


def _pictures(root: Path) -> dict[str, bytes]:
    """The two pictures of the front page."""
    figure = Ladder(6)
    png = plot.png(figure.draw(figure.view))
    name = readme_picture.PICTURE.name
    return {"ladder.png": png, name: (root / "docs" / name).read_bytes()}


def _scripts() -> dict[str, str]:
    """All files that are neither pages nor pictures, but for the search's index."""

    def read(name: str) -> str:
        return (FOLDER / name).read_text(encoding="utf-8")

    def variables(theme: dict) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in theme.items())

    paper = variables({f"kvc-{name}": colour for name, colour in plot.LIGHT.items()})
    themes = (
        f":root {{ {variables(plot.LIGHT)} }}\n"
        f'@media screen {{ [data-jp-theme-light="false"] {{ {variables(plot.DARK)} }} }}\n'
        f"@media screen and (prefers-color-scheme: dark) {{\n"
        f"  :root:not([data-jp-theme-light]) {{ {variables(plot.DARK)} }}\n}}\n"
    )
    made = {
        "site.css": themes
        + read("site.css")
        + base.stylesheet()
        + f"@media print {{ [data-jp-theme-light] .kvc {{ {paper} }} }}\n",
        "theme.js": read("theme.js"),
        "site.js": read("find.js") + read("site.js"),
    }
    return made | {f"live/{name}": text for name, text in live.scripts().items()}
