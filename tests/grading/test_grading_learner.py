"""Hints, guesses, progress and the learner's own parts."""

import json
import linecache
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grading import check, hint, my_parts, predict, progress
from grading.gather import NotGathered, gather
from grading.own_parts import load
from grading.status import status_lines

ROOT = Path(__file__).resolve().parents[2]


def from_a_notebook(source, name, **world):
    """A function as a notebook defines it: its source is known, its module is __main__."""
    filename = f"/tmp/ipykernel_1/{abs(hash(source))}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace = {"__name__": "__main__", **world}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]


SOLVED = '''
def causal_attention(query_BTHD: torch.Tensor, key_BSHD, value_BSHD):
    """From the learner's notebook."""
    score = torch.einsum("bthd,bshd->bhts", query_BTHD, key_BSHD) * scale_of(query_BTHD)
    return torch.einsum("bhts,bshd->bthd", hidden(score).softmax(-1), value_BSHD)

def scale_of(query):
    return query.shape[-1] ** EXPONENT

def hidden(score):
    T, S = score.shape[-2:]
    return score.masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(S - T), -math.inf)
'''


@pytest.fixture
def solved():
    import math

    return from_a_notebook(SOLVED, "causal_attention", torch=torch, math=math, EXPONENT=-0.5)


def test_hints_come_one_by_one_and_the_last_stays():
    texts = [str(hint("01.4")) for _ in range(5)]
    assert [text.split(":")[0] for text in texts] == [
        "01.4, hint 1 of 3", "01.4, hint 2 of 3", *["01.4, hint 3 of 3"] * 3
    ]  # fmt: skip
    assert repr(hint("01.4", 1)) == texts[0]
    assert "hints 1 to 3" in hint("01.4", 9) and "hints 1 to 3" in hint("01.4", "x")
    assert "there are 00.1" in hint("77.7")


def test_what_predict_shows_depends_on_its_arguments_alone():
    shown = []
    for _ in range(2):  # the second time, guesses are there already
        shown.append([
            repr(predict("01-a", ...)),
            repr(predict("01-a", ..., answer=40)),
            repr(predict("01-a", 10)),
            repr(predict("01-a", 10, answer=40, unit="bytes")),
            repr(predict("01-b", "keys", answer="Keys")),
            repr(predict("01-c", 80, answer=40)),
            repr(predict("01-d", 40.4, answer=40)),
        ])  # fmt: skip
    assert shown[0] == shown[1]
    assert "No guess yet" in shown[0][0] and "No guess was made" in shown[0][1]
    assert shown[0][3] == "The answer is 40 bytes; you guessed 10 bytes, 4 times too little."
    assert "your guess was right" in shown[0][4] and "2 times too much" in shown[0][5]
    assert "your guess was right" in shown[0][6]
    summary = repr(predict("01"))
    assert summary.startswith("Chapter 01: 2 of 4 guesses were right.")
    assert "01-a: The answer is 40 bytes" in summary and "01-b" not in summary
    assert repr(predict("02")) == "No guesses are kept for chapter 02."


def test_a_passed_exercise_is_kept_with_what_it_leans_on(solved, own_progress):
    assert check("01.1", solved).status == "passed"
    again = load("01.1", progress.kept_source("01.1"))
    x = torch.randn(2, 3, 5, 7)
    torch.testing.assert_close(again(x, x, x), solved(x, x, x))
    assert [path.name for path in (own_progress / "parts").iterdir()] == ["01.1.py"]


def test_a_failed_exercise_and_a_solution_notebook_keep_nothing(solved, monkeypatch):
    check("01.1", lambda q, k, v: v)
    assert progress.kept_source("01.1") is None
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/course/solutions/01__attention.ipynb")
    check("01.1", solved)
    assert progress.kept_source("01.1") is None
    assert len(list(progress.events("check", "01.1"))) == 1


def test_a_lambda_is_not_kept_with_the_statement_around_it():
    for answer in (lambda x: x,):
        with pytest.raises(NotGathered, match="no def or class of its own"):
            gather(answer)


def test_what_cannot_be_gathered_is_said():
    def outer():
        hidden = 3
        return lambda n: n * hidden

    with pytest.raises(NotGathered, match="inside another function"):
        gather(outer())
    model = object()
    function = from_a_notebook("def f(n):\n    return model\n", "f", model=model)
    with pytest.raises(NotGathered, match="model is a object"):
        gather(function)
    with pytest.raises(NotGathered, match="no source"):
        gather(3)


def test_my_parts_are_mine_where_passed_and_the_courses_elsewhere(solved, capsys):
    parts = my_parts()
    assert parts.own() == ()
    assert "not passed yet" in capsys.readouterr().out

    check("01.1", solved)
    parts = my_parts()
    assert parts.own() == ("attention",)
    assert "yours, from exercise 01.1" in capsys.readouterr().out
    query, key, value = torch.randn(2, 3, 6, 7), torch.randn(2, 5, 3, 7), torch.randn(2, 5, 3, 7)
    from tinymodels.parts import Parts

    expected = Parts().attention(query, key, value)
    torch.testing.assert_close(parts.attention(query, key, value), expected)
    with pytest.raises(ValueError, match="window"):
        parts.attention(query, key, value, window=3)


def test_a_passed_exercise_that_cannot_be_kept_is_said(capsys):
    from functools import partial

    source = SOLVED.replace("hidden(score).soft", "mask(score).soft")
    mask = partial(from_a_notebook(SOLVED, "hidden", torch=torch, math=__import__("math")))
    world = {"torch": torch, "mask": mask, "EXPONENT": -0.5}
    assert check("01.1", from_a_notebook(source, "causal_attention", **world)).status == "passed"
    assert my_parts().own() == ()
    assert "could not be kept: mask is a partial" in capsys.readouterr().out


def test_a_broken_part_does_not_block_the_chapter(capsys):
    for source in ("# name: f\nraise OSError('gone')\n", "# name: f\ndef g(: pass", "nothing"):
        progress.keep_source("01.1", source)
        assert my_parts().own() == ()
        assert "yours could not be used" in capsys.readouterr().out


def test_status_has_one_line_an_exercise(solved):
    hint("01.4")
    check("01.1", lambda q, k, v: v)
    check("01.1", solved)
    check("01.1", lambda q, k, v: v)  # a later failure takes nothing away
    lines = {line.split()[0]: line for line in status_lines()}
    assert all(words in lines["01.1"] for words in ("passed", "3/3 points", "3 tries"))
    assert "1 hint" in lines["01.4"] and "not attempted" in lines["01.4"]
    assert "(optional)" in lines["01.5"]


def test_two_notebooks_that_write_at_once_lose_nothing(own_progress):
    code = (
        "import sys\nfrom grading import progress\n"
        "for n in range(200):\n"
        "    progress.write_event('check', sys.argv[1], n=n, padding='x' * 500)\n"
        "    progress.keep_source('01.1', sys.argv[1] * 5000)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT) for name in "ab"]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0]
    for name in "ab":
        assert [event["n"] for event in progress.events("check", name)] == list(range(200))
    lines = (own_progress / "journal.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines if line]) == 400
    assert progress.kept_source("01.1") in ("a" * 5000, "b" * 5000)
    assert len(list((own_progress / "parts").iterdir())) == 1


def test_a_damaged_journal_and_a_locked_folder_stop_nothing(own_progress, monkeypatch, tmp_path):
    hint("01.1")
    with open(own_progress / "journal.jsonl", "a") as file:
        file.write('[1]\n{"kind": "hint", "id": "01.1", "st')
    assert str(hint("01.1")).startswith("01.1, hint 2")
    assert str(hint("01.1")).startswith("01.1, hint 3"), "the cut line swallowed the next one"
    with open(own_progress / "journal.jsonl", "a") as file:  # by hand, or by a later course
        file.write('{"kind": "check", "id": "01.1", "status": null, "earned": null}\n')
        file.write('{"kind": "check", "id": "01.1", "status": 7, "earned": "2"}\n')
        file.write('{"kind": "hint", "id": "01.1", "step": [4]}\n')
    line = next(line for line in status_lines() if line.startswith("01.1"))
    assert line.endswith("0/3 points, 2 tries, 3 hints"), line
    assert str(hint("01.1")).startswith("01.1, hint 4")
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "a file" / "progress"))
    assert str(hint("01.1")).startswith("01.1, hint 1")
    assert predict("01-a", 3).startswith("Kept")
    assert status_lines()


def test_a_chapter_brings_its_own_parts_and_equivalents(capsys, monkeypatch):
    from types import SimpleNamespace

    from grading import checks, equivalents

    def fit(mine):
        return lambda gate, up, limit=None: mine(gate, up)

    chapter = SimpleNamespace(PARTS={"04.9": ("swiglu", fit)})
    monkeypatch.setattr(checks, "CHAPTERS", (*checks.CHAPTERS, chapter))
    progress.keep_source("04.9", "# name: f\ndef f(gate, up):\n    return gate + up\n")
    parts = my_parts()
    assert parts.own() == ("swiglu",) and parts.swiglu(1, 2) == 3
    assert "swiglu: yours, from exercise 04.9" in capsys.readouterr().out
    assert "01.1" in equivalents.EQUIVALENT
    assert [e.id for e in checks.EXERCISES] == sorted(e.id for e in checks.EXERCISES)


def test_a_hint_is_about_what_failed_and_no_hint_comes_twice():
    """After a failed check the tied hint; then the others in order; then the last again."""
    result = check("01.1", lambda q, k, v: torch.zeros_like(q))  # no mistake that has a name
    assert result.misconception is None and "gives a hint" in str(result.message)

    def unscaled(query, key, value):
        T, S = query.shape[1], key.shape[1]
        later = torch.arange(S) > torch.arange(S - T, S)[:, None]
        score = torch.einsum("bthd,bshd->bhts", query, key).masked_fill(later, float("-inf"))
        return torch.einsum("bhts,bshd->bthd", score.softmax(-1), value)

    result = check("01.1", unscaled)
    assert result.misconception == "no_scale"
    assert result.message.endswith('hint("01.1", 2) is about this.')
    steps = [str(hint("01.1")).split(":")[0].split()[2] for _ in range(5)]
    assert steps == ["2", "1", "3", "4", "4"]
    check("01.1", lambda query, key, value: unscaled(query, key, value)[..., :-1])
    assert str(hint("01.1")).startswith("01.1, hint 4"), "all are open: the last one again"


def test_every_tie_of_a_hint_names_something_that_can_fail():
    from grading.checks import EXERCISES
    from grading.hints import hint_for
    from grading.judge import STAGES

    for exercise in EXERCISES:
        names = {mistake.name for mistake in exercise.misconceptions}
        names |= {part.name for part in exercise.parts} | set(STAGES)
        for text in exercise.hints:
            assert set(getattr(text, "about", ())) <= names, (exercise.id, text)
    for exercise in EXERCISES:
        if exercise.id[:2] in ("00", "01", "02", "03", "04", "05"):
            untied = [m.name for m in exercise.misconceptions
                      if hint_for(exercise.hints, [m.name]) is None]  # fmt: skip
            assert not untied, (exercise.id, untied)
