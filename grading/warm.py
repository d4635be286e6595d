"""The grader's side of the process that stands ready: ask it, and start another if it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PASSED_ON = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "KVC_BACKEND", "COURSE_BOX_MEMORY", "COURSE_COLD",
)  # fmt: skip


class BoxFailed(RuntimeError):
    """A process could not be started: a fault of the machine, not of the learner."""


@dataclass(frozen=True)
class Outline:
    """What the grader must know of an exercise, without importing what it is checked with."""

    id: str
    title: str
    notebook: str
    points: float
    optional: bool
    seconds: float


class Warm:
    """One such process. For one thread at a time; a `with` block ends it."""

    def __init__(
        self,
        checks: str,
        python_path: Sequence[Path] = (),
        closed: Sequence[Path] = (),
        threads: int = 0,
    ) -> None:
        self.checks, self.python_path, self.threads = checks, python_path, threads
        self.closed = closed  # folders that a learner's process does not read
        self.process: subprocess.Popen | None = None
        self.folder: str | None = None

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, do: str, **facts: Any) -> dict[str, Any]:
        """Raises BoxFailed if the process ends over it; the next question starts a new one."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **facts}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except (OSError, ValueError):
            line = ""
        if not line:
            reason = self._last_words()
            self.close()
            raise BoxFailed(f"the grading process ended: {reason}")
        answer = json.loads(line)
        if "trouble" in answer:
            raise BoxFailed(answer["trouble"])
        return answer

    def outlines(self, notebook: str) -> tuple[Outline, ...]:
        found = (Outline(**facts) for facts in self.ask("describe")["exercises"])
        return tuple(outline for outline in found if outline.notebook == notebook)

    def environment(self) -> dict[str, str]:
        """What a learner's process may know of the grader's environment."""
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        if self.threads:
            kept |= {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads)}
        paths = os.pathsep.join(str(path) for path in self.python_path)
        return kept | {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}

    def _start(self) -> None:
        self.close()
        self.folder = tempfile.mkdtemp(prefix="course-grader-")
        command = [sys.executable, "-m", "grading.warm_process", self.checks]
        # Threads do not survive a fork, so none are started here; kernels have theirs.
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = self.environment() | one | {"HOME": self.folder}
        with open(f"{self.folder}/stderr.txt", "wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.PIPE, text=True,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=os.name == "posix",
            )  # fmt: skip

    def _last_words(self) -> str:
        if self.process is not None:
            self.process.wait()
        try:
            with open(f"{self.folder}/stderr.txt", encoding="utf-8", errors="replace") as file:
                lines = file.read().strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else f"exit code {self.process and self.process.returncode}"

    def close(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            try:
                process.stdin.close()
                process.wait(timeout=30)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            process.stdout.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
