"""`course.py test`: the tests, every notebook, and with --all the slow proofs as well.

    test               tests/ without the slow ones, and every lesson and solution notebook
                       run again and compared with the outputs stored in it
    test --all         first each kernel compiled for five chips, then the browser tests,
                       then all tests and notebooks
    test PATH ...      only these tests or notebooks; other arguments go to pytest
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from tools.chromium import find_chromium, why_none

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942")
NOTEBOOKS = ("notebooks", "solutions")
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
BUDGET_S = {False: 10 * 60, True: 45 * 60}
TAKES_A_VALUE = {"-k", "-m", "-p", "-n", "-o", "-c", "-W", "-r"}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
NOTHING_RAN = 5  # pytest's exit code where no test was selected
USAGE = 4  # pytest's exit code where it does not understand its arguments


@dataclass(frozen=True)
class Step:
    """One thing to run: its name, its command, and how many processes it runs at once."""

    name: str
    command: tuple[str, ...] = ()
    workers: int = 1
    skipped: str = ""  # why it cannot run here; empty where it can


@dataclass(frozen=True)
class Outcome:
    """How a step ended: exit code, seconds, and its tests where it was pytest."""

    step: Step
    code: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)  # passed, failed, skipped

    def words(self) -> str:
        """Return the outcome in a few words."""
        if self.step.skipped:
            return f"skipped: {self.step.skipped}"
        result = {0: "passed", NOTHING_RAN: "nothing to run"}.get(self.code, "FAILED")
        tests = ", ".join(f"{number} {kind}" for kind, number in self.counts.items())
        return f"{result}{f' ({tests})' if tests else ''} in {self.seconds:.0f} s"


def cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers() -> int:
    """Return how many test processes run side by side: each loads torch, so at most four."""
    return min(cores(), 4)


def nbval_options() -> list[str]:
    """Return pytest's options for running notebooks and comparing their outputs."""
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120"]
    if SANITIZE.exists():
        options += ["--nbval-sanitize-with", str(SANITIZE)]
    return options


def pytest_step(name: str, arguments: list[str], processes: int = 1) -> Step:
    """Return a step that runs pytest, by files over several processes if so wanted."""
    spread = ["-n", str(processes), "--dist", "loadfile"] if processes > 1 else []
    command = (sys.executable, "-m", "pytest", *spread, *arguments)
    return Step(name, command, processes)


def everything(marks: str, extra: list[str]) -> Step:
    """Return the step that runs all tests with these marks, and all built notebooks."""
    where = ["tests", *(folder for folder in NOTEBOOKS if any((ROOT / folder).glob("*.ipynb")))]
    chosen = [] if "-m" in extra else ["-m", marks]
    options = [*nbval_options(), "--ignore-glob=*/tests/*.ipynb", *chosen, *extra]
    return pytest_step("tests and notebooks", [*where, *options], workers())


def compile_steps() -> list[Step]:
    """Return a step for each chip that every kernel is compiled for, without that chip."""
    if importlib.util.find_spec("triton") is None:
        return [Step("compile", skipped="triton has no build for this system")]
    compile_ = (sys.executable, "-m", "kernels", "compile", "--target")
    return [Step(f"compile {target}", (*compile_, target)) for target in TARGETS]


def browser_step(extra: list[str]) -> Step:
    """Return the step that drives JupyterLab in a browser: alone, since it times it."""
    if find_chromium() is None:
        return Step("browser", skipped=why_none())
    if not any((ROOT / "tests" / "browser").glob("test_*.py")):
        return Step("browser", skipped="there are no tests in tests/browser")
    return pytest_step("browser", ["tests/browser", *extra])


def given_paths(arguments: list[str], start: Path) -> list[str]:
    """Return the arguments that name a test or a folder, seen from `start` or the root."""
    pairs = zip(["", *arguments], arguments)
    words = [word for before, word in pairs if before not in TAKES_A_VALUE]
    names = [word for word in words if not word.startswith("-")]
    return [name for name in names if path_of(name, start) is not None]


def path_of(name: str, start: Path) -> Path | None:
    """Return the file or folder of a test's name (`PATH` or `PATH::test`), if there is one."""
    path = Path(name.split("::")[0])
    return next((at / path for at in (start, ROOT) if (at / path).exists()), None)


def only(arguments: list[str], paths: list[str], start: Path) -> Step:
    """Return the step that runs what these paths say and nothing else."""
    full = {}
    for name in paths:
        path = path_of(name, start).resolve()
        full[name] = str(path) + name[len(name.split("::")[0]) :]
    inside = [Path(path.split("::")[0]) for path in full.values()]
    folders = [ROOT / folder for folder in NOTEBOOKS]
    notebooks = any(
        path.suffix == ".ipynb" or any(path.is_relative_to(folder) for folder in folders)
        for path in inside
    )
    rest = [full.get(word, word) for word in arguments]
    return pytest_step("these tests", [*(nbval_options() if notebooks else []), *rest])


def plan(arguments: list[str], start: Path) -> list[Step]:
    """Return the steps that the arguments of `test` ask for, in order.

    Raises ValueError where --all and single paths contradict each other.
    """
    whole = "--all" in arguments
    extra = [word for word in arguments if word != "--all"]
    paths = given_paths(extra, start)
    if whole and paths:
        raise ValueError(f"Say either --all or what to run ({paths[0]}), not both.")
    if paths:
        return [only(extra, paths, start)]
    if whole:
        return [*compile_steps(), browser_step(extra), everything("not browser", extra)]
    return [everything("not slow and not browser", extra)]


def run(step: Step, folder: Path) -> Outcome:
    """Run a step and return its outcome; its output goes where this process's goes."""
    if step.skipped:
        print(f"\n== {step.name}: skipped, {step.skipped}", flush=True)
        return Outcome(step)
    print(f"\n== {step.name}", flush=True)
    command = list(step.command)
    report = folder / f"{step.name.replace(' ', '-')}.xml"
    if "pytest" in command:
        command.insert(command.index("pytest") + 1, f"--junitxml={report}")
    setting = dict.fromkeys(THREADS, str(max(1, cores() // step.workers)))
    setting["COURSE_PROGRESS"] = str(folder / "progress")  # a test is no learner's progress
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **setting})
    try:
        code = child.wait()
    except KeyboardInterrupt:
        try:
            child.wait(timeout=15)  # Ctrl-C reached it too: let it say how far it came
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
        raise
    return Outcome(step, code, time.monotonic() - start, read_counts(report))


def read_counts(report: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped, from pytest's XML report."""
    if not report.exists():
        return {}
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in ElementTree.parse(report).iter("testsuite"):
        for name in total:
            total[name] += int(suite.get(name, 0))
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    return {"passed": passed, "failed": failed, "skipped": total["skipped"]}


def exit_code(outcomes: list[Outcome]) -> int:
    """Return 0 where all went well, 1 where a check failed, 2 where the call made no sense."""
    codes = [outcome.code for outcome in outcomes if not outcome.step.skipped]
    if USAGE in codes:
        return 2
    ran = [code for code in codes if code != NOTHING_RAN]
    return 0 if ran and not any(ran) else 1


def summarise(outcomes: list[Outcome], budget_s: float) -> bool:
    """Print what ran and how it ended, then one line that counts it all; -> was it in time?"""
    print("\n== what ran")
    width = max(len(outcome.step.name) for outcome in outcomes)
    for outcome in outcomes:
        print(f"{outcome.step.name:<{width}}  {outcome.words()}")
    seconds = sum(outcome.seconds for outcome in outcomes)
    over = " OVER BUDGET" if seconds > budget_s else ""
    print(f"{seconds:.0f} s of a budget of {budget_s:.0f} s{over}")
    total = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for outcome in outcomes:
        counts = outcome.counts or own_count(outcome)
        for kind in total:
            total[kind] += counts.get(kind, 0)
    print(", ".join(f"{number} {kind}" for kind, number in total.items()))
    return seconds <= budget_s


def own_count(outcome: Outcome) -> dict[str, int]:
    """Count a step that is not pytest, or one of pytest that never came to a report, as one."""
    if outcome.step.skipped:
        return {"skipped": 1}
    return {} if outcome.code == NOTHING_RAN else {"failed" if outcome.code else "passed": 1}


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for; return 0, 1 or 2 as course.py promises."""
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    try:
        steps = plan(arguments, Path.cwd())
        with tempfile.TemporaryDirectory(prefix="course-test-") as folder:
            outcomes = [run(step, Path(folder)) for step in steps]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped before the end.", file=sys.stderr)
        return 2
    in_time = summarise(outcomes, BUDGET_S["--all" in arguments])
    late = bool(os.environ.get("CI")) and not in_time  # a learner's machine may be slower
    return exit_code(outcomes) or int(late)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
