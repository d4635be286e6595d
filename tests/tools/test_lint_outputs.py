"""Each rule for outputs finds its fault in a notebook that is otherwise clean."""

import base64

import nbformat
import pytest
from lint_pages import ALT, code, found, lesson, output, picture, stdout

from tools import lint
from tools.rules import outputs


def test_the_docstrings_picture_passes_every_rule():
    page = lesson(code("show(fig, alt=alt)", picture()), code("x = 1", count=2))
    assert list(lint.lint(page)) == []


@pytest.mark.parametrize(
    "cell, words",
    [
        (code("print(1)", count=None), "never run"),
        (code("print(1)", stdout("1\n"), count=2), "out of order"),
        (code("print(1)"), "no output is stored"),
        (code("x = 1\nx"), "no output is stored"),
        (code('check("01.1", f)'), "no output is stored"),
        (code("%matplotlib inline\nx[0]"), "no output is stored"),
    ],
)
def test_stored_outputs(cell, words):
    (message,) = found(lesson(cell), outputs.stored_outputs)
    assert words in message


@pytest.mark.parametrize(
    "source", ["x = 1", "model.eval();", "x;", "def f():\n    print(1)", "import torch", "a.sort()"]
)
def test_silent_cells_need_no_output(source):
    assert found(lesson(code(source)), outputs.stored_outputs) == []


def test_ignored_cells_need_no_output_but_must_have_run():
    tagged = ["nbval-ignore-output"]
    assert found(lesson(code("print(1)", tags=tagged)), outputs.stored_outputs) == []
    assert found(lesson(code("print(1)", tags=tagged, count=None)), outputs.stored_outputs)


def test_no_errors():
    error = output("error", ename="ValueError", evalue="no", traceback=["no"])
    (message,) = found(lesson(code("f()", error)), outputs.no_errors)
    assert "ValueError: no" in message


def test_no_stderr():
    noise = output("stream", name="stderr", text="\nUserWarning: slow\n  more")
    (message,) = found(lesson(code("f()", noise)), outputs.no_stderr)
    assert "UserWarning: slow" in message


def test_no_widget_state():
    view = output(data={"application/vnd.jupyter.widget-view+json": {}, "text/plain": "W"})
    page = lesson(code("f()", view))
    assert len(found(page, outputs.no_widget_state)) == 1
    page.notebook.metadata["widgets"] = {}
    assert len(found(page, outputs.no_widget_state)) == 2


@pytest.mark.parametrize(
    "bundle",
    [
        {"text/html": None},
        {"text/html": None, "image/png": None, "image/svg+xml": "<svg></svg>"},
        {"text/html": '<img src="a.png">'},
        {"text/html": '<img alt="" src="a.png">'},
        {"text/html": "<img alt=' ' src='a.png'>"},
        {"text/html": f'<img alt="{ALT}" src="a.png"><img src="b.png">'},
        {"text/html": "<svg width='3'><path/></svg>"},
    ],
)
def test_pictures_have_alt(bundle):
    assert len(found(lesson(code("f()", picture(**bundle))), outputs.pictures_have_alt)) == 1


@pytest.mark.parametrize(
    "html",
    [
        "<img alt='A line' src='a'>",
        '<svg role="img" aria-label="A line"><path/></svg>',
        "<svg><title>A line</title></svg>",
        '<svg aria-hidden="true"></svg>',
        "<table></table>",
    ],
)
def test_named_pictures_pass(html):
    page = lesson(code("f()", picture(**{"text/html": html})))
    assert found(page, outputs.pictures_have_alt) == []


@pytest.mark.parametrize(
    "words, fault", [("![](a.png)", 1), ("`![](a.png)`", 0), ("<img src=a>", 1)]
)
def test_pictures_in_text_have_alt(words, fault):
    page = lesson(nbformat.v4.new_markdown_cell(words))
    problems = [p for p in lint.lint(page) if p.rule == "pictures-have-alt"]
    assert len(problems) == fault


def test_pictures_name_no_program():
    png = base64.b64encode(b"\x89PNG tEXtSoftware\0Matplotlib 3.11").decode()
    page = lesson(code("f()", picture(**{"image/png": png})))
    assert len(found(page, outputs.pictures_name_no_program)) == 1


def test_no_addresses():
    said = output("execute_result", data={"text/plain": "<function f at 0x7f2b3c4d5e6f>"})
    assert "0x7f2b3c4d5e6f" in found(lesson(code("f", said)), outputs.no_addresses)[0]
    assert found(lesson(code("f", said, tags=["nbval-ignore-output"])), outputs.no_addresses) == []


@pytest.mark.parametrize(
    "source",
    [
        "start = time.perf_counter()",
        "%timeit f()",
        "print(torch.__version__)",
        'print(f"on {device}")',
        "doctor()",
        "time.time()",
    ],
)
def test_times_are_not_compared(source):
    rule = outputs.times_are_not_compared
    assert len(found(lesson(code(source, stdout("took 3 of 7\n"))), rule)) == 1
    tagged = code(source, stdout("took 3 of 7\n"), tags=["nbval-ignore-output"])
    assert found(lesson(tagged), rule) == []
    sanitised = code(source, stdout("took 12.5 ms, 1,204.5 GB/s, 3.25 s\n"))
    assert found(lesson(sanitised), rule) == []


def test_time_in_words_and_in_comments_is_no_time():
    cell = code("x = 1  # not time.time()\nprint(x)", stdout("1\n"))
    assert found(lesson(cell), outputs.times_are_not_compared) == []
