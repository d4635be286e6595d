"""The exercises of all chapters, as values: one module a chapter, each with EXERCISES.

A chapter's module is found by its name (ch00, ch01, ...), so a new one needs no entry here.
Beside EXERCISES it may have

- EQUIVALENT: {exercise id: {change: why it is no mistake}}, mutants that rightly pass;
- PARTS: {exercise id: (field of tinymodels.parts.Parts, fit)}, where `fit` turns the learner's
  function into one with that field's signature: what `my_parts()` puts into later models.
"""

import importlib
import pkgutil
import re
from types import ModuleType

from grading.exercise import Exercise


def _chapters() -> tuple[ModuleType, ...]:
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    names = [name for name in names if re.fullmatch(r"ch\d\d", name)]
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


CHAPTERS = _chapters()
EXERCISES: tuple[Exercise, ...] = tuple(e for chapter in CHAPTERS for e in chapter.EXERCISES)
