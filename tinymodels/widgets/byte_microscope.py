"""The byte microscope: one number of a V4.1 row, from its nibble to what it stands for.

A row is 256 bytes of codes, two in a byte, and 32 scales. `record` packs 512 numbers with the
cache's own quantiser; the widget takes the bytes apart, one number at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a record can be shown without torch
    from torch import Tensor

BLOCK = 16
OUTLIER = 20.0
ROWS = {False: "as it is", True: "with an outlier"}
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Packed:
    """numbers: before. row: the bytes. scales: what each scale byte stands for. back: after."""

    numbers: tuple[float, ...]
    row: tuple[int, ...]
    scales: tuple[float, ...]
    back: tuple[float, ...]

    def code(self, number: int) -> int:
        """The nibble: even numbers lie in the low half of their byte."""
        byte = self.row[number // 2]
        return byte >> 4 if number % 2 else byte & 15


@dataclass(frozen=True)
class Slide:
    """What lies under the microscope: a row, and the same with one large number in it.

    outlier: which number that is. layer: whose row; tokens: those pooled to it; readers: the
    layers that read it. rope: how many numbers at the end carry the position.
    """

    plain: Packed
    spoiled: Packed
    outlier: int
    layer: int
    tokens: tuple[int, ...]
    readers: tuple[int, ...]
    rope: int

    def packed(self, spoiled: bool) -> Packed:
        return self.spoiled if spoiled else self.plain


def record(
    latent_D: "Tensor",
    layer: int,
    tokens: Sequence[int],
    readers: Sequence[int],
    rope: int = 64,
    outlier: int = 102,
) -> Slide:
    """A row of these numbers, packed as the cache packs it. Errors: ValueError if they are not a
    whole number of blocks, or `outlier` is not one of them."""
    size = latent_D.shape[-1]
    if latent_D.ndim != 1 or size % BLOCK:
        raise ValueError(f"the row has shape {tuple(latent_D.shape)}; give blocks of {BLOCK}")
    if not 0 <= outlier < size:
        raise ValueError(f"outlier is {outlier}; the row has numbers 0 to {size - 1}")
    large_D = latent_D.clone()
    large_D[outlier] = OUTLIER
    places = tuple(map(int, tokens)), tuple(map(int, readers))
    return Slide(_pack(latent_D), _pack(large_D), outlier, layer, *places, rope)


def _pack(latent_D: "Tensor") -> Packed:
    from ..cache.packing import pack, unpack
    from ..formats import E4M3, decode
    from ..layouts import entry_fp4

    layout = entry_fp4(latent_D.shape[-1])
    row = pack(layout, {"latent": latent_D})
    scales = decode(row[len(latent_D) // 2 :], E4M3)
    back = unpack(layout, row)["latent"]
    return Packed(*(tuple(x.tolist()) for x in (latent_D, row, scales, back)))


# ---------------------------------------------------------------- what the reader sees


def look(slide: Slide, number: int, spoiled: bool) -> View:
    """One nibble, its byte, its scale, and the sixteen numbers that share the scale."""
    packed = slide.packed(spoiled)
    size = len(packed.numbers)
    block, byte, code = number // BLOCK, number // 2, packed.code(number)
    true, back, scale = packed.numbers[number], packed.back[number], packed.scales[block]
    value = -E2M1[code & 7] if code & 8 else E2M1[code]
    half = "high" if number % 2 else "low"
    at = size // 2 + block
    owner = (
        f"Row of layer {slide.layer}, tokens {_listed(slide.tokens)}, read by layers"
        f" {_listed(slide.readers)}. RoPE"
        f" {'turns' if number >= size - slide.rope else 'does not turn'} number {number}."
    )
    first = block * BLOCK
    end = max(abs(x) for x in (*packed.numbers[first:][:BLOCK], *packed.back[first:][:BLOCK]))
    end = end or 1.0
    marks = [
        {
            "at": 0.5 + packed.numbers[i] / end / 2,
            "end": 0.5 + packed.back[i] / end / 2,
            "here": i == number,
        }
        for i in range(first, first + BLOCK)
    ]
    return View(
        number=f"{value:g} × {scale:g} = {back:g}",
        unit=f"was {true:.3f}, error {back - true:+.3f}",
        lines=(
            f"Byte {byte} is {packed.row[byte]:08b}; its {half} half is {code:04b},"
            f" code {code}: {value:g}.",
            f"Byte {at} is {packed.row[at]:08b}, the scale of numbers {first} to"
            f" {first + BLOCK - 1}: {scale:g}.",
            owner,
        ),
        alt=f"A row of {len(packed.row)} bytes; byte {byte} and the scale in byte {at} are marked."
        f" Below, the sixteen numbers of the block, up to {end:.2f}, and what they became.",
        say=f"number {number}: {true:.3f} became {back:g}.",
        chart={
            "bytes": len(packed.row),
            "codes": size // 2,
            "byte": byte,
            "scale": at,
            "marks": marks,
            "most": f"{end:.2f}",
            "first": first,
        },
    )


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return " and ".join(map(str, numbers))


class ByteMicroscope(Widget):
    """Move along a row, number by number."""

    _esm = script("byte_microscope.js")

    def __init__(self, slide: Slide, number: int = 100, spoiled: bool = False):
        self._slide = slide
        places = tuple(range(len(slide.plain.numbers)))
        controls = (
            Control("number", "number", "range", places, tuple(map(str, places)), "of the row"),
            Control(
                "spoiled", "the row", "select", tuple(ROWS), tuple(ROWS.values()),
                f"outlier: number {slide.outlier} set to {OUTLIER:g}",
            ),
        )  # fmt: skip
        super().__init__("Byte microscope", controls, {"number": number, "spoiled": spoiled})

    def look(self, settings: dict) -> View:
        return look(self._slide, settings["number"], settings["spoiled"])

    def draw(self, view: View):
        return _picture(view)


ACROSS = 32  # bytes in a line of the picture


def _picture(view: View):
    from matplotlib.patches import Rectangle

    chart = view.chart
    fig, (row, block) = plot.figure(8.4, 3.0, columns=2)
    for i in range(chart["bytes"]):
        y, x = divmod(i, ACROSS)
        kind = "soft" if i >= chart["codes"] else "track"
        here = i in (chart["byte"], chart["scale"])
        colour = plot.LIGHT["accent" if here else kind]
        row.add_patch(Rectangle((x, y), 0.86, 0.86, color=colour, linewidth=0))
    lines = -(-chart["bytes"] // ACROSS)
    row.set(xlim=(0, ACROSS), ylim=(lines, 0), aspect="equal", xticks=[], yticks=[])
    row.set_title(f"{chart['bytes']} bytes: codes, then scales", fontsize=9)
    row.axis("off")
    for i, mark in enumerate(chart["marks"]):
        colour = plot.LIGHT["accent" if mark["here"] else "bar"]
        block.plot([i, i], [mark["at"], mark["end"]], color=colour, linewidth=1)
        block.plot([i], [mark["at"]], "o", color=colour, fillstyle="none", clip_on=False)
        block.plot([i], [mark["end"]], "_", color=colour, markersize=9, clip_on=False)
    block.set(ylim=(0, 1), xlim=(-0.7, len(chart["marks"]) - 0.3))
    block.set_yticks((0, 0.5, 1), (f"−{chart['most']}", "0", chart["most"]))
    ends = (0, len(chart["marks"]) - 1)
    block.set_xticks(ends, [str(chart["first"] + i) for i in ends])
    block.set_title("its block: circle before, dash after", fontsize=9)
    head = f"{view.number} · {view.unit}"
    fig.suptitle(head, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel("\n".join(view.lines[:2]), x=0.01, ha="left", fontsize=9)
    return fig
