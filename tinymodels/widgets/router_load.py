"""Router load: how many choices fall on each expert while the bias evens them out.

`record` sends batch after batch of real tokens through a router and moves its bias after each
(`tinymodels.moe.balanced`), once for each size of step. The widget only plays that back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a record can be shown without torch
    from torch import Tensor

    from ..moe import Router

GAMMAS = (0.0, 0.001, 0.01, 0.03, 0.1)
EVERY = 2  # steps between two positions of the slider


@dataclass(frozen=True)
class Moment:
    """The router at one step. loads: choices on each expert. biases: what was added to choose.

    same: the share of tokens that go to the experts they would go to without a bias. moved: by
    how much the weights of those tokens would change if the bias weighed too (relative, mean).
    """

    loads: tuple[int, ...]
    biases: tuple[float, ...]
    same: float
    moved: float

    def busiest(self) -> float:
        """The largest load, in fair shares."""
        return max(self.loads) * len(self.loads) / sum(self.loads)


@dataclass(frozen=True)
class Balance:
    """Moments of a router, for each gamma: one a batch, the bias moved between them."""

    top_k: int
    tokens: int
    runs: tuple[tuple[float, tuple[Moment, ...]], ...]

    def moments(self, gamma: float) -> tuple[Moment, ...]:
        return dict(self.runs)[gamma]


def record(
    router: "Router", batches: "Sequence[Tensor]", gammas: Sequence[float] = GAMMAS
) -> Balance:
    """What `router` does with each batch [tokens, X], its bias starting from 0 for each gamma.

    The router itself is left as it is. Raises ValueError for no batches, batches that differ in
    length, and a router that chooses without a bias.
    """
    import torch

    from ..moe import balanced, scores

    if router.bias is None:
        raise ValueError("this router has no bias to balance with; set MoE.selection_bias")
    if not len(batches) or len({len(batch) for batch in batches}) != 1:
        raise ValueError("batches must be one or more, all with the same number of tokens")
    runs = []
    with torch.no_grad():
        scored = [scores(x_nX @ router.gate.weight.T, router.config.scoring) for x_nX in batches]
        for gamma in gammas:
            bias_E = torch.zeros_like(router.bias)
            moments = []
            for score_nE in scored:
                moment, load_E = _moment(score_nE, bias_E, router.config)
                moments.append(moment)
                bias_E = balanced(bias_E, load_E, gamma)
            runs.append((gamma, tuple(moments)))
    return Balance(router.config.top_k, len(batches[0]), tuple(runs))


def _moment(score_nE, bias_E, config):
    import torch

    from ..moe import choose, weigh

    experts_nk = choose(score_nE, config, bias_E)
    load_E = torch.bincount(experts_nk.flatten(), minlength=len(bias_E))
    unmoved_nk = choose(score_nE, config, torch.zeros_like(bias_E))
    same_n = (experts_nk.sort(-1).values == unmoved_nk.sort(-1).values).all(-1)
    right_nk = weigh(score_nE, experts_nk, config)
    wrong_nk = weigh(score_nE + bias_E, experts_nk, config)
    moved_n = (wrong_nk - right_nk).norm(dim=-1) / right_nk.norm(dim=-1)
    moved = moved_n[same_n].mean().item() if same_n.any() else 0.0
    share = same_n.float().mean().item()
    return Moment(tuple(load_E.tolist()), tuple(bias_E.tolist()), share, moved), load_E


# ---------------------------------------------------------------- what the reader sees


def look(balance: Balance, gamma: float, step: int, weighs: bool) -> View:
    """The loads after `step` moves of `gamma`. weighs: the bias takes part in the weights too."""
    moments = balance.moments(gamma)
    now = moments[step]
    experts, fair = len(now.loads), sum(now.loads) / len(now.loads)
    shares = [load / fair for load in now.loads]
    first = f"{moments[0].busiest():.2f}"
    spread = (
        f"{balance.tokens:,} tokens, {balance.top_k} experts each: a fair share is"
        f" {plot.exact(round(fair, 1))} choices. The idlest expert has {min(shares):.2f} of it;"
        f" at the start the busiest had {first}."
    )
    lines = (spread, _heard(now, weighs))
    return View(
        number=f"{max(shares):.2f}",
        unit=f"fair shares fall on the busiest of {experts} experts",
        lines=lines,
        alt=f"Bars of the load of {experts} experts after {step} steps of {gamma:g}, in fair"
        f" shares: {', '.join(f'{s:.2f}' for s in shares)}.",
        say=f"Step {step}: {max(shares):.2f} fair shares on the busiest expert.",
        chart=_chart(balance, gamma, step, weighs),
    )


def _heard(now: Moment, weighs: bool) -> str:
    if not any(now.biases):
        return "The bias is still 0 everywhere: nothing has been moved."
    kept = f"{now.same:.0%} of the tokens still go to the experts their scores alone would choose"
    if weighs:
        return f"{kept}; but the bias weighs too, and their weights are off by {now.moved:.1%}."
    return f"{kept}, and weigh them as ever: off by 0 %."


def _chart(balance: Balance, gamma: float, step: int, weighs: bool) -> dict:
    moments = balance.moments(gamma)
    every = [m for _, run in balance.runs for m in run]
    fair = sum(every[0].loads) / len(every[0].loads)
    most = max(max(m.loads) for m in every) / fair
    widest = max(abs(b) for m in moments for b in m.biases) or 1.0
    now = moments[step]
    last = max(1, len(moments) - 1)
    return {
        "loads": [
            {"label": f"{e}", "end": load / fair / most, "over": load > fair}
            for e, load in enumerate(now.loads)
        ],
        "fair": [{"at": 1 / most, "text": "fair share"}],
        "biases": [
            {"at": min(0.5, 0.5 + b / widest / 2), "end": max(0.5, 0.5 + b / widest / 2)}
            for b in now.biases
        ],
        "widest": f"{widest:.2g}",
        "path": [
            {"at": t / last, "end": m.busiest() / most, "text": f"{m.busiest():.2f}"}
            for t, m in enumerate(moments[: step + 1])
        ],
        "steps": f"{last}",
        "weights": [_off(moments[step].moved, max(m.moved for m in every), weighs)],
        "most": most,
    }


def _off(moved: float, most: float, weighs: bool) -> dict:
    """The bar that says how wrong the weights are."""
    if not weighs:
        return {"end": 0.0, "text": "off by 0 %: the bias only chooses"}
    return {"end": moved / most if most else 0.0, "text": f"off by {moved:.1%}"}


def controls(balance: Balance) -> tuple[Control, ...]:
    gammas = tuple(gamma for gamma, _ in balance.runs)
    steps = tuple(range(0, len(balance.runs[0][1]), EVERY))
    names = {0.0: "0: left alone", 0.001: "0.001, as in V3"}
    return (
        Control("step", "step", "range", steps, tuple(map(str, steps)), "one batch of text each"),
        Control(
            "gamma", "gamma", "select", gammas, tuple(names.get(g, f"{g:g}") for g in gammas),
            "how far a bias moves in one step",
        ),
        Control(
            "weighs", "the bias also weighs", "checkbox", (False, True), ("off", "on"),
            "a mistake: what an expert says would then depend on how busy it is",
        ),
    )  # fmt: skip


class RouterLoad(Widget):
    """Play a recorded balancing."""

    _esm = script("router_load.js")

    def __init__(self, balance: Balance, gamma: float = 0.01, step: int = 0):
        self._balance = balance
        start = {"step": step, "gamma": gamma, "weighs": False}
        super().__init__("Router load", controls(balance), start)

    def all_settings(self):
        steps, gammas, weighs = (control.values for control in self._controls)
        return [{"step": s, "gamma": g, "weighs": w} for s in steps for g in gammas for w in weighs]

    def look(self, settings: dict) -> View:
        return look(self._balance, settings["gamma"], settings["step"], settings["weighs"])

    def draw(self, view: View):
        return _picture(view)


def router_load(balance: Balance, gamma: float = 0.01) -> RouterLoad:
    """The widget of a recorded balancing: `router_load(record(router, batches))`."""
    return RouterLoad(balance, gamma)


def _picture(view: View):
    chart = view.chart
    fig, (loads, biases, path) = plot.figure(8.4, 2.9, columns=3)
    places = range(len(chart["loads"]))
    heights = [bar["end"] * chart["most"] for bar in chart["loads"]]
    colours = [plot.LIGHT["accent" if bar["over"] else "bar"] for bar in chart["loads"]]
    loads.bar(places, heights, 0.7, color=colours)
    loads.axhline(1, color=plot.LIGHT["ink"], linewidth=1)
    loads.set(ylim=(0, chart["most"]), xlabel="expert", xticks=[])
    loads.set_title("load, in fair shares", fontsize=9)
    tall = [bar["end"] - bar["at"] for bar in chart["biases"]]
    biases.bar(places, tall, 0.7, [bar["at"] for bar in chart["biases"]], color=plot.LIGHT["bar"])
    biases.axhline(0.5, color=plot.LIGHT["ink"], linewidth=1)
    marks = (0, 0.5, 1), (f"−{chart['widest']}", "0", chart["widest"])
    biases.set(ylim=(0, 1), xlabel="expert", xticks=[])
    biases.set_yticks(*marks)
    biases.set_title("bias", fontsize=9)
    steps = [mark["at"] * int(chart["steps"]) for mark in chart["path"]]
    path.plot(steps, [m["end"] * chart["most"] for m in chart["path"]], color=plot.LIGHT["accent"])
    path.plot(
        steps[-1:], [chart["path"][-1]["end"] * chart["most"]], "o", color=plot.LIGHT["accent"]
    )
    path.axhline(1, color=plot.LIGHT["ink"], linewidth=1)
    path.set(xlim=(0, int(chart["steps"])), ylim=(0, chart["most"]), xlabel="step")
    path.set_title("busiest expert, in fair shares", fontsize=9)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel(view.lines[1], x=0.01, ha="left", fontsize=9)
    return fig
