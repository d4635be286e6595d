"""What decides the result of a training run, and nothing else does."""

import math
from dataclasses import dataclass
from typing import Any

from tinymodels import data

SCHEDULE = {
    # Until which percent of the steps: tokens a row (None: all), share and level of games.
    "text": (
        (8, 24, 1.0, 0),
        (10, 32, 1.0, 1),
        (13, 40, 1.0, 2),
        (18, 64, 1.0, 3),
        (45, 64, 0.2, 3),
        (70, 256, 0.1, 3),
        (100, None, 0.0, 0),
    ),
    "recall": ((15, 24, 1.0, 0), (45, 64, 0.0, 0), (70, 128, 0.0, 0), (100, None, 0.0, 0)),
}
"""From easy to hard: memory games, short rows, long rows; the tokens of a step stay the same."""


@dataclass(frozen=True)
class Run:
    """All that decides the result. size: rows a step. length: tokens a row. rate: peak.

    Size and length are those of the last stage; SCHEDULE says what comes before it.
    """

    preset: str
    task: str
    seed: int
    steps: int
    size: int
    length: int
    rate: float
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0

    def __post_init__(self):
        if self.task not in data.TASKS:
            raise ValueError(f"unknown task {self.task!r}; tasks are {', '.join(data.TASKS)}")
        if min(self.steps, self.size, self.length, self.warmup) < 1 or self.seed < 0:
            raise ValueError(
                "steps, size, length and warmup must be at least 1, the seed at least 0"
            )
        if not 0 < self.rate < 1:
            raise ValueError(f"the learning rate is {self.rate}; it must lie between 0 and 1")
        if self.task == "recall" and self.length < 5:
            raise ValueError(f"length is {self.length}; a recall text needs at least 5 tokens")

    @property
    def name(self) -> str:
        return f"{self.preset}-{self.task}-seed{self.seed}"

    @property
    def command(self) -> str:
        """The command line that makes this checkpoint, no default left unsaid."""
        settings = ("preset", "task", "seed", "steps", "size", "length", "rate")
        options = " ".join(f"--{s} {getattr(self, s)}" for s in settings)
        return f"python -m tinymodels.train {options}"

    def stage(self, step: int) -> data.Stage:
        """What the rows of a step are."""
        _, tokens, games, level = next(
            row for row in SCHEDULE[self.task] if 100 * step < row[0] * self.steps
        )
        length = min(tokens or self.length, self.length)
        rows = max(1, self.size * self.length // length)
        return data.Stage(rows, length, games, level, both_ways=self.task == "text")

    def batch(self, step: int) -> data.Batch:
        """What one step trains on."""
        return data.batch(self.task, self.seed, step, self.stage(step))

    def fingerprint(self) -> str:
        """Of the first two batches of each stage: `data_sha256` in a checkpoint's JSON."""
        ends = [until for until, *_ in SCHEDULE[self.task]]
        starts = [-(-self.steps * percent // 100) for percent in (0, *ends[:-1])]
        steps = sorted({s + i for s in starts for i in (0, 1) if s + i < self.steps})
        return data.fingerprint(self.batch(step) for step in steps)


DEFAULTS: dict[str, dict[str, Any]] = {
    "text": {"steps": 9000, "size": 4, "length": 512, "rate": 3e-3},
    "recall": {"steps": 1800, "size": 8, "length": 256, "rate": 3e-3},
}
"""What a task trains with when the command does not say; the same for every preset."""


def learning_rate(run: Run, step: int) -> float:
    """A linear rise over `warmup` steps, then half a cosine down to a tenth of the peak."""
    rise = (step + 1) / run.warmup
    fall = 0.1 + 0.45 * (1 + math.cos(math.pi * step / run.steps))
    return run.rate * min(rise, fall)
