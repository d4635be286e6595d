"""Which mistakes a class made, in which exercise, how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grading.runner import Row

# What went wrong without a name of its own, in the order of the report's last lines.
UNNAMED = {
    "wrong": "another wrong answer", "partly": "another partly right answer",
    "error": "the code stopped with an error", "timeout": "no end in time",
    "died": "the process ended",
}  # fmt: skip


@dataclass(frozen=True)
class Mistakes:
    """`made[name][exercise id]`: the students, each with the message they got."""

    made: Mapping[str, Mapping[str, Mapping[str, str]]]
    handed_in: Mapping[str, int]

    @property
    def names(self) -> list[str]:
        """Named mistakes first, the most frequent on top; then what has no name."""
        named = [name for name in self.made if self.is_named(name)]
        often = sorted(named, key=lambda name: (-sum(map(len, self.made[name].values())), name))
        return often + [name for name in UNNAMED.values() if name in self.made]

    def is_named(self, name: str) -> bool:
        return name not in UNNAMED.values()

    def who(self, name: str, id: str) -> list[str]:
        return sorted(self.made[name].get(id, ()))

    def count(self, name: str, id: str) -> int:
        return len(self.who(name, id))

    def students(self, id: str) -> int:
        return self.handed_in.get(id, 0)

    def message(self, name: str, id: str) -> str:
        """What is said of a named mistake; for the others the first student's message."""
        messages = self.made[name][id]
        first = messages[min(messages)]
        return first.splitlines()[0] if first else ""


def mistakes(by_student: Mapping[str, Mapping[str, Row]]) -> Mistakes:
    made: dict[str, dict[str, dict[str, str]]] = {}
    handed_in: dict[str, int] = {}
    for who, mine in by_student.items():
        for id, row in mine.items():
            handed_in[id] = handed_in.get(id, 0) + 1
            name = row.misconception or UNNAMED.get(row.status)
            if name:
                made.setdefault(name, {}).setdefault(id, {})[who] = row.message
    return Mistakes(made, handed_in)
