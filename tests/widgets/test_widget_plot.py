"""Numbers of bytes in words, figures as notebooks store them, colours one can read."""

import base64
import io

import pytest
from PIL import Image

from tinymodels.widgets import plot


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (890, "890 bytes"),
        (999, "999 bytes"),
        (1_000, "1.00 kB (1,000 bytes)"),
        (3_514.25, "3.51 kB (3,514.25 bytes)"),
        (5_031.4375, "5.03 kB (5,031.4375 bytes)"),
        (389_120, "389 kB (389,120 bytes)"),
        (999_499, "999 kB (999,499 bytes)"),
        (9_999, "10.0 kB (9,999 bytes)"),
        (999_500, "1.00 MB (999,500 bytes)"),
        (389_120_000_000, "389 GB (389,120,000,000 bytes)"),
    ],
)
def test_bytes_have_a_unit_and_all_their_digits(n, text):
    assert plot.bytes_text(n) == text


def test_bytes_short_never_shows_a_thousand_of_a_unit():
    for power in range(3, 19):
        for n in (10**power - 1, 10**power, 10**power + 1, 9_995 * 10**power // 1000):
            number = plot.bytes_short(n).split()[0]
            assert "," not in number and len(number) <= 4, (n, number)


def test_bytes_are_not_negative():
    with pytest.raises(ValueError, match="-1 bytes"):
        plot.bytes_short(-1)


def test_a_figure_is_opaque_white_and_the_same_file_each_time():
    def one() -> bytes:
        fig, ax = plot.figure(3.2, 1.6)
        ax.plot([1, 2, 4], label="a")
        ax.legend()
        return plot.png(fig)

    first = one()
    assert first == one()
    assert b"Software" not in first
    picture = Image.open(io.BytesIO(first))
    assert "transparency" not in picture.info
    assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert picture.size == (512, 256)


def test_no_line_crosses_a_heat_map():
    fig, ax = plot.figure(2, 2)
    ax.imshow([[0.5] * 7] * 7, vmin=0, vmax=1, cmap="Blues")
    picture = Image.open(io.BytesIO(plot.png(fig))).convert("RGB")
    x, y = (ax.transData.transform((3.3, 3.3))).round().astype(int)
    inside = {picture.getpixel((x + i, picture.height - y)) for i in range(-70, 70)}
    assert len(inside) == 1


def test_a_picture_carries_its_words_where_notebooks_and_readers_look():
    fig, _ = plot.figure(3.3, 1.7)
    words = 'Two "lines" that cross, a < b.'
    data, metadata = plot.bundle(fig, words)
    assert data["text/plain"] == metadata["image/png"]["alt"] == words
    assert '<img alt="Two &quot;lines&quot; that cross, a &lt; b." width="330"' in data["text/html"]
    assert data["image/png"] in data["text/html"]
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata["image/png"]["width"] == 330


def test_a_picture_without_words_is_refused():
    fig, _ = plot.figure()
    with pytest.raises(ValueError, match="alt is empty"):
        plot.show(fig, "  ")


def test_show_displays_one_picture(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append((a, k)))
    fig, _ = plot.figure(3, 1.5)
    plot.show(fig, alt="A line.")
    ((data,), options), *more = shown
    assert not more and options["raw"] and set(data) == {"text/plain", "text/html", "image/png"}


@pytest.mark.parametrize("size", [(0, 2), (3, -1)])
def test_a_figure_has_a_size(size):
    with pytest.raises(ValueError, match="above 0"):
        plot.figure(*size)


@pytest.mark.parametrize("theme", [plot.LIGHT, plot.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "quiet", "accent"])
def test_text_stands_out_from_the_ground(theme, text):
    assert plot.contrast(theme[text], theme["ground"]) >= 4.5


@pytest.mark.parametrize("theme", [plot.LIGHT, plot.DARK], ids=["light", "dark"])
def test_bars_and_marks_stand_out_from_the_ground(theme):
    assert plot.contrast(theme["accent"], theme["ground"]) >= 3
    assert plot.contrast(theme["bar"], theme["ground"]) >= 3
    assert plot.contrast(theme["accent"], theme["soft"]) >= 2  # written rows among read ones


def test_contrast_is_the_known_one():
    assert plot.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert plot.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
