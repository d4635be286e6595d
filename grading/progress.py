"""What the learner has done so far, kept in the folder `progress/` (or COURSE_PROGRESS).

Two kinds of files. `journal.jsonl` has one line an event and is only ever appended to, so
two notebooks that write at once lose nothing and no lock is needed. `parts/01.1.py` holds
the source of a passed exercise and is replaced as a whole, never written in place.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "COURSE_PROGRESS"


def folder() -> Path:
    """Where progress is kept: COURSE_PROGRESS, else `progress/` at the course's root."""
    asked = os.environ.get(VARIABLE)
    return Path(asked) if asked else Path(__file__).resolve().parent.parent / "progress"


def write_event(kind: str, id: str, **facts: Any) -> bool:
    """Append one event. False where the folder cannot be written: no reason to stop a lesson."""
    event = {"time": round(time.time(), 3), "kind": kind, "id": id, **facts}
    # The newline in front ends a line that a full disk or a kill has cut short.
    line = "\n" + json.dumps(event, default=str) + "\n"
    try:
        folder().mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        handle = os.open(folder() / "journal.jsonl", flags, 0o644)
        try:
            os.write(handle, line.encode())  # one write: lines of two writers do not mix
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def events(kind: str | None = None, id: str | None = None) -> Iterator[dict[str, Any]]:
    """The events so far, oldest first. A line cut short (a full disk) is passed over."""
    try:
        text = (folder() / "journal.jsonl").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not isinstance(event, dict):
            continue
        if kind in (None, event.get("kind")) and id in (None, event.get("id")):
            yield event


def keep_source(id: str, source: str) -> bool:
    """Keep the source of a passed exercise, replacing an older one in a single step."""
    try:
        parts = folder() / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=parts, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(name, parts / f"{id}.py")
    except OSError:
        return False
    return True


def kept_source(id: str) -> str | None:
    """The source of a passed exercise, or None."""
    try:
        return (folder() / "parts" / f"{id}.py").read_text(encoding="utf-8")
    except OSError:
        return None
