"""The byte microscope: what it says of a nibble is what the row's bytes say.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
import torch
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels.formats import E2M1, E4M3, FP4, decode, quantise
from tinymodels.widgets.byte_microscope import OUTLIER, ByteMicroscope, look, record

SIZE = 512


def numbers(seed=0):
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def slide():
    return record(numbers(), layer=8, tokens=(10, 11), readers=range(8, 14))


@pytest.fixture
def widget(slide):
    return ByteMicroscope(slide)


@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_nibble_is_the_quantisers(seed, spoiled):
    latent = numbers(seed)
    slide = record(latent, 2, (0, 1), (2, 3))
    if spoiled:
        latent[slide.outlier] = OUTLIER
    codes, scales = quantise(latent, FP4, 16)
    packed = slide.packed(spoiled)
    assert len(packed.row) == 288
    for i in range(SIZE):
        view = look(slide, i, spoiled)
        code, scale = packed.code(i), decode(scales[i // 16], E4M3).item()
        assert code == codes[i]
        value = decode(codes[i], E2M1).item()
        assert view.number == f"{value:g} × {scale:g} = {value * scale:g}"
        assert f"is {code:04b}, code {code}" in view.lines[0]
        assert f"{'high' if i % 2 else 'low'} half" in view.lines[0]
        assert f"Byte {i // 2} is {packed.row[i // 2]:08b}" in view.lines[0]
        assert f"Byte {256 + i // 16} is {packed.row[256 + i // 16]:08b}" in view.lines[1]
        assert ("RoPE turns" in view.lines[2]) == (i >= 448)
        assert f"was {latent[i].item():.3f}" in view.unit


def test_the_owner_and_the_readers_are_named(slide):
    assert (
        look(slide, 3, False)
        .lines[2]
        .startswith("Row of layer 8, tokens 10 and 11, read by layers 8 to 13.")
    )


def test_an_outlier_spoils_its_own_block_alone(slide):
    changed = [
        i for i in range(SIZE)
        if i != slide.outlier and slide.plain.back[i] != slide.spoiled.back[i]
    ]  # fmt: skip
    assert changed and {i // 16 for i in changed} == {slide.outlier // 16}
    block = slide.spoiled.back[96:112]
    assert sum(x == 0 for x in block) > 8


def test_a_row_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"the row has shape \(500,\); give blocks of 16"):
        record(torch.zeros(500), 2, (0,), (2,))
    with pytest.raises(ValueError, match="outlier is 512; the row has numbers 0 to 511"):
        record(torch.zeros(512), 2, (0,), (2,), outlier=512)
    look(record(torch.zeros(512), 2, (0,), (2,)), 7, False)  # nothing to divide by
