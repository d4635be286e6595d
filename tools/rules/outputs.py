"""Rules for stored outputs: there, quiet, comparable, and readable by everyone."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.execute import WIDGET_VIEW
from tools.page import Page, compared, output_text

Finding = tuple[int | None, str]
SANITISE = Path(__file__).resolve().parents[2] / "tests" / "nbval_sanitize.cfg"
SPEAKING = {"print", "display", "show", "check"}
UNSTEADY = re.compile(
    r"perf_counter|process_time|monotonic\(|\btime\.time\(|timeit|^\s*%%?time|__version__"
    r"|\bplatform\.|get_device_name|version\.cuda|sys\.version|cpu_count|\bdoctor\("
    r"|\bprint\(.*\bdevice\b",
    re.M,
)
ADDRESS = re.compile(r"\b(?:at )?0x[0-9a-f]{6,}")


def stored_outputs(page: Page) -> Iterator[Finding]:
    """Every code cell was run, in order, and a compared cell that says something says it here.

    nbval passes a cell without execution_count and outputs and compares nothing.
    """
    if page.is_exercise:
        return
    for place, (number, cell) in enumerate(page.code(), start=1):
        if cell.execution_count is None:
            yield number, "was never run: no execution_count is stored"
        elif cell.execution_count != place:
            yield number, f"was run out of order: [{cell.execution_count}], should be [{place}]"
        elif compared(cell) and not cell.outputs and speaks(cell.source):
            yield number, "prints or shows something, but no output is stored"


def speaks(code: str) -> bool:
    """True where a cell must have an output: it prints or shows, or ends with a plain value."""
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        statements = ast.parse("\n".join(lines)).body
    except SyntaxError:
        return False
    values = [s.value for s in statements if isinstance(s, ast.Expr)]
    for value in values:
        if isinstance(value, ast.Call):
            name = getattr(value.func, "id", getattr(value.func, "attr", ""))
            if name in SPEAKING and (name != "check" or value is values[-1]):
                return True
    if not statements or not isinstance(statements[-1], ast.Expr):
        return False
    plain = (ast.Name, ast.BinOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.JoinedStr)
    return isinstance(statements[-1].value, plain) and not code.rstrip().endswith(";")


def no_errors(page: Page) -> Iterator[Finding]:
    """No cell ends in an error."""
    for number, cell in page.code():
        for output in cell.outputs:
            if output.output_type == "error":
                yield number, f"ends in an error: {output.ename}: {output.evalue}"


def no_stderr(page: Page) -> Iterator[Finding]:
    """Nothing on stderr: warnings and progress bars differ between machines."""
    for number, cell in page.code():
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                first = output.text.strip().splitlines()[:1]
                yield number, f"writes to stderr: {''.join(first)[:80]!r}"


def no_widget_state(page: Page) -> Iterator[Finding]:
    """No widget state and no widget view: a stored notebook shows the static picture."""
    if "widgets" in page.notebook.metadata:
        yield None, "holds widget state; rebuild it"
    for number, cell in page.code():
        if any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs):
            yield number, "holds a widget view, which is blank where no kernel runs; rebuild it"


def pictures_have_alt(page: Page) -> Iterator[Finding]:
    """Every picture says in words what it shows; see tools/lint.py for how."""
    for number, cell in enumerate(page.notebook.cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"`[^`]*`", "", cell.source)
            if re.search(r"!\[\s*\]\(", text) or tag_without_alt(text):
                yield number, "has an image without alt text: write ![what it shows](file)"
            continue
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            html = data.get("text/html", "")
            if any(kind.startswith("image/") for kind in data) and not html:
                yield number, (
                    "shows a picture without alt text: it needs text/html "
                    '<img alt="what it shows" ...> beside the image'
                )
            elif tag_without_alt(html):
                yield number, "shows HTML with a picture that has no alt text"


def tag_without_alt(html: str) -> bool:
    """True where an <img> has no words in `alt`, or an <svg> no name and is not hidden."""
    for tag in re.findall(r"<img\b[^>]*>", html, re.S | re.I):
        if not re.search(r"""\balt\s*=\s*("\s*[^"\s][^"]*"|'\s*[^'\s][^']*')""", tag):
            return True
    for opening, inside in re.findall(r"(<svg\b[^>]*>)(.*?)</svg>", html, re.S | re.I):
        named = re.search(r"aria-label(?:ledby)?=|aria-hidden=.?true", opening)
        if not named and "<title" not in inside:
            return True
    return False


def pictures_name_no_program(page: Page) -> Iterator[Finding]:
    """No PNG carries a program's version: `savefig(metadata={"Software": None})`."""
    for number, cell in page.code():
        for output in cell.outputs:
            png = output.get("data", {}).get("image/png")
            if png and b"Software" in base64.b64decode(png)[:4096]:
                yield number, "its PNG names the program that drew it; draw with the figure helper"


def no_addresses(page: Page) -> Iterator[Finding]:
    """No compared output holds a memory address."""
    for number, cell in page.code():
        if not compared(cell):
            continue
        for output in cell.outputs:
            if found := ADDRESS.search(output_text(output)):
                yield number, f"prints a memory address ({found[0]}), which is never the same twice"


def times_are_not_compared(page: Page) -> Iterator[Finding]:
    """A cell that tells times, devices or versions is tagged, or sanitised to the last digit."""
    for number, cell in page.code():
        code = "\n".join(line.split("#")[0] for line in cell.source.splitlines())
        found = UNSTEADY.search(code)
        if not found or not compared(cell):
            continue
        said = sanitised("\n".join(output_text(output) for output in cell.outputs))
        if re.search(r"\d", said):
            yield number, (
                f"uses {found[0].strip()!r} and its output is compared: "
                'tag it "nbval-ignore-output" or print no numbers there'
            )


@cache
def sanitise_patterns(path: Path = SANITISE) -> tuple[tuple[str, str], ...]:
    """The (regex, replacement) pairs of the file that nbval gets."""
    text = path.read_text(encoding="utf-8")
    return tuple(re.findall(r"^regex: (.*)$\n^replace: (.*)$", text, re.M))


def sanitised(text: str) -> str:
    """`text` as nbval compares it."""
    for pattern, replacement in sanitise_patterns():
        text = re.sub(pattern, replacement, text)
    return text


RULES = (
    stored_outputs,
    no_errors,
    no_stderr,
    no_widget_state,
    pictures_have_alt,
    pictures_name_no_program,
    no_addresses,
    times_are_not_compared,
)
