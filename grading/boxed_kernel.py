"""The process a submission runs in: `python -m grading.boxed_kernel -f CONNECTION_FILE`.

It bounds itself (memory, core files, output), then becomes an ordinary Jupyter kernel.
This guards against accidents. It is no sandbox: code that means harm is not held.
"""

from __future__ import annotations

import os

MEMORY = 6 * 2**30  # bytes of address space; torch alone maps about one GiB
OUTPUT = 200_000  # characters a cell may print; the rest is dropped where it arises


def limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    asked = int(os.environ.get("COURSE_BOX_MEMORY", MEMORY))
    for what, limit in ((resource.RLIMIT_AS, asked), (resource.RLIMIT_CORE, 0)):
        try:
            hard = resource.getrlimit(what)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(what, (limit, hard))
        except (ValueError, OSError):  # macOS refuses an address-space limit
            continue


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

    OutStream.write = bounded


def main() -> None:
    limit_memory()
    limit_output()
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance()


if __name__ == "__main__":
    main()
