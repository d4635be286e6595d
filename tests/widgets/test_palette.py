"""The colours of lines: legible on both grounds, and apart for whoever looks at them."""

import ast
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tinymodels.widgets import plot
from tools.site.dark import turned

ROOT = Path(__file__).resolve().parent.parent.parent
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442")
APART = 8.0  # hundredths of OKLab; two colours at 2 are the same unless they touch

# What an eye without one kind of cone sees, of linear light (Machado, Oliveira and Fernandes
# 2009, severity 1).
EYES = {
    "all cones": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# OKLab (Ottosson 2020): linear light -> cones -> lightness and two axes of hue.
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
AXES = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def numbers(colours) -> np.ndarray:
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])


def at_night(colours) -> list[str]:
    return ["#" + bytes(row).hex() for row in np.round(turned(numbers(colours))).astype(np.uint8)]


def nearest(colours, eye: str) -> float:
    """The smallest distance of two of the colours, in hundredths of OKLab."""
    c = numbers(colours) / 255
    light = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    seen = np.clip(light @ np.array(EYES[eye]).T, 0, 1)
    places = 100 * np.cbrt(seen @ np.array(CONES).T) @ np.array(AXES).T
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2))


def pale(colours, ground: str) -> list[str]:
    return [colour for colour in colours if plot.contrast(colour, ground) < plot.LINE]


def test_lines_stand_out_from_both_grounds():
    assert pale(plot.PALETTE, plot.LIGHT["ground"]) == []
    assert pale(at_night(plot.PALETTE), plot.DARK["ground"]) == []
    assert pale(OKABE_ITO, plot.LIGHT["ground"]) == ["#E69F00", "#56B4E9", "#F0E442"]
    assert len(pale(at_night(OKABE_ITO), plot.DARK["ground"])) == 3


@pytest.mark.parametrize("eye", EYES)
def test_lines_are_told_apart_whoever_looks(eye):
    assert nearest(plot.PALETTE, eye) >= APART
    assert nearest(at_night(plot.PALETTE), eye) >= APART


def test_colours_that_look_alike_are_seen():
    assert (
        nearest(["#009E73", "#CC79A7"], "no green")
        < APART
        < nearest(["#009E73", "#CC79A7"], "no blue")
    )
    assert nearest(["#ffffff", "#000000"], "no red") == pytest.approx(100, abs=0.1)


# ---------------------------------------------------------------- the lines that are drawn

DRAWN = {"plot", "loglog", "semilogx", "semilogy", "step", "errorbar", "axhline", "axvline"}
WORDS = {"color", "c", "ec", "edgecolor"}


def shade(node: ast.AST) -> str | None:
    """The colour that an expression names, as "#rrggbb"; None where it is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return to_hex(node.value)
    if isinstance(node, ast.Attribute) and node.attr.isupper():
        return getattr(plot, node.attr, None)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "plot.LIGHT":
        return plot.LIGHT[ast.literal_eval(node.slice)]
    return None


def pale_lines(source: str) -> list[str]:
    """The calls that draw a line too pale for white, or let the ground shine through it. A line
    in the ground's own colour is a gap."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in DRAWN:
            continue
        given = {word.arg: word.value for word in node.keywords}
        colours = [shade(value) for word, value in given.items() if word in WORDS]
        lines = [colour for colour in colours if colour not in (None, plot.LIGHT["ground"])]
        if "alpha" in given or pale(lines, plot.LIGHT["ground"]):
            found.append(ast.unparse(node))
    return found


def test_no_line_is_drawn_pale():
    found, cells = {}, 0
    for folder in ("sources/lessons", "tinymodels/widgets"):
        for file in sorted((ROOT / folder).glob("*.py")):
            for cell in re.split(r"^# %%.*$", file.read_text(encoding="utf-8"), flags=re.M):
                if any(f".{name}(" in cell for name in DRAWN):  # to parse all would take seconds
                    cells += 1
                    found |= dict.fromkeys(pale_lines(cell), file.name)
    assert found == {} and cells > 30


def test_a_pale_line_is_seen():
    for words in ("color='#E69F00'", "color='silver'", "c=plot.LIGHT['soft']", "alpha=0.3"):
        assert len(pale_lines(f"ax.plot(x, y, {words})\nax.axhline(3, {words})")) == 2, words
    for words in ("color=plot.ORANGE", "color=colour", "c=plot.LIGHT['quiet']", "lw=1"):
        assert pale_lines(f"ax.plot(x, y, {words})\nax.barh(x, y, color='silver')") == [], words
