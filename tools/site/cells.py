"""One notebook as HTML: its words, its code, its outputs as they are stored."""

from __future__ import annotations

import ast
import base64
import hashlib
import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import nbformat
from nbconvert.filters.ansi import strip_ansi

from .dark import both, size
from .live import live
from .words import Sections, code, converter, plain

PICTURE = re.compile(
    r'<img alt="(?P<alt>[^"]+)" width="(?P<width>\d+)" src="data:image/png;'
    r'base64,(?P<data>[^"]+)">'
)


@dataclass(frozen=True)
class Part:
    """A piece of a page for the search: where it begins, its heading, its words, its code."""

    anchor: str
    heading: str
    words: str
    code: str = ""


@dataclass
class Body:
    """What one notebook gives: HTML, headings, the parts to search, and pictures by name."""

    markup: str = ""
    sections: Sections = field(default_factory=Sections)
    parts: list[Part] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    as_drawn: set[str] = field(default_factory=set)  # those that the dark theme leaves light
    scripts: set[str] = field(default_factory=set)  # the live widgets on this page


def body(notebook: nbformat.NotebookNode, link: Callable[[str], str | None], name: str) -> Body:
    """The body of a notebook's page. `name` says which notebook an error is about.

    Raises ValueError for an output that these pages could not show, or a picture without alt.
    """
    made = Body()
    markdown = converter(made.sections, link)
    guessed = False  # the cell before asked for a guess: its answer stays folded
    pieces = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            pieces.append(f'<div class="words">{_noted(made, markdown, cell.source)}</div>')
            continue
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        tags = cell.metadata.get("tags", ())
        try:
            before = set(made.pictures)
            pieces.append(_code_cell(made, cell, "predict" in tags, guessed))
        except ValueError as error:
            raise ValueError(f"{name}, cell {number}: {error}") from error
        if says_dark(notebook.cells, number):
            made.as_drawn |= made.pictures.keys() - before
        guessed = "predict" in tags
    made.markup = "\n".join(pieces)
    return made


def says_dark(cells: list[nbformat.NotebookNode], number: int) -> bool:
    """Do words of a code cell, or the paragraph before or after it, call something dark?

    Then they are about lightness, and a picture with the lightness turned over would belie them.
    """
    said = [
        node.value
        for node in ast.walk(_parsed(cells[number].source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for at, paragraph in ((number - 1, -1), (number + 1, 0)):
        if 0 <= at < len(cells) and cells[at].cell_type == "markdown":
            said.append(cells[at].source.strip().split("\n\n")[paragraph])
    return any(re.search(r"\bdark(er)?\b", words) for words in said)


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError:  # a line for the notebook itself, such as %timeit
        return ast.Module([], [])


def _noted(made: Body, markdown: Callable[[str], str], text: str) -> str:
    """The HTML of a markdown cell, its words kept for the search under their headings."""
    pieces = []
    for block in re.split(r"^(?=#{1,3} )", text, flags=re.M):
        if not block.strip():
            continue
        markup = markdown(block)
        _, anchor, heading = made.sections.found[-1] if made.sections.found else (1, "", "")
        words = " ".join(plain(re.sub(r'<a class="anchor".*?</a>', "", markup)).split())
        if made.parts and made.parts[-1].anchor == anchor:  # cells between: still one part
            last = made.parts[-1]
            made.parts[-1] = replace(last, words=f"{last.words} {words}")
        else:
            made.parts.append(Part(anchor, heading, words))
        pieces.append(markup)
    return "".join(pieces)


def _code_cell(made: Body, cell: nbformat.NotebookNode, predict: bool, guessed: bool) -> str:
    shown = "".join(_output(made, output) for output in cell.get("outputs", ()))
    block = code(cell.source)
    if made.parts:
        last = made.parts[-1]
        made.parts[-1] = replace(last, code=f"{last.code} {cell.source}".strip())
    if predict:
        note = '<p class="guess">Guess before you read on: the answer is folded below.</p>'
        return f'<div class="cell predict">{block}{note}</div>'
    if shown:
        shown = f'<div class="output">{shown}</div>'
    if guessed and shown:
        shown = f"<details class='answer'><summary>Show the answer</summary>{shown}</details>"
    return f'<div class="cell">{block}{shown}</div>'


def _output(made: Body, output: nbformat.NotebookNode) -> str:
    if output.output_type == "error":
        raise ValueError(f"it ended with {output.ename}")
    if output.output_type == "stream":
        return _text(output.text)
    data = output.data
    text = data.get("text/plain", "")
    if "text/html" in data:
        found = PICTURE.fullmatch(data["text/html"].strip())
        if not found:
            raise ValueError("an output in HTML that is no picture with alt text")
        return _figure(made, found, text)
    if any(kind.startswith("image/") for kind in data):
        raise ValueError("a picture without alt text")
    return _text(text)


def _figure(made: Body, found: re.Match, text: str) -> str:
    """A picture as a file of its own; a widget's with its words, and its live twin if it has."""
    content = base64.b64decode(found["data"])
    name = hashlib.sha256(content).hexdigest()[:16] + ".png"
    made.pictures[name] = content
    wide, high = size(content)
    width = int(found["width"])
    alt = html.unescape(found["alt"])
    image = both(f"../pictures/{name}", alt, width, round(width * high / wide))
    if alt == text:
        return f"<figure>{image}</figure>"
    words = f"<details><summary>In words</summary>{_text(text)}</details>"
    moving = live(text)
    if moving is None:
        note = "A still picture: in the notebook one can move it."
        if "on a logarithmic axis" in alt:  # drawn without ticks: seen only by who is told
            note = f"The bars are on a logarithmic axis. {note}"
        return f"<figure>{image}<figcaption>{note}</figcaption>{words}</figure>"
    made.scripts.add(moving.name)
    return (
        f'<figure class="live" data-widget="{moving.name}"'
        f' data-start="{html.escape(moving.start)}">{image}{words}</figure>'
    )


def _text(text: str) -> str:
    return f'<pre class="text" tabindex="0">{html.escape(strip_ansi(text).rstrip())}</pre>'
