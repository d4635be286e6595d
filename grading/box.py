"""A fresh, bounded kernel process, and code run in it with a hard deadline.

Survives endless loops (interrupt, then kill), sys.exit, os._exit, segfaults, children left
behind (all of them are ended) and floods of output. The process gets a temporary home and
working folder and none of the grader's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient

from grading.warm import BoxFailed, Warm

GRACE = 2.0  # seconds between the interrupt and the kill
START = 120.0  # seconds a kernel may take to start on a busy machine
KEPT = 20_000  # characters of output that are kept
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Ran:
    """`status`: ok, error, timeout or died. `answer` is the value of the expression."""

    status: str
    detail: str = ""
    output: str = ""
    answer: str | None = None


class Box:
    """One kernel process; `run` code in it, `restart` it, leave it clean (a `with` block)."""

    def __init__(self, warm: Warm, files: Sequence[Path] = ()) -> None:
        self.warm, self.files = warm, files  # `files` are copied to where it works
        self.pid: int | None = None
        self.code: int | None = None
        self.client: BlockingKernelClient | None = None
        self.folder: Path | None = None

    def __enter__(self) -> Box:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="course-box-"))
        for name in ("home", "work", "tmp"):
            (self.folder / name).mkdir()
        for file in self.files:
            with contextlib.suppress(OSError):  # gone or closed by now: as if never there
                shutil.copyfile(file, self.folder / "work" / file.name)
        try:
            answer = self.warm.ask(
                "start", folder=str(self.folder), environment=self._environment()
            )
            self.pid, self.code = answer["pid"], None
            self._connect(self.folder / "connection.json")
        except BaseException:
            self.stop()
            raise

    def _connect(self, connection: Path) -> None:
        """The kernel picks its own free ports and writes them down; no two boxes collide."""
        end = time.monotonic() + START
        while True:
            try:
                facts = json.loads(connection.read_text())
                break
            except (OSError, json.JSONDecodeError):
                self._or_fail(end)
                time.sleep(0.01)
        self.client = BlockingKernelClient()
        self.client.load_connection_info(facts)
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=max(end - time.monotonic(), 1))
        except RuntimeError as error:
            raise BoxFailed(f"the kernel did not answer: {error}") from error

    def _or_fail(self, end: float) -> None:
        if self._has_ended():
            text = (self.folder / "stderr.txt").read_text(errors="replace").strip()
            last = text.splitlines()[-1] if text else f"exit code {self.code}"
            raise BoxFailed(f"the kernel did not start: {last}")
        if time.monotonic() > end:
            raise BoxFailed(f"the kernel did not start within {START:g} seconds")

    def _environment(self) -> dict[str, str]:
        home, temporary = str(self.folder / "home"), str(self.folder / "tmp")
        return self.warm.environment() | {
            "HOME": home, "USERPROFILE": home, "IPYTHONDIR": home + "/ipython",
            "TMPDIR": temporary, "TEMP": temporary, "TMP": temporary,
            "COURSE_PROGRESS": home + "/progress",
            "COURSE_CLOSED": os.pathsep.join(map(str, self.warm.closed)),
        }  # fmt: skip

    def _has_ended(self) -> bool:
        try:
            self.code = self.warm.ask("exit_code", pid=self.pid)["code"]
        except BoxFailed:  # whoever was asked is gone, and the kernel goes with it
            self.code = -9
        return self.code is not None

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the process and its children; leave nothing behind."""
        if self.client is not None:
            self.client.stop_channels()
            self.client = None
        if self.pid is not None:
            try:
                self.warm.ask("end", pid=self.pid)
            except BoxFailed:
                with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.pid = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def run(self, code: str, seconds: float, expression: str | None = None) -> Ran:
        """Run `code`, then evaluate `expression` (its text comes back as `answer`)."""
        heard = _Heard(self.client.execute(
            code, store_history=False, allow_stdin=False, stop_on_error=False,
            user_expressions={"answer": expression} if expression else {},
        ))  # fmt: skip
        end, interrupted = time.monotonic() + seconds, False
        while not heard.all:
            if time.monotonic() > end:
                if interrupted or os.name != "posix":
                    return Ran("timeout", f"no answer after {seconds:g} seconds", heard.output)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGINT)
                interrupted, end = True, time.monotonic() + GRACE
            try:
                message = self._next_message(heard.idle)
                if message is not None:
                    heard.take(message)
            except Exception as trouble:  # the cell has patched what the kernel speaks with
                detail = f"the kernel answers with something unreadable ({trouble})"
                return Ran("died", detail, heard.output)
            if message is None and self._has_ended():
                return Ran("died", self._how_it_died(), heard.output)
        if interrupted:
            return Ran("timeout", f"stopped after {seconds:g} seconds", heard.output)
        if self._has_ended():  # it answered with its last breath: what comes next needs another
            return Ran("died", self._how_it_died(), heard.output)
        return heard.ran()

    def _next_message(self, idle: bool) -> dict[str, Any] | None:
        """Output comes on one channel, the reply on the other; read what there is."""
        channel = self.client.get_shell_msg if idle else self.client.get_iopub_msg
        try:
            return channel(timeout=0.1)
        except queue.Empty:
            return None

    def _how_it_died(self) -> str:
        code = self.code
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the process was ended by {name} (a crash, or out of memory)"
        return f"the process ended itself (exit code {code})"


class _Heard:
    """What has come back for one request: output, an error, the reply."""

    def __init__(self, request: str) -> None:
        self.request = request
        self.output, self.error, self.idle = "", "", False
        self.reply: dict[str, Any] | None = None

    @property
    def all(self) -> bool:
        return self.idle and self.reply is not None

    def take(self, message: dict[str, Any]) -> None:
        if message["parent_header"].get("msg_id") != self.request:
            return
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.output = (self.output + content["text"])[:KEPT]
        elif kind == "error":
            self.error = _ANSI.sub("", f"{content['ename']}: {content['evalue']}")[:KEPT]
        elif kind == "status":
            self.idle = self.idle or content["execution_state"] == "idle"
        elif kind == "execute_reply":
            self.reply = content

    def ran(self) -> Ran:
        if self.error or self.reply.get("status") != "ok":
            return Ran("error", self.error or "the cell did not run", self.output)
        value = self.reply.get("user_expressions", {}).get("answer", {})
        text = value.get("data", {}).get("text/plain") if value.get("status") == "ok" else None
        return Ran("ok", "", self.output, text)
