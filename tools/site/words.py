"""Markdown as HTML: headings one can link to, and links that lead to pages."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from .dark import both

_FORMAT = HtmlFormatter(nowrap=True)
PICTURE_SIZE = (720, 340)  # of the one picture that stands in markdown, the README's


@dataclass
class Sections:
    """The headings met so far on one page: (level, id, plain words)."""

    found: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, level: int, words: str) -> str:
        """A new id for a heading: its words with dashes; a number where it is taken."""
        name = re.sub(r"[^\w]+", "-", words.lower()).strip("-") or "part"
        taken = {known for _, known, _ in self.found}
        number = 2
        wanted = name
        while wanted in taken:
            wanted, number = f"{name}-{number}", number + 1
        self.found.append((level, wanted, words))
        return wanted


def plain(markup: str) -> str:
    """The words of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def code(text: str, language: str = "python") -> str:
    """A block of code; Python's is coloured. It can be scrolled by keyboard."""
    if language in ("python", "py"):
        inner = highlight(text, PythonLexer(stripnl=False), _FORMAT)
    else:
        inner = html.escape(text)
    return f'<pre class="code" tabindex="0"><code>{inner.rstrip()}</code></pre>\n'


class _Renderer(mistune.HTMLRenderer):
    """link: what a link's target becomes; None where it leads nowhere on these pages."""

    def __init__(self, sections: Sections, link: Callable[[str], str | None]):
        super().__init__(escape=False)
        self._sections = sections
        self._link = link

    def heading(self, text: str, level: int, **attrs) -> str:
        words = plain(text)
        name = self._sections.add(level, words)
        told = html.escape(f"Link to: {words}")
        anchor = f' <a class="anchor" href="#{name}" aria-label="{told}">#</a>'
        return f'<h{level} id="{name}">{text}{anchor if level > 1 else ""}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        target = self._link(url)
        if target is None:
            return f'<span class="nowhere">{text}</span>'
        return f'<a href="{html.escape(target)}">{text}</a>'

    def image(self, text: str, url: str, title: str | None = None) -> str:
        if not text.strip():
            raise ValueError(f"the picture {url} has no alt text")
        target = self._link(url)
        if target is None:
            raise ValueError(f"the picture {url} is not on these pages")
        return both(target, plain(text), *PICTURE_SIZE)

    def block_code(self, code: str, info: str | None = None) -> str:
        return globals()["code"](code.rstrip("\n"), (info or "text").split()[0])


def _table(self, text: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table">'
        f"<table>\n{text}</table></div>\n"
    )


def converter(sections: Sections, link: Callable[[str], str | None]) -> Callable[[str], str]:
    """A function from markdown to HTML that notes headings in `sections`."""
    renderer = _Renderer(sections, link)
    markdown = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough"])
    renderer.register("table", _table)
    return lambda text: str(markdown(text))
