"""How every figure of the course looks, and how numbers of bytes are written.

Figures are opaque white, with a font that travels with matplotlib. A line in any colour of the
palette stands out from the ground (3 to 1, WCAG 2.2, 1.4.11), and any two are told apart with
every common form of colour blindness, in the dark theme too. The same figure gives the same
file, byte for byte, on one installation: no date and no version are written into it.
"""

import base64
import io
from fractions import Fraction
from html import escape

from cycler import cycler
from matplotlib import rcParams
from matplotlib.figure import Figure
from PIL import Image

# Found by search: at least 3.1 to 1 on white, no two nearer than 8.3 hundredths in OKLab, whoever
# looks, by day and as the dark twins. (Okabe and Ito's, made for areas, have 7.6 and 3.2, and
# lines of 1.3 to 1.)
BLACK, ORANGE, SKY, GREEN = "#000000", "#CC8105", "#4A91C7", "#02611E"
NAVY, BLUE, VERMILION, PURPLE = "#0B2F6D", "#0072B2", "#C55554", "#7C0CA5"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK, NAVY)
LINE = 3  # the contrast that a line or a mark needs

# ground: behind everything. ink, quiet, accent: text. soft, bar: areas that carry a meaning, track:
# areas and lines that only guide the eye; no text is ever set in these two.
LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f1f1f",
    "quiet": "#5a5a5a",
    "accent": BLUE,
    "soft": "#9cc3dd",
    "bar": "#8a9299",
    "track": "#e3e6e8",
}
DARK = {
    "ground": "#111111",
    "ink": "#ececec",
    "quiet": "#adadad",
    "accent": "#56B4E9",
    "soft": "#2f617f",
    "bar": "#7d868c",
    "track": "#34383b",
}

DOTS_PER_INCH = 160
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": LIGHT["quiet"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT["track"],
    "grid.linewidth": 0.8,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["quiet"],
    "ytick.color": LIGHT["quiet"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "lines.linewidth": 2.0,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "figure.facecolor": LIGHT["ground"],
    "savefig.facecolor": LIGHT["ground"],
    "figure.dpi": DOTS_PER_INCH,
    "savefig.dpi": DOTS_PER_INCH,
    "axes.prop_cycle": cycler(color=PALETTE),
}


def figure(width: float = 6.4, height: float = 3.2, rows: int = 1, columns: int = 1):
    """A figure of the course and its axes: one axis, or an array of them.

    width, height: in inches; 6.4 is as wide as a line of text. What is drawn later follows the
    same style, because matplotlib's settings are changed for the whole process. Raises
    ValueError for a size that is not positive.
    """
    if not (width > 0 and height > 0):
        raise ValueError(f"figure is {width} x {height} inches; both must be above 0")
    rcParams.update(_STYLE)
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(rows, columns)


def png(fig: Figure) -> bytes:
    """The figure as a PNG file of at most 256 colours, the same bytes each time.

    Lines, bars and letters need no more, and a notebook that holds twenty pictures stays small.
    """
    for ax in fig.axes:
        if ax.images:
            ax.grid(visible=False)  # lines across a heat map hide what it shows
    drawn = io.BytesIO()
    fig.savefig(drawn, format="rgba")
    width, height = fig.canvas.get_width_height(physical=True)
    size = (width, height)
    whole = Image.frombytes("RGBA", size, drawn.getvalue()).convert("RGB")
    out = io.BytesIO()
    whole.quantize(256, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def bundle(fig: Figure, alt: str) -> tuple[dict, dict]:
    """The figure as a notebook stores it: (data, metadata), with its alternative text.

    text/html is a picture with that text, which is what JupyterLab and nbconvert show and read
    aloud; image/png is there for readers without HTML; text/plain is compared when notebooks
    are tested. Raises ValueError if there is no text.
    """
    if not alt.strip():
        raise ValueError("alt is empty; say in a sentence what the picture shows")
    width = round(fig.get_figwidth() * 100)
    encoded = base64.b64encode(png(fig)).decode("ascii")
    picture = f'<img alt="{escape(alt)}" width="{width}" src="data:image/png;base64,{encoded}">'
    data = {"text/plain": alt, "text/html": picture, "image/png": encoded}
    return data, {"image/png": {"alt": alt, "width": width}}


def headed(fig: Figure, head: str, line: str = "") -> None:
    """A bold headline over the whole figure, and a line under it."""
    fig.suptitle(head, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    if line:
        fig.axes[0].set_title(line, fontsize=9)


def show(fig: Figure, alt: str) -> None:
    """Display a figure in a notebook, with what it shows in words for those who cannot see it."""
    from IPython.display import display

    data, metadata = bundle(fig, alt)
    display(data, raw=True, metadata=metadata)


# ---------------------------------------------------------------- numbers of bytes

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def exact(n: int | float) -> str:
    """All the digits, in groups: 389120 -> "389,120", 3514.25 -> "3,514.25"."""
    if n == int(n):
        return f"{int(n):,}"
    return f"{float(n):,.4f}".rstrip("0").rstrip(".")


def bytes_short(n: int | float) -> str:
    """Bytes in decimal units, about three digits: 51_002_736_640 -> "51.0 GB"."""
    if n < 0:
        raise ValueError(f"{n} bytes: a number of bytes is not negative")
    if n < 1000:
        return "1 byte" if n == 1 else f"{exact(n)} bytes"
    value = Fraction(n) / 1000
    for unit in _UNITS:
        for digits in (2, 1, 0):  # 9.99, 99.9, 999: what rounds to one digit more moves on
            if round(value, digits) < 10 ** (3 - digits):
                return f"{float(round(value, digits)):.{digits}f} {unit}"
        value /= 1000
    return f"{float(value * 1000):,.0f} {_UNITS[-1]}"


def bytes_text(n: int | float) -> str:
    """Bytes in decimal units with the exact number beside: "389 kB (389,120 bytes)"."""
    if n < 1000:
        return bytes_short(n)
    return f"{bytes_short(n)} ({exact(n)} bytes)"


# ---------------------------------------------------------------- legibility


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.2); small text needs 4.5, a line 3."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    def linear(i: int) -> float:
        c = int(colour[i : i + 2], 16) / 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
