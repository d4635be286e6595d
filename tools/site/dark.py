"""A picture's twin for the dark theme: the same shapes, colours turned over by their contrast.

Against white a colour of luminance Y has the contrast 1.05 / (Y + 0.05) (WCAG 2.2). Its twin is
the colour of the same hue that has this contrast against the dark ground. So every two colours of
a picture keep the contrast they had (letters on bars, lines on the ground); only colours darker
than INK, whose twins would have to be brighter than white, lose some: they all become white.
"""

from __future__ import annotations

import html
import io
import posixpath

import numpy as np
from jaxtyping import Float
from PIL import Image

from tinymodels.widgets import plot

_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
FITS = 520  # dots
SIDEWAYS = '<span class="sideways">Wider than this screen: move it sideways.</span>'
RIM = 0.05  # what WCAG adds to a luminance: light that the screen reflects


def _linear(colours: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """sRGB from 0 to 255 -> linear light from 0 to 1."""
    c = colours / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def _srgb(light: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Linear light from 0 to 1 -> sRGB from 0 to 255."""
    low = light * 12.92
    return 255 * np.where(
        light <= 0.0031308, low, 1.055 * np.maximum(light, 0) ** (1 / 2.4) - 0.055
    )


def turned(
    colours: Float[np.ndarray, "n 3"], ground: str = plot.DARK["ground"]
) -> Float[np.ndarray, "n 3"]:
    """The twins of some colours (0 to 255) on `ground`: white becomes `ground` itself."""
    light = _linear(np.asarray(colours, dtype=np.float64))
    below = np.array([[int(ground[i : i + 2], 16) for i in (1, 3, 5)]], dtype=np.float64)
    floor = float((_linear(below) @ _LUMINANCE)[0]) + RIM
    now = light @ _LUMINANCE
    wanted = np.clip(floor * (1 + RIM) / (now + RIM) - RIM, 0, 1)
    grey = np.repeat(wanted[:, None], 3, axis=1)
    hue = light / np.maximum(light.max(axis=1, keepdims=True), 1e-9)  # as bright as it can be
    most = hue @ _LUMINANCE
    dimmed = hue * (wanted / np.maximum(most, 1e-9))[:, None]
    share = ((wanted - most) / np.maximum(1 - most, 1e-9))[:, None]  # of white, where it is needed
    paled = hue + (1 - hue) * share
    made = np.where((most >= wanted)[:, None], dimmed, paled)
    made = np.where((light.max(axis=1) < 1e-4)[:, None], grey, made)  # black has no hue
    return np.clip(_srgb(made), 0, 255)


def named(path: str) -> str:
    """Where the twin of a picture lies: "a/b.png" -> "a/b-dark.png"."""
    stem, kind = posixpath.splitext(path)
    return f"{stem}-dark{kind}"


def both(path: str, alt: str, width: int, height: int) -> str:
    """HTML of a picture and its twin; the style sheet shows one of them. Both are fetched at
    once: a picture that waits to be scrolled to is missing on paper.

    A picture wider than FITS dots would have letters too small to read on a phone: there it keeps
    its size and is moved sideways.
    """
    words = f'alt="{html.escape(alt)}" width="{width}" height="{height}"'
    made = (
        f'<img class="by-day" src="{html.escape(path)}" {words}>'
        f'<img class="by-night" src="{html.escape(named(path))}" {words}>'
    )
    if width <= FITS:
        return made
    return f'<span class="wide"><span class="scroll">{made}</span>{SIDEWAYS}</span>'


def size(png: bytes) -> tuple[int, int]:
    """Width and height in dots, from the first bytes of a PNG."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def twin(png: bytes) -> bytes:
    """The PNG for the dark theme, of the same size."""
    picture = Image.open(io.BytesIO(png))
    if picture.mode != "P":
        picture = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette = np.array(picture.getpalette("RGB"), dtype=np.float64).reshape(-1, 3)
    picture.putpalette(np.round(turned(palette)).astype(np.uint8).tobytes(), "RGB")
    out = io.BytesIO()
    picture.save(out, format="png", compress_level=6)
    return out.getvalue()
