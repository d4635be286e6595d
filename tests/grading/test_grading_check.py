"""check(): the statuses, the order of its steps, and the words it uses. Fast, without torch
where the answer is a number."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import grading.learner
from grading import check, hint
from grading.draw import CHECK_SEEDS
from grading.exercise import Case, Exercise, Expected, Misconception, Part
from grading.hints import tied
from grading.result import STATUSES, Result
from grading.verdict import assess
from tests.grading import tiny_checks

TINY = tiny_checks.EXERCISES[-1]


def tensor_exercise(**changes):
    """y = 2 x for x [B=3, T=5], and at most 4 looks at x."""
    exercise = Exercise(
        id="91.1",
        title="Twice",
        notebook="91",
        parts=(Part("values", 2), Part("thrift", 1)),
        cases=lambda draw: (Case("values", "B=3, T=5", {"x": draw.normal(3, 5)}),),
        run=lambda answer, inputs: dict(zip(("y", "looks"), answer(inputs["x"]))),
        expected=lambda inputs: {
            "y": Expected(2 * np.asarray(inputs["x"], np.float64), "BT"),
            "looks": Expected(np.array(4.0), kind="cost", part="thrift", too_much="Too many"),
        },
        hints=("Think.", "Add."),
        misconceptions=(Misconception("thrice", "This is three times x.", lambda x: (3 * x, 4)),),
    )
    return replace(exercise, **changes)


def verdict(answer, **changes):
    return assess(tensor_exercise(**changes), answer, CHECK_SEEDS)


def stub_with_docstring(x):
    """Twice x."""
    ...


class EmptyClass:
    """A cache."""

    def extend(self, entries):
        """Store the entries."""
        ...


@pytest.mark.parametrize(
    "untouched", [..., None, stub_with_docstring, EmptyClass, lambda x: None, lambda x: ...]
)
def test_an_untouched_stub_is_not_attempted(untouched):
    assert verdict(untouched).status == "not_attempted"


def starts_but_is_wrong(x):
    y = x
    ...
    return y, 4


class HalfClass(EmptyClass):
    def __init__(self):
        self.rows = 0


@pytest.mark.parametrize("begun", [starts_but_is_wrong, lambda x: 3, HalfClass])
def test_what_was_begun_counts_as_attempted(begun):
    assert verdict(begun).status in ("wrong", "error")


def test_a_gap_inside_given_code_is_not_attempted():
    def given_around(x):
        y = x + x
        ...
        return y, 9

    assert verdict(given_around, placeholder=True).status == "not_attempted"
    assert verdict(given_around).status == "partly"


def mutates(x):
    y = 2 * x
    x.zero_()
    return y, 1


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (lambda x: (2 * x, 4), "passed", ""),
        (lambda x: (x + x, 5), "partly", "Too many (looks: 5 counted, 4 would do)"),
        (lambda x: (3 * x, 4), "wrong", "This is three times x."),
        (lambda x: (None, 0), "wrong", "y should be a torch tensor, and nothing (None) came back"),
        (lambda x: ((2 * x).tolist(), 0), "wrong", "type list came back"),
        (lambda x: ((2 * x).numpy(), 0), "wrong", "type ndarray came back"),
        (lambda x: (2 * x[:, :4], 0), "wrong", "axis 1 (new tokens) is 4 instead of 5"),
        (lambda x: (2 * x[0], 0), "wrong", "1 axes; it should have 2: [B=3, T=5]"),
        (lambda x: ((2 * x).long(), 0), "wrong", "dtype int64; float32"),
        (lambda x: ((2 * x).bfloat16(), 0), "wrong", "dtype bfloat16; float32"),
        (lambda x: ((2 * x).half(), 0), "wrong", "dtype float16; float32"),
        (lambda x: (2 * x / 0, 0), "wrong", "infinite at batch 0, token 0"),
        (lambda x: (2 * x * float("nan"), 0), "wrong", "NaN (not a number)"),
        (mutates, "wrong", "changed its input `x`"),
        (lambda x: (2 * x + torch.eye(3, 5) * (x > 9), 0), "passed", ""),
        (lambda x: (2 * x + torch.eye(3, 5).roll(1, 0), 0), "wrong",
         "y first differs at batch 0, token 2"),
        (lambda x: 1 / 0, "error", "ZeroDivisionError: division by zero in the line"),
        (lambda x: exit(), "error", "SystemExit"),
        (torch.ones(3), "wrong", "pass the function itself"),
        (42, "wrong", "type int was passed in"),
    ],
)  # fmt: skip
def test_status_and_words(answer, status, words):
    result = verdict(answer)
    assert (result.status, words in result.message) == (status, True), result
    assert result.earned == {"passed": 3, "partly": 2}.get(status, 0)
    assert "Right already: thrift" not in result.message, "a wrong answer earned its thrift"


def test_shape_comes_before_values_and_values_before_cost():
    """Of two things wrong the message tells the first, the cause."""
    assert "axis 1" in verdict(lambda x: (3 * x[:, :4].long(), 9)).message
    assert "dtype" in verdict(lambda x: ((3 * x).long(), 9)).message
    result = verdict(lambda x: (4 * x, 9))
    assert "first differs" in result.message and "Too many" not in result.message


def test_an_answer_without_one_finite_number_gets_no_name():
    """Many roads lead to NaN: the check does not say which one was taken."""
    lost = Misconception("lost", "This is lost.", lambda x: (x * float("nan"), 4))
    half = Misconception("half", "This is half lost.", lambda x: (x / (x > 0), 4))
    for mistake, name in ((lost, None), (half, "half")):
        result = verdict(lambda x, answer=mistake.answer: answer(x), misconceptions=(lost, half))
        assert (result.status, result.misconception) == ("wrong", name)


class AlwaysEqual:
    def __eq__(self, other):
        return True

    def __float__(self):
        return 2.0


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        return torch.ones(3, 5, dtype=torch.bool)


def test_an_object_that_equals_everything_fails():
    assert assess(TINY, lambda n: AlwaysEqual(), CHECK_SEEDS).status == "wrong"
    assert assess(TINY, lambda n: True, CHECK_SEEDS).status == "wrong"
    assert verdict(lambda x: (x.as_subclass(LyingTensor), 0)).status in ("wrong", "error")


def test_a_loop_without_end_is_stopped():
    def endless(number):
        while True:
            pass

    begin = time.monotonic()
    result = assess(replace(TINY, seconds=0.5), endless, CHECK_SEEDS)
    assert result.status == "timeout" and "never ends" in result.message
    assert time.monotonic() - begin < 30

    def interrupted(number):
        raise KeyboardInterrupt

    assert assess(TINY, interrupted, CHECK_SEEDS).status == "timeout"


def test_the_timer_is_gone_after_a_check():
    assert assess(replace(TINY, seconds=0.3), lambda n: 2 * n, CHECK_SEEDS).status == "passed"
    time.sleep(0.5)  # a timer left on would end the test run here


def test_an_unknown_id_names_the_valid_ones():
    for id in ("01.99", None, 1.1, ["01.1"]):
        result = check(id, lambda: 0)
        assert result.status == "error"
        assert "01.1" in result.message and "00.1" in result.message


def test_unavailable_earns_nothing_and_says_why():
    result = verdict(lambda x: (2 * x, 0), unavailable=lambda: "this exercise needs a telescope")
    assert (result.status, result.message) == ("unavailable", "this exercise needs a telescope")


def test_a_fault_of_the_check_itself_does_not_raise():
    def broken(draw):
        raise RuntimeError("no cases")

    result = verdict(lambda x: x, cases=broken)
    assert result.status == "error" and "could not be carried out" in result.message


def test_text_is_the_same_each_time_and_html_is_escaped():
    first, second = (verdict(lambda x: (3 * x, 4)) for _ in range(2))
    assert repr(first) == repr(second) and str(first.seconds) not in ("", repr(first))
    assert repr(first).splitlines()[0] == "✗ 91.1 Twice: wrong (0 of 3 points)"
    result = Result("91.1", "<b>", "wrong", 1, 0, "a < b & c")
    assert "a &lt; b &amp; c" in result._repr_html_() and "<b>" not in result._repr_html_()
    marked = Result("91.1", "", "wrong", 1, 0, "in the line `x < y`, not `z`.")._repr_html_()
    assert "<code>x &lt; y</code>, not <code>z</code>." in marked
    with pytest.raises(ValueError, match="status"):
        Result("91.1", "", "fine", 1, 0, "")
    assert set(STATUSES) >= {"passed", "partly", "wrong", "not_attempted", "unavailable"}


def test_importing_grading_imports_neither_torch_nor_triton():
    import subprocess
    import sys

    code = "import grading, sys; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in ran.stdout and "triton" not in ran.stdout
    assert grading.learner.__all__ == ["check", "hint", "my_parts", "predict"]


def three_sizes(draw):
    return tuple(Case("values", f"B={b}, T=5", {"x": draw.normal(b, 5)}) for b in (3, 7, 6))


def test_one_of_two_mistakes_is_told_where_it_explains_most_cases():
    """No single mistake explains all cases: the one that explains most is told, as one of two."""

    def thrice_and_one_more(x):
        return 3 * x + (len(x) == 7), 4

    result = verdict(
        thrice_and_one_more, cases=three_sizes, hints=("Think.", tied("Add.", "thrice"))
    )
    wrong = len(CHECK_SEEDS) * 3
    assert result.message.startswith("This is three times x. (That explains")
    assert f"explains {wrong * 2 // 3} of the {wrong} cases" in result.message
    assert "y first differs" in result.message and 'hint("91.1", 2)' in result.message
    assert result.misconception is None  # it is not all that is wrong: no report counts it


@pytest.mark.parametrize("sizes", [(3,), (7, 6)])
def test_a_mistake_is_not_told_where_it_may_be_chance(sizes):
    """It explains too few of the failing cases, or not the first of them."""
    result = verdict(lambda x: ((3 if len(x) in sizes else 5) * x, 4), cases=three_sizes)
    assert "three times" not in result.message


def test_a_hint_breaks_its_lines_and_sets_code_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path))
    hints = ("Use `a < b`.",)
    monkeypatch.setattr("grading.learner._find", lambda id: (tensor_exercise(hints=hints), ""))
    advice = hint("91.1")
    assert advice == "91.1, hint 1 of 1: Use `a < b`. That was the last one."
    assert "Use <code>a &lt; b</code>." in advice._repr_html_()
