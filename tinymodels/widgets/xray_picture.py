"""The X-ray as a still picture: the same cells as in the browser, drawn by matplotlib."""

from matplotlib.patches import Rectangle

from . import plot
from .base import View

# letter of a cell -> (colour, hatch, what it means)
CELLS = {
    "n": ("accent", None, "computed now"),
    "a": ("ground", "////", "computed again"),
    "r": ("soft", None, "read from the cache"),
    "k": ("track", None, "kept, not read"),
    ".": ("ground", None, "not there yet"),
}


def draw(view: View):
    """A grid of layers by tokens for each panel, one above the other, and the key."""
    panels, labels = view.chart["panels"], view.chart["labels"]
    layers = len(panels[0]["rows"])
    fig, axes = plot.figure(6.8, 1.3 + len(panels) * (0.45 + 0.17 * layers), rows=len(panels))
    axes = list(axes) if len(panels) > 1 else [axes]
    for ax, panel in zip(axes, panels):
        _grid(ax, panel)
        ax.set_title(f"{panel['title']}: {panel['count']}")
    axes[-1].set_xticks(
        [i + 0.5 for i in range(len(labels))],
        labels,
        rotation=60,
        ha="right",
        rotation_mode="anchor",
    )
    used = [c for c in CELLS if any(c in row for panel in panels for row in panel["rows"])]
    fig.legend(
        [_cell(0, 0, letter) for letter in used],
        [CELLS[letter][2] for letter in used],
        loc="outside lower left",
        ncols=len(used),
    )
    plot.headed(fig, f"{view.number} {view.unit}")
    return fig


def _grid(ax, panel: dict) -> None:
    rows = panel["rows"]
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            ax.add_patch(_cell(x, y, letter))
    ax.set(xlim=(0, len(rows[0])), ylim=(len(rows), 0), xticks=[])
    ax.set_yticks([y + 0.5 for y in range(len(rows))], panel["names"])
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def _cell(x: int, y: int, letter: str) -> Rectangle:
    colour, hatch, _ = CELLS[letter]
    edge = plot.LIGHT["accent" if letter == "a" else "track"]
    face = plot.LIGHT[colour]
    return Rectangle((x + 0.06, y + 0.06), 0.88, 0.88, facecolor=face, edgecolor=edge, hatch=hatch)
