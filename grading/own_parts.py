"""The learner's passed functions as parts of a model; the reference for all the rest."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

from grading import progress


def own_parts() -> Any:
    """tinymodels.parts.Parts; says on the screen which pieces are the learner's own."""
    from tinymodels.parts import Parts

    pieces: dict[str, Callable] = {}
    lines: list[str] = []
    for id, (field, fit) in fills().items():
        source = progress.kept_source(id)
        if source is None:
            lines.append(f"{field}: the course's own ({_why_not(id)})")
            continue
        try:
            pieces[field] = fit(load(id, source))
            lines.append(f"{field}: yours, from exercise {id}")
        except Exception as error:  # one broken piece never blocks a chapter
            lines.append(
                f"{field}: the course's own; yours could not be used "
                f"({type(error).__name__}: {error})"
            )
    print("\n".join(lines))
    return Parts(**pieces)


def _why_not(id: str) -> str:
    refused = [event.get("reason", "") for event in progress.events("not_kept", id)]
    if refused:
        return f"yours passed exercise {id}, but could not be kept: {refused[-1]}"
    return f"exercise {id} is not passed yet"


def load(id: str, source: str) -> Callable:
    """Execute a kept source in a namespace of its own and return what it defines."""
    first = source.partition("\n")[0]
    if not first.startswith("# name: "):
        raise ValueError(f"the kept source of {id} does not say what it defines")
    filename = f"<progress {id}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": f"progress_{id.replace('.', '_')}"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[first.removeprefix("# name: ").strip()]


def _fit_attention(mine: Callable) -> Callable:
    """From one kv head a query head (the exercise) to shared kv heads (the model's call)."""

    @functools.wraps(mine)
    def attention(query_BTHD, key_BSKD, value_BSKD, *, window=None, impl="torch"):
        if window is not None:
            raise ValueError("the attention of exercise 01.1 knows no window")
        shared = query_BTHD.shape[2] // key_BSKD.shape[2]
        key_BSHD = key_BSKD.repeat_interleave(shared, dim=2)
        value_BSHD = value_BSKD.repeat_interleave(shared, dim=2)
        return mine(query_BTHD, key_BSHD, value_BSHD)

    return attention


# Which field of Parts an exercise fills, and how its function is fitted to the signature.
FILLS: dict[str, tuple[str, Callable]] = {"01.1": ("attention", _fit_attention)}


def fills() -> dict[str, tuple[str, Callable]]:
    """FILLS with what the chapters add as PARTS in their modules of checks."""
    from grading.checks import CHAPTERS

    found = dict(FILLS)
    for chapter in CHAPTERS:
        found |= getattr(chapter, "PARTS", {})
    return found
