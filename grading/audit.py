"""Do the checks deserve trust? Each exercise is put to the proof with wrong answers.

Always: the solution passes on the seeds of check() and of several students, the stub is
"not attempted", each named mistake is rejected under its own name. With `full` also: more
students, and mechanical mutants of the solution, of which nearly none may pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from grading.course_notebook import Course, CourseCell, answers, execute
from grading.draw import CHECK_SEEDS, student_seeds
from grading.equivalents import EQUIVALENT
from grading.exercise import Exercise, Misconception
from grading.mutants import Mutant, mutants
from grading.verdict import assess, passes

KILL_RATE = 0.95
MUTANT_SECONDS = 5.0
BUDGET_S = 15 * 60  # all of it, with `full`


@dataclass(frozen=True)
class Audit:
    """What came out for one exercise; `problems` is empty where all is well."""

    id: str
    title: str
    mistakes: int
    problems: tuple[str, ...]
    killed: int = 0
    mutants: int = 0  # without those that are no mistake
    survivors: tuple[str, ...] = ()
    unavailable: str = ""
    recognised: int = 0  # named mistakes rejected under their own name, with their own message
    equivalent: tuple[str, ...] = ()  # mutants that rightly pass, each with the reason

    @property
    def kill_rate(self) -> float:
        return self.killed / self.mutants if self.mutants else 1.0


def audit(course: Course | None = None, full: bool = False) -> Iterator[Audit]:
    course = course or Course()
    for notebook in course.notebooks():
        solutions = answers(course, notebook, "solution")
        stubs = answers(course, notebook, "text")
        for exercise in course.exercises(notebook):
            if reason := exercise.unavailable():
                yield Audit(exercise.id, exercise.title, 0, (), unavailable=reason)
                continue
            solution, stub = solutions.get(exercise.id), stubs.get(exercise.id)
            found = audit_exercise(exercise, solution, stub, students=12 if full else 3)
            if full and not found.problems:
                found = _with_mutants(found, exercise, course.cells(notebook))
            yield found


def audit_exercise(exercise: Exercise, solution: Any, stub: Any, students: int) -> Audit:
    problems = []
    seeds: list[tuple[str, tuple[int, ...]]] = [("check()", CHECK_SEEDS)]
    seeds += [(f"student {n}", student_seeds(f"student {n}")) for n in range(students)]
    for who, mine in seeds:
        result = assess(exercise, solution, mine)
        if result.status != "passed":
            problems.append(f"the solution does not pass on the seeds of {who}: {result.message}")
    if (result := assess(exercise, stub, CHECK_SEEDS)).status != "not_attempted":
        problems.append(f"the untouched stub is {result.status}, not not_attempted")
    mistakes = exercise.misconceptions
    wrongly_taken = [text for mistake in mistakes if (text := _not_recognised(exercise, mistake))]
    return Audit(
        exercise.id, exercise.title, len(mistakes), (*problems, *wrongly_taken),
        recognised=len(mistakes) - len(wrongly_taken),
    )  # fmt: skip


def _not_recognised(exercise: Exercise, mistake: Misconception) -> str:
    """What is wrong with how the check takes a named mistake; "" where all is well."""
    result = assess(exercise, mistake.answer, CHECK_SEEDS)
    if result.status == "passed":
        return f"the mistake {mistake.name} passes"
    if result.misconception != mistake.name:
        return f"the mistake {mistake.name} is taken for {result.misconception}"
    if [m.message for m in exercise.misconceptions].count(mistake.message) > 1:
        return f"the mistake {mistake.name} has the message of another"
    if not result.message.startswith(mistake.message):
        return f"the mistake {mistake.name} is rejected without its message"
    return ""


def _with_mutants(found: Audit, exercise: Exercise, cells: tuple[CourseCell, ...]) -> Audit:
    quick = replace(exercise, seconds=MUTANT_SECONDS)
    equal = EQUIVALENT.get(exercise.id, {})
    killed, survivors, no_mistake = 0, [], []
    for mutant, answer in mutated_answers(exercise.id, cells):
        if answer is None or not passes(quick, answer, CHECK_SEEDS):
            killed += 1
        elif mutant.change in equal:
            no_mistake.append(f"line {mutant.line}: {mutant.change}  ({equal[mutant.change]})")
        else:
            survivors.append(f"line {mutant.line}: {mutant.change}")
    total = killed + len(survivors)
    problems = found.problems
    if total and killed / total < KILL_RATE:
        problems += (f"only {killed} of {total} mutants are rejected",)
    return replace(
        found, killed=killed, mutants=total, survivors=tuple(survivors), problems=problems,
        equivalent=tuple(no_mistake),
    )  # fmt: skip


def mutated_answers(id: str, cells: tuple[CourseCell, ...]) -> Iterator[tuple[Mutant, Any]]:
    """-> (the mutant, the mutated answer; None where the mutant does not even define it)."""
    cell = next(c for c in cells if c.role == "exercise" and c.exercise_id == id)
    check = next(c for c in cells if c.role == "check" and c.exercise_id == id)
    before = cells[: cells.index(cell)]
    given: dict[str, Any] = {}
    for number, mutant in enumerate(mutants(cell.solution, cell.solution_lines)):
        namespace: dict[str, Any] = {"__name__": f"mutant_{id}_{number}"}
        given.clear()
        try:
            for place, earlier in enumerate(before):
                if earlier.role != "check":
                    execute(earlier.solution, f"<before {id} {place}>", namespace)
            namespace["check"] = lambda id, answer=...: given.__setitem__(id, answer)
            execute(mutant.source, f"<mutant {id} {number}>", namespace)
            execute(check.solution, f"<check {id} {number}>", namespace)
        except Exception:
            given.pop(id, None)
        yield mutant, given.get(id)
