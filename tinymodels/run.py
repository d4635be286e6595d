"""What decides the result of a training run, and nothing else does."""

import math
from dataclasses import dataclass

from tinymodels import data


@dataclass(frozen=True)
class Run:
    """All that decides the result. size: rows a step. length: tokens a row. rate: peak."""

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


DEFAULTS = {
    "text": {"steps": 6000, "size": 8, "length": 512, "rate": 4e-3},
    "recall": {"steps": 6000, "size": 16, "length": 256, "rate": 4e-3},
}
"""What a task trains with when the command does not say; the same for every preset."""


def learning_rate(run: Run, step: int) -> float:
    """A linear rise over `warmup` steps, then half a cosine down to a tenth of the peak."""
    rise = (step + 1) / run.warmup
    fall = 0.1 + 0.45 * (1 + math.cos(math.pi * step / run.steps))
    return run.rate * min(rise, fall)
