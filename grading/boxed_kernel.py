"""The process a submission runs in: `python -m grading.boxed_kernel -f CONNECTION_FILE`.

It bounds itself (memory, core files, output), then becomes an ordinary Jupyter kernel.
This guards against accidents. It is no sandbox: code that means harm is not held.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

MEMORY = 6 * 2**30  # bytes of address space; torch alone maps about one GiB
FILE = 2**30  # bytes of the largest file it may write
OUTPUT = 200_000  # characters a cell may print; the rest is dropped where it arises
CLOSED = "COURSE_CLOSED"  # folders that are not read while grading, as PATH lists them


def limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    asked = int(os.environ.get("COURSE_BOX_MEMORY", MEMORY))
    limits = ((resource.RLIMIT_AS, asked), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE))
    for what, limit in limits:
        try:
            hard = resource.getrlimit(what)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(what, (limit, hard))
        except (ValueError, OSError):  # macOS refuses an address-space limit
            continue


def close_folders() -> None:
    """The solutions cannot be opened from here: who reads them has not solved anything."""
    closed = [os.path.realpath(f) for f in os.environ.pop(CLOSED, "").split(os.pathsep) if f]
    inside = tuple(folder + os.sep for folder in closed)
    if not inside:
        return
    real_path, fs_decode, kinds = os.path.realpath, os.fsdecode, (str, bytes)

    def look(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], kinds):
            path = fs_decode(arguments[0])
            if real_path(path).startswith(inside):
                raise PermissionError(f"{path} is closed while a notebook is graded")

    sys.addaudithook(look)


def limit_messages() -> None:
    """A picture, a result or an error of any size: cut where it would leave the process."""
    from jupyter_client.session import Session

    send = Session.send

    def bounded(self, stream, msg_or_type, content=None, *rest, **more):
        if msg_or_type in ("display_data", "update_display_data", "execute_result", "error"):
            content = _cut(content)
            more.pop("buffers", None)
        return send(self, stream, msg_or_type, content, *rest, **more)

    Session.send = bounded  # type: ignore[method-assign]


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value[:OUTPUT]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in list(value.items())[:100]}
    if isinstance(value, list):
        return [_cut(item) for item in value[:100]]
    return value


def stay_when_asked_to_leave() -> None:
    """`exit()` in a notebook ends the kernel after the cell: here it ends the cell alone."""
    from ipykernel.zmqshell import ZMQInteractiveShell

    def ask_exit(self) -> None:
        raise SystemExit("the code asks to leave")

    ZMQInteractiveShell.ask_exit = ask_exit  # type: ignore[method-assign]


def limit_output() -> None:
    """Drop what a cell prints beyond OUTPUT characters, before it is sent anywhere."""
    from ipykernel.iostream import OutStream

    write = OutStream.write
    printed: dict[str, int] = {}  # message id of the cell: characters so far

    def bounded(self: OutStream, text: str) -> int:
        if isinstance(text, str):
            header = getattr(self, "parent_header", None) or {}
            cell = header.get("msg_id", "") if isinstance(header, dict) else ""
            before = printed.get(cell, 0)
            if cell not in printed:
                printed.clear()
            printed[cell] = before + len(text)
            text = text[: max(OUTPUT - before, 0)]
            if not text:
                return 0
        return write(self, text)

    OutStream.write = bounded  # type: ignore[method-assign, assignment]

    from IPython.core.interactiveshell import InteractiveShell

    # Newer versions of IPython keep a second copy of all that is printed.
    if hasattr(InteractiveShell, "_tee"):
        InteractiveShell._tee = lambda self, channel: contextlib.nullcontext()


def keep_streams(shell: Any) -> None:
    """They are flushed after each cell: a closed or missing one would fail all that follow."""
    from ipykernel.iostream import OutStream

    OutStream.close = OutStream.flush  # type: ignore[method-assign]
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}

    def mend() -> None:
        for name, stream in streams.items():
            now = getattr(sys, name, None)
            if not callable(getattr(now, "flush", None)) or getattr(now, "closed", False) is True:
                setattr(sys, name, stream)

    shell.events.register("post_execute", mend)


def keep_json_private() -> None:
    """The kernel speaks in JSON; what a cell does to the json module is its own affair."""
    import json
    import types

    from jupyter_client import session

    private = types.ModuleType("json")
    vars(private).update(vars(json))
    session.json = private


def end_copies(shell: Any) -> None:
    """A fork that comes back from its cell would be a second kernel: it ends here."""
    original = os.getpid()

    def leave() -> None:
        if os.getpid() != original:
            os._exit(0)

    shell.events.register("post_execute", leave)


def main() -> None:
    limit_memory()
    limit_output()
    limit_messages()
    keep_json_private()
    stay_when_asked_to_leave()
    close_folders()
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()
    app.capture_fd_output = False  # what goes around Python's print is dropped
    app.initialize()
    end_copies(app.shell)
    keep_streams(app.shell)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    app.start()


if __name__ == "__main__":
    main()
