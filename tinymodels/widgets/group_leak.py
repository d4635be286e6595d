"""Group leak: change one token of a text in groups, and see which outputs move.

Everything is computed with the attention of `tinymodels/leak.py`; the marks say what moved there.
"""

from functools import cache

from .. import leak
from . import plot
from .base import Control, View, Widget, script

TOKENS = 16
SIZES = (2, 3, 4, 5, 8)
RULES = {
    "started": "its first token is there",
    "complete": "its last token is there",
    "before": "its last token was there before",
}
CHANGED, STILL, LATER, EARLIER = "changed", "still", "later", "earlier"


@cache
def _moved(m: int, rule: str) -> tuple[tuple[bool, ...], ...]:
    """Row s: which outputs move when token s becomes another one."""
    moved_ST = leak.changes(TOKENS, m, leak.RULES[rule]) > 1e-9
    return tuple(map(tuple, moved_ST.tolist()))


def leaked(m: int, rule: str, token: int) -> list[int]:
    """Positions before the token whose outputs move."""
    return [t for t, moved in enumerate(_moved(m, rule)[token]) if moved and t < token]


def look(m: int, rule: str, token: int) -> View:
    """One changed token: what moves before it, and what moves after."""
    row, told = _moved(m, rule)[token], leaked(m, rule, token)
    after = sum(row[token:])
    everywhere = sum(len(leaked(m, rule, s)) for s in range(TOKENS))
    caught = _listed(told)
    which, verb = ("output", "moves") if len(told) == 1 else ("outputs", "move")
    verdict = (
        f"Over all tokens this rule knows of the future {everywhere} times: a leak."
        if everywhere
        else "Whichever token is changed, nothing before it moves: no leak."
    )
    return View(
        number=str(len(told)),
        unit=f"{which} before token {token} {verb}",
        lines=(
            f"Token {token} became another one: {caught}. Of the {TOKENS - token} outputs from it"
            f" on, {after} move, as they may.",
            f"A group is read when {RULES[rule]}. {verdict}",
        ),
        alt=f"{TOKENS} tokens in groups of {m}. Token {token} was changed: {caught}.",
        say=f"Groups of {m}, token {token}, rule {rule}: {len(told)} leaks.",
        chart={
            "groups": [
                {
                    "at": first / TOKENS,
                    "end": min(first + m, TOKENS) / TOKENS,
                    "text": f"{first // m}" if first + m <= TOKENS else "open",
                }
                for first in range(0, TOKENS, m)
            ],
            "tokens": [_mark(t, CHANGED if t == token else STILL) for t in range(TOKENS)],
            "outputs": [_mark(t, _kind(t, token, row[t])) for t in range(TOKENS)],
        },
    )


def _listed(told: list[int]) -> str:
    if not told:
        return "no output before it moves"
    if len(told) == 1:
        return f"output {told[0]}, before it, moves"
    joined = " and " if len(told) == 2 else " to "
    return f"outputs {told[0]}{joined}{told[-1]}, before it, move"


def _kind(t: int, token: int, moved: bool) -> str:
    if not moved:
        return STILL
    return EARLIER if t < token else LATER


def _mark(t: int, kind: str) -> dict:
    return {"at": t / TOKENS, "end": (t + 1) / TOKENS, "text": str(t), "kind": kind}


def controls() -> tuple[Control, ...]:
    places, rules = tuple(range(TOKENS)), tuple(RULES)
    return (
        Control("m", "tokens in a group", "select", SIZES, tuple(map(str, SIZES))),
        Control("rule", "a group is read when", "select", rules, tuple(RULES.values())),
        Control("token", "changed token", "range", places, tuple(map(str, places))),
    )


class GroupLeak(Widget):
    """Who may read a group, and what a wrong rule gives away."""

    _esm = script("group_leak.js")

    def __init__(self, m: int = 4, rule: str = "started", token: int = 14):
        start = {"m": m, "rule": rule, "token": token}
        super().__init__("Group leak", controls(), start)

    def look(self, settings: dict) -> View:
        return look(settings["m"], settings["rule"], settings["token"])

    def draw(self, view: View):
        return _picture(view)


# A fill, or for what matters most an edge: words stay readable on both.
FILLS = {STILL: "track", LATER: "soft", CHANGED: "ground", EARLIER: "ground"}
EDGES = {CHANGED: "ink", EARLIER: "accent"}


def _picture(view: View):
    chart = view.chart
    fig, ax = plot.figure(8.4, 2.5)
    for group in chart["groups"]:
        at, wide = group["at"] * TOKENS, (group["end"] - group["at"]) * TOKENS
        hatch = "///" if group["text"] == "open" else None
        ax.bar(at + 0.06, 0.7, wide - 0.12, 2.15, align="edge", color=plot.LIGHT["ground"],
               edgecolor=plot.LIGHT["quiet"], hatch=hatch)  # fmt: skip
        ground = {"facecolor": plot.LIGHT["ground"], "edgecolor": "none", "pad": 1.5}
        ax.text(at + wide / 2, 2.5, group["text"], ha="center", va="center", bbox=ground)
    for height, name in ((1.1, "tokens"), (0.1, "outputs")):
        for mark in chart[name]:
            at, kind = mark["at"] * TOKENS, mark["kind"]
            edge = plot.LIGHT[EDGES.get(kind, FILLS[kind])]
            ax.bar(at + 0.08, 0.8, 0.84, height, align="edge", color=plot.LIGHT[FILLS[kind]],
                   edgecolor=edge, linewidth=2.2 if kind in EDGES else 0)  # fmt: skip
            text = f"{mark['text']} !" if kind == EARLIER else mark["text"]
            ax.text(at + 0.5, height + 0.4, text, ha="center", va="center",
                    color=plot.LIGHT["accent" if kind == EARLIER else "ink"],
                    fontweight="bold" if kind in EDGES else "normal")  # fmt: skip
    ax.set(xlim=(0, TOKENS), ylim=(0, 3), xticks=[])
    ax.set_yticks((0.5, 1.5, 2.5), ("outputs", "tokens", "groups"))
    ax.grid(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(length=0)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel("\n".join(view.lines), x=0.01, ha="left", fontsize=9)
    return fig
