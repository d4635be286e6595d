"""The logit lens as a still picture: the same cells and bars as in the browser."""

from matplotlib.patches import Rectangle

from . import plot
from .base import View


def draw(view: View):
    """Tokens down, layers across, and the guesses of the chosen cell beside them."""
    columns, rows = view.chart["columns"], view.chart["rows"]
    fig, (grid, bars) = plot.figure(8.4, 1.5 + 0.2 * len(rows), columns=2)
    grid.get_gridspec().set_width_ratios([3.4, 1])
    for y, row in enumerate(rows):
        for x, cell in enumerate(row["cells"]):
            shade = Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, alpha=cell["share"])
            shade.set(facecolor=plot.LIGHT["soft"], edgecolor="none")
            grid.add_patch(shade)
            weight = "bold" if cell["final"] else "normal"
            grid.text(x + 0.5, y + 0.52, cell["text"], ha="center", va="center", fontsize=7.5,
                      fontweight=weight)  # fmt: skip
    y, x = view.chart["here"]
    grid.add_patch(
        Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, fill=False, edgecolor=plot.BLUE, lw=1.6)
    )
    grid.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    grid.set_xticks([i + 0.5 for i in range(len(columns))], columns)
    grid.set_yticks([i + 0.5 for i in range(len(rows))], [row["label"] for row in rows])
    grid.xaxis.tick_top()
    grid.set_xlabel("Bluer: surer. Bold: what the model says in the end.")
    _bars(bars, view.chart["guesses"])
    for ax in (grid, bars):
        ax.grid(visible=False)
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
    plot.headed(fig, f"{view.number} {view.unit}")
    return fig


def _bars(ax, guesses: list[dict]) -> None:
    ax.barh(range(len(guesses)), [g["end"] for g in guesses], 0.6, color=plot.BLUE)
    for y, guess in enumerate(guesses):
        ax.text(guess["end"] + 0.04, y, guess["text"], va="center", fontsize=8)
    ax.set_yticks(range(len(guesses)), [g["label"] for g in guesses])
    ax.set(xlim=(0, 1.45), xticks=[], ylim=(9.5, -0.6), title="the marked cell")
