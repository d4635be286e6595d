"""What a check answers: a status, the points, and a message that can be acted on."""

from __future__ import annotations

import html
import re
from dataclasses import asdict, dataclass
from typing import Any

STATUSES = (
    "passed",  # every part is right
    "partly",  # some parts are right and earn their points
    "wrong",  # an answer came back, and it is not the right one
    "not_attempted",  # the placeholder is still there
    "error",  # the learner's code raised
    "timeout",  # it did not come back in time
    "died",  # the process ended under it
    "unavailable",  # it needs something this machine lacks; left out of the total
)


class Text(str):
    """A sentence that a notebook shows as it is, without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


class Advice(Text):
    """A hint: a notebook breaks its lines between words, and sets code apart."""

    def _repr_html_(self) -> str:
        return f"<div>{_with_code(self)}</div>"


def _with_code(text: str) -> str:
    """The text as HTML; what stands between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


_SYMBOLS = {"passed": "✓", "partly": "◐", "not_attempted": "·", "unavailable": "–"}
_COLOURS = {
    "passed": "#009E73",
    "partly": "#CC8105",
    "not_attempted": "#777777",
    "unavailable": "#777777",
}  # after Okabe-Ito, orange darker; never the only sign, the word stands too


@dataclass(frozen=True)
class Result:
    """The outcome of one check. Its text depends on the answer alone, never on time."""

    id: str
    title: str
    status: str
    points: float
    earned: float
    message: str
    misconception: str | None = None
    seconds: float = 0.0
    failed: tuple[str, ...] = ()  # parts, stages and the mistake: what a hint can be tied to

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status is {self.status!r}; it must be one of {STATUSES}")

    @property
    def headline(self) -> str:
        score = f" ({self.earned:g} of {self.points:g} points)" if self.points else ""
        name = f"{self.id} {self.title}".strip()
        return f"{name}: {self.status.replace('_', ' ')}{score}"

    def __repr__(self) -> str:
        symbol = _SYMBOLS.get(self.status, "✗")
        return "\n".join([f"{symbol} {self.headline}", *self.message.splitlines()])

    def _repr_html_(self) -> str:
        colour = _COLOURS.get(self.status, "#D55E00")
        symbol = _SYMBOLS.get(self.status, "✗")
        lines = "".join(f"<div>{_with_code(line)}</div>" for line in self.message.splitlines())
        return (
            f'<div style="border-left: 4px solid {colour}; padding: 2px 10px">'
            f"<strong>{symbol} {html.escape(self.headline)}</strong>{lines}</div>"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
