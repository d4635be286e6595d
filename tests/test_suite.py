"""`course.py test`: what it plans to run, and what it makes of the outcome."""

import sys
from pathlib import Path

import pytest

from tests.conftest import another_seed
from tools import suite
from tools.suite import Outcome, Step

ROOT = Path(__file__).resolve().parent.parent


def names(steps):
    return [step.name for step in steps]


# --- test: what it plans ---


def test_plain_test_leaves_out_the_slow_ones():
    (step,) = suite.plan([], ROOT)
    assert step.command[step.command.index("-m", 3) + 1] == "not slow and not browser"
    assert "tests" in step.command and "--nbval" in step.command
    assert "--nbval-current-env" in step.command
    assert step.workers == suite.workers()


def test_several_processes_keep_each_file_together(monkeypatch):
    monkeypatch.setattr(suite, "workers", lambda: 3)
    command = " ".join(suite.plan([], ROOT)[0].command)
    assert "-n 3 --dist loadfile" in command
    monkeypatch.setattr(suite, "workers", lambda: 1)
    assert " -n " not in " ".join(suite.plan([], ROOT)[0].command)


def test_all_compiles_for_each_chip_and_ends_with_all_tests(monkeypatch):
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda name: object())
    steps = suite.plan(["--all"], ROOT)
    assert names(steps)[:5] == [f"compile {t}" for t in ("sm_80", "sm_90", "sm_100", "sm_120",
                                                         "gfx942")]
    assert names(steps)[5:] == ["browser", "tests and notebooks"]
    assert "not browser" in steps[-1].command and "not slow" not in " ".join(steps[-1].command)


def test_all_says_why_it_skips(monkeypatch):
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(suite, "find_chromium", lambda: None)
    skipped = {step.name: step.skipped for step in suite.plan(["--all"], ROOT) if step.skipped}
    assert "triton" in skipped["compile"] and "Chromium" in skipped["browser"]


@pytest.mark.parametrize("arguments, has_nbval", [
    (["tests/test_course.py"], False),
    (["tests/test_course.py::test_second_run_installs_nothing", "-x"], False),
    (["notebooks"], True),
    (["tests/conftest.py", "solutions"], True),
])
def test_paths_run_alone(arguments, has_nbval):
    (step,) = suite.plan(arguments, ROOT)
    assert step.name == "these tests" and step.workers == 1
    assert ("--nbval" in step.command) == has_nbval
    assert step.command[-1] == (arguments[-1] if arguments[-1].startswith("-") else
                                str(ROOT / arguments[-1]))
    assert not any("not slow" in word for word in step.command)


def test_a_path_is_seen_from_where_it_was_typed():
    (step,) = suite.plan(["test_course.py"], ROOT / "tests")
    assert step.command[-1] == str(ROOT / "tests" / "test_course.py")


@pytest.mark.parametrize("options", [["-x"], ["-k", "kernels"], ["-m", "slow"], ["--maxfail=2"]])
def test_options_alone_change_the_usual_run(options):
    (step,) = suite.plan(options, ROOT)  # `kernels` is a folder too, but here a value
    assert step.name == "tests and notebooks"
    assert list(step.command[-len(options):]) == options
    assert step.command.count("-m") == 2  # python -m pytest, and one choice of marks


def test_all_and_a_path_contradict_each_other(capsys):
    assert suite.main(["--all", "tests"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "--all" in err and err.count("\n") == 1


# --- test: what it makes of the outcome ---


@pytest.fixture
def pytest_over(tmp_path, monkeypatch):
    """A function that runs pytest over one small file, as a step, and returns the outcome."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed: start faster
    return lambda body: run_pytest(tmp_path, body)


def run_pytest(tmp_path, body):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_small.py"
    file.write_text(body)
    return suite.run(suite.pytest_step("small", ["-q", "-p", "no:cacheprovider", str(file)]),
                     tmp_path)


def test_counts_come_from_what_ran(pytest_over, capfd):
    outcome = pytest_over("""
import pytest
def test_good(): pass
def test_better(): pass
def test_bad(): assert 0
@pytest.mark.skip
def test_not(): pass
@pytest.fixture
def broken(): raise ValueError
def test_error(broken): pass
""")
    assert outcome.counts == {"passed": 2, "failed": 2, "skipped": 1}
    assert outcome.code == 1 and suite.exit_code([outcome]) == 1
    assert "2 passed" in capfd.readouterr().out
    suite.summarise([outcome, Outcome(Step("browser", skipped="none here"))], 600)
    shown = capfd.readouterr().out
    assert "small    FAILED (2 passed, 2 failed, 1 skipped)" in shown
    assert "browser  skipped: none here" in shown
    assert shown.splitlines()[-1] == "2 passed, 2 failed, 2 skipped"


def test_no_test_at_all_is_no_success(pytest_over):
    outcome = pytest_over("x = 1\n")
    assert outcome.code == suite.NOTHING_RAN and suite.exit_code([outcome]) == 1


@pytest.mark.parametrize("codes, expected", [
    ([0, 0], 0), ([0, 1], 1), ([1, 0], 1), ([5, 0], 0), ([5, 5], 1), ([0, 4], 2), ([0, -9], 1),
])
def test_exit_codes(codes, expected):
    assert suite.exit_code([Outcome(Step("a", ("x",)), code) for code in codes]) == expected


def test_only_skipped_steps_are_no_success():
    assert suite.exit_code([Outcome(Step("a", skipped="no"))]) == 1


def test_threads_are_shared_between_the_processes(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(suite, "cores", lambda: 13)
    show = (sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])")
    suite.run(Step("threads", show, workers=3), tmp_path)
    assert capfd.readouterr().out.splitlines()[-1] == "4"


def test_over_budget_is_said(capsys):
    assert suite.summarise([Outcome(Step("a", ("x",)), 0, 599.0)], 600)
    assert not suite.summarise([Outcome(Step("a", ("x",)), 0, 601.0)], 600)
    assert "OVER BUDGET" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "ci", "code"), [(601, "true", 1), (601, "", 0), (599, "1", 0)])
def test_over_budget_fails_in_ci_alone(monkeypatch, seconds, ci, code):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(suite, "plan", lambda *_: [Step("a", ("x",))])
    monkeypatch.setattr(suite, "run", lambda step, folder: Outcome(step, 0, seconds))
    monkeypatch.setattr(suite, "own_count", lambda outcome: {"passed": 1})
    assert suite.main([]) == code


@pytest.mark.parametrize(
    ("params", "slow"),
    [
        ({"name": "tiny_v1-text-seed0"}, False),
        ({"steps": 4, "name": "tiny_v4_1-recall-seed2"}, True),
        ({"seed": 1}, False),
        ({}, False),
    ],
)
def test_other_seeds_of_a_trained_model_are_for_the_full_suite(params, slow):
    assert another_seed(params) is slow
