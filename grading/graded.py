"""The `check` that stands in a graded notebook: the same check, on the student's own seeds."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from grading.result import Result
from grading.verdict import assess


class GradedCheck:
    """Called as `check(id, answer)`; `reply(token)` gives back what it saw, as text."""

    def __init__(self, checks: str, seeds: Sequence[int]) -> None:
        exercises = importlib.import_module(checks).EXERCISES
        self._exercises = {exercise.id: exercise for exercise in exercises}
        self._seeds = tuple(seeds)
        self._results: dict[str, Result] = {}

    def __call__(self, id: str, answer: Any = ...) -> Result:
        result = assess(self._exercises[id], answer, self._seeds)
        self._results[id] = result
        return result

    def reply(self, token: str) -> str:
        results = {id: result.as_dict() for id, result in self._results.items()}
        return json.dumps({"token": token, "results": results})
