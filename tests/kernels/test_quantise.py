"""Rows of bytes against `tinymodels.cache.packing` and against recorded numbers: every byte."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from kernels import bounds
from kernels.check import poisoned
from kernels.packed_rows import FP4, FP8, MXFP4, ROWS, V4_ENTRY, V32_ENTRY, V32_INDEX, Row
from kernels.quantise import pack, unpack
from tinymodels import layouts
from tinymodels.cache import kernel_rows, packing

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
LAYOUTS = {
    FP4: layouts.entry_fp4(512), FP8: layouts.entry_fp8(512), MXFP4: layouts.index_fp4(128),
    V4_ENTRY: layouts.shared_kv_fp8(448, 64), V32_ENTRY: layouts.latent_fp8(512, 64),
    V32_INDEX: layouts.index_fp8(128),
}
for short in (  # as tiny models have them: a block that is not full, or a last one
    layouts.shared_kv_fp8(24, 8), layouts.shared_kv_fp8(136, 10), layouts.latent_fp8(32, 8),
    layouts.index_fp8(16), layouts.index_fp4(16), layouts.index_fp4(72), layouts.entry_fp4(40),
    layouts.entry_fp8(72),
):
    LAYOUTS[replace(kernel_rows.row_of(short), name=f"{short.name} of {short.values}")] = short
GOLDEN = Path(__file__).parent.parent / "golden"
every_row = pytest.mark.parametrize("row", LAYOUTS, ids=lambda row: row.name)


def by_field(row: Row, values):
    """Values as `packing` takes them: V4's and V3.2's bf16 numbers are a field of their own."""
    names = [field.name for field in LAYOUTS[row].data]
    return dict(zip(names, values.split([row.values, row.rope][:len(names)], -1), strict=True))


def whole(fields):
    return torch.cat(list(fields.values()), -1)


def awkward(row: Row, device, seed=0):
    """Rows of many sizes, with zeros, ties and numbers at the edges of what a scale can be."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(5, 9, row.numbers, generator=generator)
    size = torch.tensor([1e-30, 2.0**-20, 1e-5, 0.02, 1.0, 37.5, 448 * 6, 1e5, 2.0**125 / 4])
    values = values * size[:, None]
    values[0, 0] = 0.0
    values[1, 0] = -0.0
    values[2] = torch.randint(-24, 25, values[2].shape, generator=generator) / 4  # ties of E2M1
    values[3, 4] = torch.randint(-500, 501, values[3, 4].shape, generator=generator).float()
    values[4, 4, ::7], values[4, 3, ::5] = 448.0, 449.0
    edges = [6 * 2.0**-9, 9 / 512, 10 / 512, 1e-4, 7.0, 3000.0, 6 * 2.0**-126]
    for place, amax in enumerate(edges):
        values[1, 1 + place] = values[1, 1 + place].sign() * amax / 3
        values[1, 1 + place, ::11] = amax
    if row.rope:
        values[..., row.values:] = values[..., row.values:].clamp(-1e30, 1e30)
    return values.to(device)


@pytest.mark.parametrize("impl", IMPLS)
@every_row
def test_rows_are_those_of_tinymodels(impl, row, device):
    assert row.nbytes == LAYOUTS[row].nbytes
    values = awkward(row, device)
    with poisoned():
        rows = pack(values, row, impl=impl)
    assert torch.equal(rows.cpu(), packing.pack(LAYOUTS[row], by_field(row, values.cpu())))


@pytest.mark.filterwarnings("ignore:overflow encountered")  # 448 * 2**127 is infinity
@pytest.mark.parametrize("impl", IMPLS)
@every_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_bytes_come_back_as_in_tinymodels(impl, row, dtype, device):
    # Random bytes hold every code and every scale, those that pack never writes included.
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 256, (3, 7, row.nbytes), generator=generator, dtype=torch.uint8)
    rows[0, 0] = 0
    with poisoned():
        values = unpack(rows.to(device), row, dtype=dtype, impl=impl).cpu()
    wanted = whole(packing.unpack(LAYOUTS[row], rows, dtype))
    assert torch.equal(values.isnan(), wanted.isnan())
    # Compared with the sign of zero; of a NaN only that it is one.
    assert torch.equal(values.nan_to_num(nan=1.5).double().view(torch.int64),
                       wanted.nan_to_num(nan=1.5).double().view(torch.int64))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_row
def test_16_bit_numbers(impl, dtype, row, draw):
    values = draw(4, 3, 5, row.numbers, dtype=dtype)
    wanted = packing.pack(LAYOUTS[row], by_field(row, values.cpu()))
    assert torch.equal(pack(values, row, impl=impl).cpu(), wanted)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("name, row, code, stored", [
    ("fp4", FP4, "fp4_packed", "fp4_scale_e4m3"),
    ("fp8", FP8, "fp8_codes", "fp8_scale_e8m0"),
    ("mxfp4", MXFP4, "mxfp4_packed", "mxfp4_scale_e8m0"),
])
def test_recorded_numbers(impl, name, row, code, stored, device):
    assert code in json.loads((GOLDEN / "quant_units.json").read_text())["tensors"]
    with safe_open(GOLDEN / "quant_units.safetensors", "pt") as file:
        x, codes, scales, back = (file.get_tensor(key)
                                  for key in ("x", code, stored, f"{name}_dequant"))
    copies = row.values // x.shape[1]  # a recorded row is 64 numbers, a real one 128 or 512
    rows = pack(x.repeat(1, copies).to(device), row, impl=impl)
    assert torch.equal(rows[:, :row.scales_at].cpu(), codes.repeat(1, copies))
    assert torch.equal(rows[:, row.scales_at:].cpu(), scales.repeat(1, copies))
    assert torch.equal(unpack(rows, row, impl=impl).cpu(), back.repeat(1, copies))


@pytest.mark.triton_runs
def test_a_quotient_that_only_looks_like_a_tie(device):
    # Scales of V3.2 have 24 bits: |x| / scale, rounded to fp32, can land on a tie it is not on.
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(401, 128, generator=generator)
    scale = values.abs().amax(1, keepdim=True).double() / 448
    tie = torch.randint(8, 16, (401, 126), generator=generator) + 0.5
    near = (tie * scale.float().double()).float()
    values[:, 1:127] = near.nextafter(torch.randn(near.shape, generator=generator) * torch.inf)
    values[:, 1:127].clamp_(-scale.float() * 440, scale.float() * 440)
    rows = pack(values.to(device), V32_INDEX, impl="triton")
    assert torch.equal(rows.cpu(), packing.pack(LAYOUTS[V32_INDEX], {"index": values}))


@pytest.mark.parametrize("impl", IMPLS)
@every_row
def test_views(impl, row, draw):
    values = draw(1, row.numbers, 3, 6).permute(1, 2, 0)[:, 1::2]
    rows = pack(values, row, impl=impl)
    assert torch.equal(rows, pack(values.contiguous(), row, impl=impl))
    wider = torch.full((3, 3, row.nbytes + 5), 255, dtype=torch.uint8, device=rows.device)
    wider[..., 2:-3] = rows
    assert torch.equal(unpack(wider[..., 2:-3], row, impl=impl), unpack(rows, row, impl=impl))


@pytest.mark.interpreter
@every_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counted_is_foretold(row, dtype, draw):
    values = draw(1, 13, 7, row.numbers, dtype=dtype)
    with bounds.counting() as counts, bounds.checking_overflow():
        rows = pack(values, row, impl="triton")
    said = pack.traffic(rows=91, row=row, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])
    with bounds.counting() as counts, bounds.checking_overflow():
        unpack(rows, row, dtype=dtype, impl="triton")
    said = unpack.traffic(rows=91, row=row, itemsize=dtype.itemsize, packing=False)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    flat = torch.from_file(str(tmp_path / "values.bin"), shared=True, size=2**31 + 4_000,
                           dtype=torch.float16)
    values = flat.as_strided((3, 128), (2**30 + 40, 1))
    values.copy_(draw(2, 3, 128, dtype=torch.float16))
    with bounds.checking_overflow():
        rows = pack(values, MXFP4, impl="triton")
    assert torch.equal(rows, packing.pack(LAYOUTS[MXFP4], {"index": values.clone()}))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_layouts_are_the_kernels_rows(row):
    found = kernel_rows.row_of(LAYOUTS[row])
    assert found == replace(row, name=found.name)


@pytest.mark.parametrize("layout", [layouts.latent(32, 8), layouts.key_value(2, 16),
                                    layouts.plain("f32", layouts.F32, key=3),
                                    layouts.at_bits(layouts.latent(32, 8), 6)])
def test_rows_that_the_kernel_does_not_have(layout):
    assert kernel_rows.row_of(layout) is None


@pytest.mark.triton_runs
@every_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_packs_the_same_through_the_kernel(row, dtype, draw):
    layout, values = LAYOUTS[row], by_field(row, draw(4, 2, 5, row.numbers, dtype=dtype))
    rows = packing.pack(layout, values, "triton")
    assert torch.equal(rows.cpu(), packing.pack(layout, {k: v.cpu() for k, v in values.items()}))
    numbers = packing.unpack(layout, rows, dtype, "triton")
    for name, wanted in packing.unpack(layout, rows, dtype).items():
        assert torch.equal(numbers[name], wanted), name
    wide = {name: value.double() for name, value in values.items()}
    assert torch.equal(packing.pack(layout, wide, "triton"), rows)  # which torch packs


@pytest.mark.parametrize("call, words", [
    (lambda: pack(torch.zeros(3, 511), FP4), r"values has shape \(3, 511\).*last axis of 512"),
    (lambda: pack(torch.zeros(0, 512), FP4), "at least one row"),
    (lambda: pack(torch.zeros(3, 512).int(), FP8), "torch.int32; expected a floating-point"),
    (lambda: pack(torch.full((2, 128), torch.nan), MXFP4), "NaN, infinity or more than 2"),
    (lambda: pack(torch.full((2, 128), 2.0**127 * 1.5), MXFP4), "NaN, infinity or more than 2"),
    (lambda: unpack(torch.zeros(3, 288), FP4), "torch.float32; expected torch.uint8"),
    (lambda: unpack(torch.zeros(287, dtype=torch.uint8), FP4), r"rows has shape \(287,\)"),
    (lambda: unpack(torch.zeros(288, dtype=torch.uint8), FP4, dtype=torch.float16),
     "expected torch.float32 or torch.bfloat16"),
])
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
