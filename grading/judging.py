"""Judge a file of evidence. Runs in a process that the learner's code has never been in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grading.evidence_file import from_json
from grading.exercise import Exercise
from grading.verdict import conclude

LARGEST_FILE = 400_000_000  # bytes
_WITHOUT_SEEING = ("not_attempted", "wrong", "timeout", "error")  # none of these earns anything


def judge_file(exercise: Exercise, seeds: Sequence[int], path: Path, token: str) -> dict[str, Any]:
    """-> status, message, misconception, earned."""
    if reason := exercise.unavailable():  # decided here: what is unavailable leaves the total
        return _facts("unavailable", reason)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("the check has seen more than can be judged")
        evidence = from_json(path.read_text(encoding="utf-8"), token)
    except FileNotFoundError:
        return _facts("error", "the check did not run to its end")
    except (OSError, ValueError) as error:
        return _facts("error", str(error))
    if evidence.status != "seen" and evidence.status not in _WITHOUT_SEEING:
        return _facts("error", f"the check answered {evidence.status!r}, which it never does")
    result = conclude(exercise, evidence, seeds)
    return _facts(result.status, result.message, result.misconception, result.earned)


def _facts(
    status: str, message: str, misconception: str | None = None, earned: float = 0.0
) -> dict[str, Any]:
    return {
        "status": status, "message": message, "misconception": misconception, "earned": earned,
    }  # fmt: skip
