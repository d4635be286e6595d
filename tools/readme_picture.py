"""The picture in README.md: bytes of cache for each token, from V1 to V4.1-Flash.

    python -m tools.readme_picture          write docs/bytes_per_token.png
    python -m tools.readme_picture --alt    print its alternative text instead

The numbers come from the ledger, their status from the published table: none is typed here.
"""

import sys
from pathlib import Path

from matplotlib.ticker import FuncFormatter, NullLocator

from tinymodels.ledger import rate
from tinymodels.published import PUBLISHED
from tinymodels.widgets import plot

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "bytes_per_token.png"
SERIES = {
    "deepseek-67b": "V1",
    "deepseek-v2": "V2",
    "deepseek-v3": "V3",
    "deepseek-v3.2": "V3.2",
    "deepseek-v4-flash": "V4-Flash",
    "deepseek-v4.1-flash": "V4.1-Flash",
}
# What each generation changed in what is kept, in two or three words.
CHANGES = ("heads share", "one latent", "a layer more", "8-bit latent", "groups", "sharing, 4 bits")


def series() -> list[tuple[str, float, str]]:
    """Return (short name, bytes per token, status letter) of each model shown, in time's order."""
    return [(short, float(rate(name)), PUBLISHED[name].rate.status)
            for name, short in SERIES.items()]


def alt(points: list[tuple[str, float, str]]) -> str:
    """Return the picture in words."""
    values = ", ".join(f"{short} {value:,.0f}" for short, value, _ in points)
    return ("Bytes of KV cache for each token, on a logarithmic axis, falling from generation to "
            f"generation: {values}.")


def draw(points: list[tuple[str, float, str]]):
    """Return the figure: one point a model, its number beside it, a line that falls."""
    fig, axes = plot.figure(7.2, 3.4)
    places, values = range(len(points)), [value for _, value, _ in points]
    axes.plot(places, values, color=plot.BLUE, marker="o", markersize=7)
    axes.set_yscale("log")
    axes.set_ylim(400, 1.5e6)
    axes.set_xlim(-0.35, len(points) - 0.3)
    for place, (_, value, status) in enumerate(points):
        axes.annotate(f"{value:,.0f} [{status}]", (place, value), xytext=(6, 7),
                      textcoords="offset points", ha="left", fontweight="bold")
    axes.set_xticks(places, [f"{short}\n{change}" for (short, *_), change in zip(points, CHANGES)])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plot.bytes_short(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(False, axis="x")
    plot.headed(fig, "What a language model keeps for each token it has read",
                "bytes of KV cache a token, logarithmic axis")
    return fig


def main(arguments: list[str]) -> int:
    """Write the picture, or print its alternative text."""
    points = series()
    if arguments == ["--alt"]:
        print(alt(points))
        return 0
    if arguments:
        print(f"tools.readme_picture takes --alt or nothing, not {arguments[0]!r}.",
              file=sys.stderr)
        return 2
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(plot.png(draw(points)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
