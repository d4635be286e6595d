"""Rows of bytes against golden files and an independent float64 computation."""

import time
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file

from tinymodels import layouts
from tinymodels.cache.packing import pack, unpack
from tinymodels.layouts import BF16, E2M1, E4M3, F32, F64, UE8M0, Field, Layout

from .reference_rows import expected_row

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "quant_units.safetensors")

# Every deployed row: its layout and its literal size.
ROWS = {
    "V1": (layouts.key_value(8, 128), 4096),
    "V2 V3": (layouts.latent(512, 64), 1152),
    "V3.2": (layouts.latent_fp8(512, 64), 656),
    "V3.2 index": (layouts.index_fp8(128), 132),
    "V4": (layouts.shared_kv_fp8(448, 64), 584),
    "V4 index": (layouts.index_fp4(128), 68),
    "V4.1 far": (layouts.entry_fp4(512), 288),
    "V4.1 window": (layouts.entry_fp8(512), 528),
}
# Sizes that no block divides, as the tiny models and the curious will have them.
ODD = {
    "odd V3.2": layouts.latent_fp8(141, 6),
    "odd V3.2 index": layouts.index_fp8(90),
    "odd V4": layouts.shared_kv_fp8(77, 10),
    "odd index": layouts.index_fp4(70),
    "odd far": layouts.entry_fp4(42),
    "odd window": layouts.entry_fp8(45),
    "odd V1": layouts.key_value(3, 7),
}
LAYOUTS = {name: layout for name, (layout, _) in ROWS.items()} | ODD
by_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
by_seed = pytest.mark.parametrize("seed", [1, 2, 3])


def counts(layout):
    scales = {f.scales for f in layout.fields}
    return {f.name: f.count for f in layout.fields if f.name not in scales | {"pad"}}


def random_values(layout, seed, lead=(2, 3), dtype=torch.float32):
    """Normal numbers whose size changes from row to row by several powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    size = 10 ** torch.empty(*lead, 1, dtype=torch.float64).uniform_(-5, 3, generator=generator)
    draw = {"generator": generator, "dtype": torch.float64}
    return {k: (torch.randn(*lead, n, **draw) * size).to(dtype) for k, n in counts(layout).items()}


# ---------------------------------------------------------------- byte for byte


@by_seed
@by_layout
def test_rows_byte_for_byte(layout, seed):
    values = random_values(layout, seed)
    rows = pack(layout, values)
    assert rows.shape == (2, 3, layout.nbytes) and rows.dtype == torch.uint8
    for b in range(2):
        for t in range(3):
            expected = expected_row(layout, {k: v[b, t] for k, v in values.items()})
            assert rows[b, t].numpy().tobytes() == expected


@pytest.mark.parametrize(
    "layout, codes, scales",
    [
        (layouts.entry_fp4(64), "fp4_packed", "fp4_scale_e4m3"),
        (layouts.index_fp4(64), "mxfp4_packed", "mxfp4_scale_e8m0"),
        (layouts.entry_fp8(64), "fp8_codes", "fp8_scale_e8m0"),
    ],
    ids=["288", "68", "528"],
)
def test_golden_rows(layout, codes, scales):
    rows = pack(layout, {layout.fields[0].name: GOLDEN["x"]})
    assert torch.equal(rows, torch.cat([GOLDEN[codes], GOLDEN[scales]], dim=-1))
    back = unpack(layout, rows)[layout.fields[0].name]
    assert torch.equal(back, GOLDEN[codes.split("_")[0] + "_dequant"])


@pytest.mark.parametrize("layout, nbytes", ROWS.values(), ids=ROWS.keys())
def test_row_sizes(layout, nbytes):
    values = {k: torch.zeros(2, 5, n) for k, n in counts(layout).items()}
    assert pack(layout, values).shape == (2, 5, nbytes)


# ---------------------------------------------------------------- back to numbers


@by_seed
@by_layout
def test_what_comes_back_is_near(layout, seed):
    values = random_values(layout, seed)
    back = unpack(layout, pack(layout, values))
    assert back.keys() == values.keys()
    for f in layout.fields:
        if f.name in values:
            x, y = values[f.name], back[f.name]
            assert y.shape == x.shape and y.dtype == torch.float32
            limit = {E2M1: 1 / 4, E4M3: 1 / 14, BF16: 1 / 256}[f.fmt]
            assert (x - y).abs().max() <= limit * x.abs().max() + 2e-3 * (f.fmt is E2M1)


@by_layout
def test_float64_and_float32_agree(layout):
    """The same bytes, from the same numbers; and the same numbers, but for one float32 product."""
    values = random_values(layout, seed=4)
    rows = pack(layout, values)
    assert torch.equal(rows, pack(layout, {k: v.double() for k, v in values.items()}))
    narrow, wide = unpack(layout, rows), unpack(layout, rows, torch.float64)
    has_f32_scales = any(f.fmt is F32 for f in layout.fields)
    for name in narrow:
        assert wide[name].dtype == torch.float64
        if has_f32_scales:
            assert torch.allclose(narrow[name].double(), wide[name], rtol=2**-23, atol=0)
        else:
            assert torch.equal(narrow[name].double(), wide[name])


@pytest.mark.parametrize("layout", ODD.values(), ids=ODD.keys())
def test_narrow_dtypes_come_back(layout):
    rows = pack(layout, random_values(layout, seed=6))
    for name, x in unpack(layout, rows, torch.bfloat16).items():
        assert x.dtype == torch.bfloat16
        assert torch.equal(x, unpack(layout, rows)[name].bfloat16())


# Packing again what was unpacked. Which formats give the same bytes and which only the same
# numbers is what the module's docstring says.


def again(layout, values, dtype):
    rows = pack(layout, values)
    back = unpack(layout, rows, dtype)
    rows_again = pack(layout, back)
    back_again = unpack(layout, rows_again, dtype)
    same_bytes = (rows == rows_again).all(-1)
    same_numbers = torch.stack([(back[k] == back_again[k]).all(-1) for k in back]).all(0)
    return same_bytes, same_numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@by_layout
def test_idempotence(layout, dtype):
    values = random_values(layout, seed=8, lead=(3, 700), dtype=dtype)
    same_bytes, same_numbers = again(layout, values, dtype)
    scales = {f.fmt for f in layout.fields} & {UE8M0, F32}
    if UE8M0 in scales:
        assert same_numbers.all() and not same_bytes.all()
    elif E2M1 in {f.fmt for f in layout.fields}:
        x = values["latent"]
        blocks = torch.nn.functional.pad(x, (0, -x.shape[-1] % 16)).unflatten(-1, (-1, 16))
        amax = blocks.abs().amax(-1) * 512
        at_risk = ((amax >= 9) & (amax <= 10)).any(-1)
        assert same_bytes[~at_risk].all() and same_numbers[~at_risk].all()
    else:
        assert same_bytes.all() and same_numbers.all()


def test_where_fp4_is_not_idempotent():
    layout = layouts.entry_fp4(16)
    for amax, first, second in [(8.9, 6, 6), (9, 8, 6), (10, 8, 6), (10.1, 12, 12)]:
        x = torch.zeros(1, 16)
        x[0, 3] = amax / 512
        once = unpack(layout, pack(layout, {"latent": x}))
        twice = unpack(layout, pack(layout, once))
        assert (once["latent"][0, 3] * 512, twice["latent"][0, 3] * 512) == (first, second)


@given(
    x=arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.just(46)),
        elements=st.floats(-1e4, 1e4, width=32),
    )
)
@settings(max_examples=60, deadline=None)
def test_any_numbers_pack_as_expected(x):
    for layout in (layouts.entry_fp4(46), layouts.index_fp4(46), layouts.entry_fp8(46)):
        name = layout.fields[0].name
        rows = pack(layout, {name: torch.from_numpy(x)})
        for row, values in zip(rows, torch.from_numpy(x)):
            assert row.numpy().tobytes() == expected_row(layout, {name: values})


# ---------------------------------------------------------------- memory


def test_padding_is_zero_and_scales_lie_last():
    layout, _ = ROWS["V4"]
    values = {"nope": torch.ones(1, 448) * 448, "rope": torch.ones(1, 64)}
    row = pack(layout, values)[0].tolist()
    assert row[:448] == [0x7E] * 448  # 448 is E4M3's largest
    assert row[448:576] == [0x80, 0x3F] * 64  # 1.0 in bfloat16, little-endian
    assert row[576:] == [127] * 7 + [0]


@pytest.mark.parametrize("fmt, dtype", [(F32, torch.float32), (F64, torch.float64)])
def test_float_rows_are_exact(fmt, dtype):
    layout = layouts.plain("proof", fmt, latent=13, rope=6)
    values = random_values(layout, seed=1, dtype=dtype)
    rows = pack(layout, values)
    assert rows.shape[-1] == 19 * fmt.bits // 8
    back = unpack(layout, rows, dtype)
    assert all(torch.equal(back[k], values[k]) for k in values)


def test_float64_is_rounded_once_to_bf16():
    above = torch.tensor([[1 + 2.0**-8 + 2.0**-40] * 3], dtype=torch.float64)
    layout = layouts.plain("kv", BF16, latent=3)
    assert unpack(layout, pack(layout, {"latent": above}))["latent"].tolist() == [[1 + 2.0**-7] * 3]


def test_any_view_of_bytes_and_numbers_will_do():
    layout = layouts.latent_fp8(150, 6)  # 150 + 8 + 12: nothing is aligned to 4 bytes
    values = random_values(layout, seed=2, lead=(2, 5))
    rows = pack(layout, values)
    strided = {k: v.mT.contiguous().mT for k, v in values.items()}
    assert torch.equal(pack(layout, strided), rows)
    shifted = torch.zeros(2, 5, layout.nbytes + 3, dtype=torch.uint8)[..., 3:]
    shifted.copy_(rows)
    for k, v in unpack(layout, shifted).items():
        assert torch.equal(v, unpack(layout, rows)[k])


def test_unpacked_numbers_are_not_the_storage():
    layout = layouts.plain("proof", F32, latent=5)
    rows = pack(layout, {"latent": torch.ones(2, 5)})
    unpack(layout, rows)["latent"].zero_()
    assert unpack(layout, rows)["latent"].sum() == 10


@by_layout
def test_no_rows(layout):
    values = {k: torch.zeros(2, 0, n) for k, n in counts(layout).items()}
    rows = pack(layout, values)
    assert rows.shape == (2, 0, layout.nbytes)
    assert all(v.shape == (2, 0, counts(layout)[k]) for k, v in unpack(layout, rows).items())


def test_inputs_are_left_alone_and_carry_no_gradient():
    layout = layouts.entry_fp4(40)
    x = torch.randn(2, 3, 40, requires_grad=True)
    before = x.detach().clone()
    rows = pack(layout, {"latent": x})
    assert torch.equal(x.detach(), before)
    assert not unpack(layout, rows)["latent"].requires_grad


def test_reading_4096_rows_is_quick():
    layout, _ = ROWS["V4.1 far"]
    rows = pack(layout, {"latent": torch.randn(1, 4096, 512)})
    times = []
    for _ in range(5):
        start = time.perf_counter()
        unpack(layout, rows)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1  # some milliseconds on an idle core


# ---------------------------------------------------------------- refusals


def refuse(layout, match, **values):
    with pytest.raises(ValueError, match=match):
        pack(layout, values)


@by_layout
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_are_refused_in_every_field(layout, bad):
    for name in counts(layout):
        values = {k: torch.ones(2, 3, n) for k, n in counts(layout).items()}
        values[name][1, 2, -1] = bad
        with pytest.raises(ValueError, match=f"field '{name}'.*NaN"):
            pack(layout, values)


def test_refusals_name_field_and_shape():
    layout = layouts.latent(20, 6)
    c, r = torch.ones(2, 3, 20), torch.ones(2, 3, 6)
    refuse(layout, "expected \\['latent', 'rope'\\]", latent=c)
    refuse(layout, "expected \\['latent', 'rope'\\]", latent=c, rope=r, extra=r)
    refuse(layout, "'rope': shape \\(2, 3, 5\\); expected \\(2, 3, 6\\)", latent=c, rope=r[..., 1:])
    refuse(layout, "'rope': shape \\(2, 1, 6\\)", latent=c, rope=r[:, :1])
    refuse(layout, "'rope': torch.int64", latent=c, rope=r.long())
    refuse(layout, "more than bfloat16", latent=c * 3.4e38, rope=r)
    for rows in (torch.zeros(2, 51, dtype=torch.uint8), torch.zeros(2, 52), torch.tensor(3)):
        with pytest.raises(ValueError, match="last axis of 52"):
            unpack(layout, rows)
    with pytest.raises(ValueError, match="floating point"):
        unpack(layout, torch.zeros(2, 52, dtype=torch.uint8), torch.int32)


def made(fmt, scale_fmt, block, scale_count=2, name="s"):
    return Layout("own", (Field("x", 40, fmt, "s", block), Field(name, scale_count, scale_fmt)))


def test_unknown_schemes_are_refused():
    x = torch.ones(3, 40)
    refuse(made(E2M1, E4M3, 32), "no scheme for e2m1 with e4m3 scales per 32", x=x)
    refuse(made(E4M3, F32, 64), "no scheme for e4m3 with float32", x=x)
    refuse(made(BF16, UE8M0, 32), "no scheme for bfloat16", x=x)
    refuse(made(E4M3, UE8M0, 32, scale_count=3), "3 scales; 2 are needed", x=x)
    refuse(layouts.plain("bare", E4M3, x=40), "values need scales", x=x)
    with pytest.raises(ValueError, match="a field the layout lacks"):
        missing = made(E4M3, UE8M0, 32, name="elsewhere")
        pack(missing, {"x": x, "elsewhere": torch.ones(3, 2)})


def test_scale_count_of_the_layouts_is_what_packing_needs():
    for n in range(2, 300, 2):
        assert layouts.entry_fp4(n).fields[1].count == ceil(n / 16)
