"""Rows of every generation against literal byte counts, and the offsets of their fields."""

import pytest

from tinymodels import layouts
from tinymodels.layouts import BF16, E2M1, Field, Layout


@pytest.mark.parametrize(
    "row, terms",
    [
        (layouts.key_value(8, 128), (2048, 2048)),  # V1: 4,096
        (layouts.latent(512, 64), (1024, 128)),  # V2, V3: 1,152
        (layouts.latent_fp8(512, 64), (512, 16, 128)),  # V3.2 entry: 656
        (layouts.index_fp8(128), (128, 4)),  # V3.2 key: 132
        (layouts.shared_kv_fp8(448, 64), (448, 128, 7, 1)),  # V4 entry: 584
        (layouts.index_fp4(128), (64, 4)),  # V4, V4.1 key: 68
        (layouts.entry_fp4(512), (256, 32)),  # V4.1 entry: 288
        (layouts.entry_fp8(512), (512, 16)),  # V4.1 window: 528
    ],
    ids=lambda value: value.name if isinstance(value, Layout) else "",
)
def test_bytes_of_a_row(row, terms):
    assert tuple(f.nbytes for f in row.fields) == terms
    assert row.nbytes == sum(terms)
    assert row.terms() == " + ".join(map(str, terms))


def test_the_eight_totals():
    totals = (4096, 1152, 656, 132, 584, 68, 288, 528)
    rows = (
        layouts.key_value(8, 128),
        layouts.latent(512, 64),
        layouts.latent_fp8(512, 64),
        layouts.index_fp8(128),
        layouts.shared_kv_fp8(448, 64),
        layouts.index_fp4(128),
        layouts.entry_fp4(512),
        layouts.entry_fp8(512),
    )
    assert tuple(row.nbytes for row in rows) == totals


def test_values_leave_out_scales_and_padding():
    assert layouts.shared_kv_fp8(448, 64).values == 512
    assert layouts.entry_fp4(512).values == 512
    assert layouts.latent_fp8(512, 64).values == 576
    assert layouts.index_fp8(128).values == 128
    assert layouts.key_value(3, 20).values == 120


def test_offsets_follow_one_another():
    assert layouts.shared_kv_fp8(448, 64).offsets() == {
        "nope": (0, 448),
        "rope": (448, 576),
        "nope_scale": (576, 583),
        "pad": (583, 584),
    }
    assert layouts.entry_fp4(512).offsets() == {"latent": (0, 256), "latent_scale": (256, 288)}


@pytest.mark.parametrize(
    "values, block, scales", [(512, 128, 4), (448, 64, 7), (33, 32, 2), (1, 16, 1)]
)
def test_a_short_last_block_has_a_scale(values, block, scales):
    assert layouts.scale_count(values, block) == scales


def test_no_padding_where_the_scales_fill_it():
    row = layouts.shared_kv_fp8(512, 24)  # 8 scales
    assert "pad" not in row.offsets()
    assert row.nbytes == 512 + 48 + 8


def test_a_field_that_ends_inside_a_byte_is_refused():
    with pytest.raises(ValueError, match="inside a byte"):
        Field("odd", 3, E2M1).nbytes  # noqa: B018


@pytest.mark.parametrize("bits, nbytes", [(16, 1152), (8, 576), (6, 432), (5, 360), (1, 72)])
def test_at_bits(bits, nbytes):
    row = layouts.at_bits(layouts.latent(512, 64), bits)
    assert (row.nbytes, row.values) == (nbytes, 576)
    with_scales = layouts.at_bits(layouts.latent_fp8(512, 64), bits)
    assert with_scales.nbytes == nbytes  # scales are dropped, not counted as values


@pytest.mark.parametrize("bits", [0, -3, 65, 2.5, True, "6"])
def test_at_bits_refuses(bits):
    with pytest.raises(ValueError, match="bits"):
        layouts.at_bits(layouts.latent(512, 64), bits)


def test_at_bits_refuses_a_broken_byte():
    with pytest.raises(ValueError, match="15 values of 3 bits end inside a byte"):
        layouts.at_bits(layouts.plain("row", BF16, a=15), 3)
