"""The exercises of all chapters, as values: one module a chapter, each with EXERCISES."""

from grading.checks import ch00, ch01
from grading.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = (*ch00.EXERCISES, *ch01.EXERCISES)
