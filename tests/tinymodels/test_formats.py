"""Number formats against torch's own float8, tables written out here, and golden bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from tinymodels import formats
from tinymodels.formats import FP4, FP8, FP8_F32, FP8_F32_POW2, MXFP4
from tinymodels.layouts import BF16, E2M1, E4M3, UE8M0

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "quant_units.safetensors")
WIDE = [torch.float32, torch.float64]
ALL_CODES = torch.arange(256, dtype=torch.uint8)
E2M1_MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
E4M3_MAGNITUDES = ALL_CODES[:127].view(torch.float8_e4m3fn).double()
GRIDS = {E2M1: E2M1_MAGNITUDES, E4M3: E4M3_MAGNITUDES}
SCHEMES = [(FP4, 16), (MXFP4, 32), (FP8, 32), (FP8, 64), (FP8_F32, 128), (FP8_F32_POW2, 128)]
by_scheme = pytest.mark.parametrize("scheme, block", SCHEMES, ids=lambda v: getattr(v, "name", v))
by_dtype = pytest.mark.parametrize("dtype", WIDE, ids=str)
by_format = pytest.mark.parametrize("fmt", [E2M1, E4M3], ids=lambda f: f.name)


def bits(x):
    """Equality that tells -0 from 0 and takes NaN for itself."""
    return x.double().view(torch.int64)


# ---------------------------------------------------------------- single numbers


def test_every_e2m1_code():
    values = formats.decode(ALL_CODES[:16], E2M1, torch.float64)
    expected = torch.cat([E2M1_MAGNITUDES, -E2M1_MAGNITUDES])
    assert torch.equal(bits(values), bits(expected))


def test_every_e4m3_code():
    values = formats.decode(ALL_CODES, E4M3)
    theirs = ALL_CODES.view(torch.float8_e4m3fn).float()
    assert values.isnan().nonzero().flatten().tolist() == [0x7F, 0xFF]
    finite = ~values.isnan()
    assert torch.equal(bits(values[finite]), bits(theirs[finite]))


@by_dtype
def test_every_ue8m0_code(dtype):
    values = formats.decode(ALL_CODES, UE8M0, dtype)
    assert values[255].isnan()
    assert values[:255].tolist() == [2.0 ** (code - 127) for code in range(255)]


@by_dtype
@by_format
def test_every_tie_goes_to_the_even_code_and_its_neighbours_do_not(fmt, dtype):
    grid = GRIDS[fmt].to(dtype)
    ties = (grid[:-1] + grid[1:]) / 2
    lower = torch.arange(len(ties))
    sign = 8 if fmt is E2M1 else 128
    up = torch.nextafter(ties, ties + 1)
    down = torch.nextafter(ties, ties - 1)
    for values, expected in [(ties, lower + lower % 2), (up, lower + 1), (down, lower)]:
        assert formats.encode(values, fmt).tolist() == expected.tolist()
        assert formats.encode(-values, fmt).tolist() == (expected + sign).tolist()


def test_the_ties_of_e2m1_by_name():
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    assert formats.round_to(ties, E2M1).tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert formats.round_to(-ties, E2M1).tolist() == [0, -1, -1, -2, -2, -4, -4]


@by_dtype
@by_format
def test_codes_come_back_as_themselves(fmt, dtype):
    codes = ALL_CODES[:16] if fmt is E2M1 else ALL_CODES[(ALL_CODES & 127) != 127]
    assert torch.equal(formats.encode(formats.decode(codes, fmt, dtype), fmt), codes)


@by_format
def test_zero_keeps_its_sign_and_so_does_what_rounds_to_zero(fmt):
    sign = 8 if fmt is E2M1 else 128
    values = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-42, -1e-42])
    assert formats.encode(values, fmt).tolist() == [0, sign] * 3


def test_too_large_is_the_largest():
    values = torch.tensor([448.0, 464.0, 465.0, 1e30, -1e30])
    assert formats.round_to(values, E4M3).tolist() == [448] * 4 + [-448]
    assert formats.round_to(values, E2M1).tolist() == [6] * 4 + [-6]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_e4m3_equals_the_cast_of_torch(seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(50_001, generator=generator) * torch.logspace(-5, 2.5, 50_001)
    values = values.clamp(-448, 448)
    theirs = values.to(torch.float8_e4m3fn).view(torch.uint8)
    assert torch.equal(formats.encode(values, E4M3), theirs)


def test_float64_is_rounded_once():
    # One part in 2^40 above the tie of 1 and 1.125: float32 cannot see it, float64 can.
    above = torch.tensor([1.0625 * (1 + 2.0**-40)], dtype=torch.float64)
    assert formats.round_to(above, E4M3).item() == 1.125
    assert formats.round_to(above.float(), E4M3).item() == 1.0
    # The same with bfloat16, whose cast in torch goes through float32.
    above = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert formats.to_bf16(above).item() == 1 + 2.0**-7
    assert above.to(torch.bfloat16).item() == 1.0


def test_bf16_from_float64_equals_the_cast_where_float32_is_exact():
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(30_011, generator=generator) * torch.logspace(-44, 38, 30_011)
    values = torch.cat([values, torch.tensor([0.0, -0.0, 3.39e38, 3.4e38])])
    ours = formats.to_bf16(values.double()).view(torch.int16)
    assert torch.equal(ours, values.to(torch.bfloat16).view(torch.int16))


def test_ue8m0_is_the_next_power_of_two():
    values = torch.tensor([1.0, 1.0000001, 2.0, 2.1, 0.5, 0.3, 2.0**-127, 1e-42])
    assert formats.encode(values, UE8M0).tolist() == [127, 128, 128, 129, 126, 126, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_input_gives_the_codes_of_its_float32(dtype):
    values = torch.linspace(-7, 7, 301).to(dtype)
    assert torch.equal(formats.encode(values, E2M1), formats.encode(values.float(), E2M1))
    assert formats.round_to(values, E2M1).dtype == dtype


def test_nibbles_low_first():
    codes = torch.tensor([[1, 2, 3, 15, 0, 9]], dtype=torch.uint8)
    packed = formats.pack_nibbles(codes)
    assert packed.tolist() == [[0x21, 0xF3, 0x90]]
    assert torch.equal(formats.unpack_nibbles(packed), codes)
    everything = formats.unpack_nibbles(ALL_CODES[None])
    assert torch.equal(formats.pack_nibbles(everything), ALL_CODES[None])


# ---------------------------------------------------------------- blocks


@by_dtype
@pytest.mark.parametrize(
    "scheme, block, name, scale",
    [(FP8, 32, "fp8", "e8m0"), (MXFP4, 32, "mxfp4", "e8m0"), (FP4, 16, "fp4", "e4m3")],
    ids=["fp8", "mxfp4", "fp4"],
)
def test_golden_bytes(scheme, block, name, scale, dtype):
    codes, scales = formats.quantise(GOLDEN["x"].to(dtype), scheme, block)
    assert torch.equal(codes, GOLDEN[f"{name}_codes"])
    assert torch.equal(scales, GOLDEN[f"{name}_scale_{scale}"])
    back = formats.dequantise(codes, scales, scheme, block, dtype)
    assert torch.equal(bits(back), bits(GOLDEN[f"{name}_dequant"]))
    if f"{name}_packed" in GOLDEN:
        assert torch.equal(formats.pack_nibbles(codes), GOLDEN[f"{name}_packed"])


def scales_of(values, scheme, block):
    scales = formats.quantise(values, scheme, block)[1]
    return formats.scale_values(scales, scheme, torch.float64).tolist()


@by_dtype
def test_scales_worked_by_hand(dtype):
    x = torch.tensor([7.0, 1.0, -3.5], dtype=dtype)
    assert scales_of(x, FP4, 16) == [1.125]
    assert formats.round_trip(x, FP4, 16).tolist() == [6.75, 1.125, -3.375]
    assert scales_of(x, MXFP4, 32) == [2]
    assert formats.round_trip(x, MXFP4, 32).tolist() == [8, 1, -4]
    for amax, scale in [(448.0, 1), (449.0, 2), (224.0, 0.5), (225.0, 1)]:
        assert scales_of(torch.tensor([1.0, -amax], dtype=dtype), FP8, 32) == [scale]
    big = torch.tensor([-3000.0, 5.0], dtype=dtype)
    assert scales_of(big, FP4, 16) == [448]
    assert formats.round_trip(big, FP4, 16).tolist() == [-2688, 0]


def test_one_ulp_above_a_power_of_two_takes_the_next_scale():
    for scheme, block, top in [(FP8, 32, 448.0), (MXFP4, 32, 6.0), (FP8_F32_POW2, 128, 448.0)]:
        for power in [-9, 0, 7]:
            amax = torch.tensor([top * 2.0**power])
            above = torch.nextafter(amax, amax + 1)
            assert scales_of(amax, scheme, block) == [2.0**power]
            assert scales_of(above, scheme, block) == [2.0 ** (power + 1)]


@by_dtype
@by_scheme
def test_zero_blocks_take_the_floor(scheme, block, dtype):
    x = torch.zeros(3, block + 5, dtype=dtype)
    x[1] = -0.0
    codes, scales = formats.quantise(x, scheme, block)
    assert scales.shape == (3, 2)
    floor = {FP4: 2.0**-9, MXFP4: 2.0**-126, FP8: 2.0**-22, FP8_F32_POW2: 2.0**-22}
    expected = floor.get(scheme, float(np.float32(1e-4) / np.float32(448)))
    assert set(sum(scales_of(x, scheme, block), [])) == {expected}
    back = formats.dequantise(codes, scales, scheme, block, dtype)
    assert torch.equal(bits(back), bits(x))


def test_no_false_tie_in_float32():
    """For every E4M3 scale and every E2M1 tie: the neighbours of scale x tie round away from it,
    although the float32 quotient is itself rounded."""
    scales = E4M3_MAGNITUDES[1:].float()
    ties = (E2M1_MAGNITUDES[:-1] + E2M1_MAGNITUDES[1:]).float() / 2
    on = scales[:, None] * ties
    for target, expected in [(torch.inf, E2M1_MAGNITUDES[1:]), (-torch.inf, E2M1_MAGNITUDES[:-1])]:
        beside = torch.nextafter(on, torch.full_like(on, target))
        blocks = torch.stack([beside, (6 * scales)[:, None].expand_as(on)], dim=-1)
        back = formats.round_trip(blocks, FP4, 16)[..., 0]
        assert torch.equal(back, (scales[:, None] * expected).float())


def test_no_false_tie_with_a_float32_scale():
    """1.7039864 / 1.6037519 is 1.0625000093: above the tie of 1 and 1.125, but by less than
    float32 can tell from it. The nearest E4M3 value is 1.125."""
    x = torch.tensor([718.48083, 1.7039864])
    codes, scales = formats.quantise(x, FP8_F32, 128)
    assert scales.item() == pytest.approx(1.6037519, rel=1e-8)
    assert (x[1] / scales).item() == 1.0625
    assert formats.decode(codes, E4M3).tolist() == [448, 1.125]


def test_short_last_block_stands_alone():
    x = torch.randn(2, 3, 37, generator=torch.Generator().manual_seed(3))
    codes, scales = formats.quantise(x, FP4, 16)
    assert codes.shape == (2, 3, 37) and scales.shape == (2, 3, 3)
    tail_codes, tail_scales = formats.quantise(x[..., 32:], FP4, 16)
    assert torch.equal(codes[..., 32:], tail_codes) and torch.equal(scales[..., 2:], tail_scales)


def test_dividing_by_the_unrounded_scale_would_differ():
    """The fault this order avoids, so that the golden test is known to be able to see it."""
    x = GOLDEN["x"]
    scale = (x.unflatten(-1, (4, 16)).abs().amax(-1) / 6).clamp(2**-9, 448)
    wrong = formats.encode(x / scale.repeat_interleave(16, -1), E2M1)
    assert (wrong != GOLDEN["fp4_codes"]).sum() > 20


@by_scheme
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_round_trip_properties(scheme, block, data):
    number = st.floats(-1e6, 1e6, width=32)
    x = torch.tensor(data.draw(st.lists(number, min_size=1, max_size=block + 3)))
    y = formats.round_trip(x, scheme, block)
    amax = max(x.abs().max().item(), scheme.floor)
    assert torch.equal(bits(-y), bits(formats.round_trip(-x, scheme, block)))  # odd
    assert torch.equal(y.signbit(), x.signbit())
    cut = 2688.0 if scheme is FP4 else float("inf")
    # Half a step of E2M1 is 1/6 of amax at most, with scale rounding below 1/3; E4M3 far less.
    assert (x.clamp(-cut, cut) - y).abs().max().item() <= amax / 3
    order = torch.argsort(x[:block])
    assert (y[:block][order].diff() >= 0).all()  # larger in, not smaller out


# ---------------------------------------------------------------- training


def test_straight_through():
    x = torch.tensor([[7.0, 6.8, -3.5], [5000.0, -2688.0, 3.0]], requires_grad=True)
    y = formats.fake_quantise(x, FP4, 16)
    assert torch.equal(y, formats.round_trip(x.detach(), FP4, 16))
    y.backward(torch.tensor([[2.0, 3.0, 5.0], [7.0, 11.0, 13.0]]))
    # Scales 1.125 and 448 reach 6.75 and 2688: 7, 6.8 and 5000 were cut off.
    assert x.grad.tolist() == [[0, 0, 5], [0, 11, 13]]


def test_straight_through_never_cuts_where_the_scale_is_rounded_up():
    x = torch.randn(3, 70, generator=torch.Generator().manual_seed(9), requires_grad=True)
    formats.fake_quantise(x, FP8, 64).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_has_no_code_is_refused(bad):
    x = torch.ones(2, 40)
    x[1, 33] = bad
    for scheme, block in SCHEMES:
        with pytest.raises(ValueError, match="NaN, infinity"):
            formats.quantise(x, scheme, block)
    for fmt in (E2M1, E4M3, UE8M0):
        with pytest.raises(ValueError, match="NaN, infinity"):
            formats.encode(x, fmt)


def test_other_refusals_name_the_thing():
    x = torch.ones(4)
    cases = [
        (lambda: formats.encode(x.int(), E4M3), "int32"),
        (lambda: formats.encode(x, BF16), "to_bf16"),
        (lambda: formats.encode(-x, UE8M0), "> 0"),
        (lambda: formats.decode(x, E4M3), "uint8"),
        (lambda: formats.decode(ALL_CODES, E2M1), "above 15"),
        (lambda: formats.pack_nibbles(ALL_CODES[:3]), "even number"),
        (lambda: formats.quantise(x, FP4, 0), "block is 0"),
        (lambda: formats.quantise(x.double() * 1e300, FP8, 32), "2\\^127"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_empty_input():
    for scheme, block in SCHEMES:
        codes, scales = formats.quantise(torch.zeros(2, 0, 40), scheme, block)
        assert codes.shape == (2, 0, 40) and scales.shape == (2, 0, -(-40 // block))
