"""The process that stands ready: the course imported once, a fresh fork for every use.

    python -m grading.warm_process CHECKS       one line of JSON in, one line of JSON out

Importing torch takes longer than grading a notebook. So this process does it once, runs no
learner's code itself, and forks: a kernel for a notebook (`start`), and, apart from it, a
judge for what the kernel has shown (`judge`). What a learner patches, breaks or fills up
is gone with the fork, and nothing of it is there where the answers are judged.

Where forking is unsafe (macOS, Windows, or COURSE_COLD set) kernels are started cold and
judging happens here.
When its standard input ends, so do its children.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

CAN_FORK = sys.platform == "linux" and not os.environ.get("COURSE_COLD")
JUDGE_SLACK = 10.0  # seconds a judge may take longer than the exercise's own limit
_BECOME_PARENT_OF_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


class Ready:
    """The state: what is imported, and the kernels that run, by process id."""

    def __init__(self, checks: str) -> None:
        before = dict(os.environ)
        self.exercises = {e.id: e for e in importlib.import_module(checks).EXERCISES}
        self.kernels: dict[int, Path] = {}
        self.codes: dict[int, int] = {}  # exit codes of kernels that have ended
        self.popen: dict[int, subprocess.Popen] = {}  # the cold ones
        _import_more()
        # What the imports have set (whether triton interprets, say) belongs to them.
        self.environment = {k: v for k, v in os.environ.items() if before.get(k) != v}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("do"):
            case "describe":
                return {"exercises": [_outline(e) for e in self.exercises.values()]}
            case "start":
                return self.start(**request)
            case "exit_code":
                return {"code": self.exit_code(request["pid"])}
            case "end":
                return {"code": self.end(request["pid"])}
            case "judge":
                return self.judge(**request)
            case other:
                return {"trouble": f"no such request: {other}"}

    def start(self, folder: str, environment: dict[str, str]) -> dict[str, Any]:
        place = Path(folder)
        environment = environment | self.environment
        if CAN_FORK:
            pid = os.fork()
            if pid == 0:
                _become_kernel(place, environment | {"JPY_PARENT_PID": str(os.getppid())})
        else:
            process = _cold_kernel(place, environment | {"JPY_PARENT_PID": str(os.getpid())})
            pid = process.pid
            self.popen[pid] = process
        self.kernels[pid] = place
        return {"pid": pid}

    def exit_code(self, pid: int) -> int | None:
        """None while the kernel runs; negative where a signal ended it."""
        if pid in self.popen:
            return self.popen[pid].poll()
        if pid not in self.codes and pid not in self.kernels:
            return -9  # a kernel of another such process, which it cannot outlive
        if pid not in self.codes:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        return self.codes.get(pid)

    def end(self, pid: int) -> int | None:
        """End a kernel, what it has started, and what has broken away from it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(pid, signal.SIGKILL)
            else:
                self.popen[pid].kill()
        while (code := self.exit_code(pid)) is None:
            time.sleep(0.002)
        shutil.rmtree(self.kernels.pop(pid, ""), ignore_errors=True)
        if CAN_FORK:
            _end_orphans(set(self.kernels))
        return code

    def judge(self, id: str, seeds: list[int], evidence: str, token: str) -> dict[str, Any]:
        from grading.judging import judge_file

        exercise = self.exercises[id]
        if not CAN_FORK:
            return judge_file(exercise, seeds, Path(evidence), token)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _become_judge(writing, lambda: judge_file(exercise, seeds, Path(evidence), token))
        os.close(writing)
        return _read_answer(pid, reading, exercise.seconds + JUDGE_SLACK)

    def close(self) -> None:
        for pid in list(self.kernels):
            self.end(pid)


def _outline(exercise: Any) -> dict[str, Any]:
    names = ("id", "title", "notebook", "points", "optional", "seconds")
    return {name: getattr(exercise, name) for name in names}


def _become_kernel(folder: Path, environment: dict[str, str]) -> NoReturn:
    """In the fork: leave behind all that is the grader's, and be an ordinary kernel."""
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        os.chdir(folder / "work")
        sys.path[0] = str(folder / "work")
        nothing = os.open(os.devnull, os.O_RDWR)
        errors = os.open(folder / "stderr.txt", os.O_WRONLY | os.O_CREAT, 0o600)
        for target, source in ((0, nothing), (1, nothing), (2, errors)):
            os.dup2(source, target)
        os.closerange(3, 256)  # the pipes to the grader are none of its business
        sys.stdin, sys.stdout, sys.stderr = (open(fd, mode) for fd, mode in ((0, "r"), (1, "w"),
                                                                            (2, "w")))  # fmt: skip
        if torch := sys.modules.get("torch"):  # it was imported when one thread was asked for
            asked = environment.get("OMP_NUM_THREADS", "")
            torch.set_num_threads(int(asked) if asked.isdigit() else os.cpu_count() or 1)
        from grading import boxed_kernel

        sys.argv = ["kernel", "-f", str(folder / "connection.json"),
                    "--HistoryManager.enabled=False"]  # fmt: skip
        boxed_kernel.main()
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def _become_judge(writing: int, judge: Any) -> NoReturn:
    try:
        text = json.dumps(judge())
    except BaseException as error:
        text = json.dumps({"trouble": f"{type(error).__name__}: {error}"})
    with open(writing, "w", encoding="utf-8") as pipe:
        pipe.write(text)
    os._exit(0)


def _read_answer(pid: int, reading: int, seconds: float) -> dict[str, Any]:
    """What the judge wrote until it ended; a judge that takes too long is ended."""
    import select

    end, pieces = time.monotonic() + seconds, []
    while select.select([reading], [], [], max(end - time.monotonic(), 0))[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return json.loads(b"".join(pieces))
    except ValueError:
        return {"trouble": f"judging took longer than {seconds:g} seconds"}


def _cold_kernel(folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "grading.boxed_kernel", "-f", str(folder / "connection.json")]
    command.append("--HistoryManager.enabled=False")
    with open(folder / "stderr.txt", "wb") as errors:
        return subprocess.Popen(
            command, cwd=folder / "work", env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=errors, start_new_session=os.name == "posix",
        )  # fmt: skip


def _adopt_orphans() -> None:
    """Children that a learner's code has cut loose become ours, so that they can be ended."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_BECOME_PARENT_OF_ORPHANS, 1, 0, 0, 0)


def _end_orphans(known: set[int]) -> None:
    while orphans := _children() - known:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> set[int]:
    found, me = set(), os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{name}/stat").read_text()
            if int(stat.rpartition(")")[2].split()[1]) == me:
                found.add(int(name))
    return found


def _import_more() -> None:
    """What every kernel and judge needs, imported once."""
    if not CAN_FORK:
        return

    import grading.boxed_kernel
    import grading.graded
    import grading.judging  # noqa: F401

    if "torch" in sys.modules:  # and what the course's own setup cells import
        for name in ("kernels.backend", "tinymodels.parts"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        with contextlib.suppress(ImportError):
            importlib.import_module("kernels.backend").triton  # noqa: B018
    _adopt_orphans()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever is printed here is no answer
    ready = Ready(sys.argv[1])
    try:
        for line in sys.stdin:
            try:
                answer = ready.answer(json.loads(line))
            except Exception as error:
                answer = {"trouble": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        ready.close()
        if Path.cwd().name.startswith("course-grader-"):  # ours, and the grader may be gone
            shutil.rmtree(Path.cwd(), ignore_errors=True)
        os._exit(0)  # at once: tearing torch down takes longer than all the rest


if __name__ == "__main__":
    main()
