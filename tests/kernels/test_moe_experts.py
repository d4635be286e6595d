"""moe_experts against a loop over tokens in numpy, and against the experts of `tinymodels`."""

import numpy as np
import pytest
import torch

from kernels import bounds, moe_experts
from kernels.check import poisoned
from kernels.expert_blocks import block_sizes, most_blocks, schedule

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
CASES = [  # tokens, width, ffn, experts, top_k, limit
    (1, 5, 3, 3, 1, None),
    (1, 40, 24, 6, 3, 0.4),
    (3, 24, 12, 11, 2, None),
    (37, 12, 40, 5, 3, None),
    (129, 9, 7, 3, 2, 0.2),
    (66, 6, 5, 1, 1, None),
]
cases = pytest.mark.parametrize("tokens, width, ffn, experts, top_k, limit", CASES)


@pytest.fixture
def inputs(draw, device):
    def make(seed, tokens, width, ffn, experts, top_k, dtype=torch.float32):
        chance = draw(seed, tokens, experts, dtype=torch.float32).cpu()
        chosen = (chance + torch.linspace(0, 2, experts)).argsort(1, descending=True)[:, :top_k]
        return dict(
            x_NX=draw(seed + 1, tokens, width, dtype=dtype), experts_Nk=chosen.to(device),
            weights_Nk=draw(seed + 2, tokens, top_k, dtype=dtype),
            gate_EFX=draw(seed + 3, experts, ffn, width, dtype=dtype) / width**0.5,
            up_EFX=draw(seed + 4, experts, ffn, width, dtype=dtype) / width**0.5,
            down_EXF=draw(seed + 5, experts, width, ffn, dtype=dtype) / ffn**0.5)

    return make


def answered(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF, limit=None):
    """One token and one expert at a time, in fp64."""
    x, gate_w, up_w, down_w, weight = (
        t.double().cpu().numpy() for t in (x_NX, gate_EFX, up_EFX, down_EXF, weights_Nk))
    y = np.zeros_like(x)
    for n, chosen in enumerate(experts_Nk.tolist()):
        for j, e in enumerate(chosen):
            gate, up = gate_w[e] @ x[n], up_w[e] @ x[n]
            if limit is not None:
                gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            y[n] += weight[n, j] * (down_w[e] @ (gate / (1 + np.exp(-gate)) * up))
    return torch.from_numpy(y)


def close(y, wanted, tolerance=1e-5):
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 7])
@cases
def test_equals_the_loop(impl, seed, tokens, width, ffn, experts, top_k, limit, inputs):
    call = inputs(seed, tokens, width, ffn, experts, top_k)
    with poisoned():
        y = moe_experts(**call, limit=limit, impl=impl)
    assert y.shape == (tokens, width)
    close(y, answered(**call, limit=limit))


@pytest.mark.parametrize("impl", IMPLS)
def test_both_limits_bind_and_the_gate_has_none_below(impl, inputs):
    call = inputs(1, 40, 24, 12, 5, 3)
    gate = torch.einsum("nx,efx->nef", call["x_NX"], call["gate_EFX"])
    up = torch.einsum("nx,efx->nef", call["x_NX"], call["up_EFX"])
    assert all((value * sign > 0.3).float().mean() > 0.2 for value in (gate, up)
               for sign in (1, -1))
    close(moe_experts(**call, limit=0.3, impl=impl), answered(**call, limit=0.3))


@pytest.mark.parametrize("impl", IMPLS)
def test_an_expert_without_a_token_is_not_read(impl, inputs):
    call = inputs(2, 23, 12, 20, 7, 2)
    call["experts_Nk"] = call["experts_Nk"] % 3 + torch.tensor([0, 3], device=call["x_NX"].device)
    wanted = answered(**call)
    for matrix in ("gate_EFX", "up_EFX", "down_EXF"):
        call[matrix][6] = torch.nan
    close(moe_experts(**call, impl=impl), wanted)


@pytest.mark.parametrize("impl", IMPLS)
def test_nan_stays_with_its_token(impl, inputs):
    call = inputs(3, 20, 12, 9, 4, 2)
    wanted = answered(**call, limit=0.5)
    call["x_NX"][13] = torch.nan
    y = moe_experts(**call, limit=0.5, impl=impl)
    assert y[13].isnan().all()  # a limit does not turn NaN into a number
    others = torch.arange(20) != 13
    close(y[others], wanted[others])


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("matrix", ["gate_EFX", "up_EFX", "down_EXF"])
def test_a_limit_hides_no_nan_of_an_expert(impl, matrix, inputs):
    call = inputs(3, 20, 12, 9, 4, 2)
    wanted = answered(**call, limit=0.5)
    call[matrix][1] = torch.nan
    asked = (call["experts_Nk"] == 1).any(1).cpu()
    assert 0 < asked.sum() < 20
    y = moe_experts(**call, limit=0.5, impl=impl).cpu()
    assert y[asked].isnan().all()
    close(y[~asked], wanted[~asked])


@pytest.mark.parametrize("impl", IMPLS)
def test_two_halves_of_one_tensor_and_other_views(impl, inputs, draw):
    call = inputs(4, 21, 10, 6, 5, 3)
    both = torch.cat([call["gate_EFX"], call["up_EFX"]], 1)
    wanted = answered(**call)
    call["gate_EFX"], call["up_EFX"] = both[:, :6], both[:, 6:]
    call["down_EXF"] = call["down_EXF"].transpose(1, 2).contiguous().transpose(1, 2)
    call["x_NX"] = call["x_NX"].t().contiguous().t()
    call["weights_Nk"] = call["weights_Nk"].double()[:, :, None].expand(-1, -1, 2)[..., 0]
    call["experts_Nk"] = call["experts_Nk"].int().t().contiguous().t()
    assert not any(call[name].is_contiguous() for name in ("x_NX", "gate_EFX", "down_EXF"))
    close(moe_experts(**call, impl=impl), wanted)


@pytest.mark.triton_runs
def test_the_same_numbers_on_every_run_and_in_any_company(inputs):
    call = inputs(5, 50, 24, 12, 4, 3)
    y = moe_experts(**call, impl="triton")
    assert torch.equal(y, moe_experts(**call, impl="triton"))
    turned = {**call, **{name: call[name].flip(0) for name in ("x_NX", "experts_Nk",
                                                               "weights_Nk")}}
    assert torch.equal(moe_experts(**turned, impl="triton").flip(0), y)


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_16_bit(dtype, tolerance, inputs):
    call = inputs(6, 23, 40, 24, 5, 3, dtype)
    y = moe_experts(**call, limit=1.5, impl="triton")
    assert y.dtype == dtype
    close(y, answered(**call, limit=1.5), tolerance)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("rows, experts", [(1, 5), (5, 5), (6, 5), (90, 3), (33, 40)])
def test_blocks_hold_every_row_once(seed, block, rows, experts):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(experts, (rows, 1), generator=generator) // (seed + 1)
    order, blocks = schedule(chosen, experts, block)
    assert blocks.shape == (3, most_blocks(rows, experts, block))
    met = []
    for expert, first, end in blocks.t().tolist():
        assert end - first <= block
        for row in range(first, end):
            assert chosen[order[row], 0] == expert
            met.append(row)
    assert sorted(met) == list(range(rows))
    used = sum(-(-load // block) for load in torch.bincount(chosen.flatten()).tolist())
    assert (blocks[2] > blocks[1]).sum() == used


def test_no_routing_needs_more_blocks_and_one_needs_all():
    for rows, experts, block in [(1, 3, 4), (3, 3, 4), (4, 3, 4), (21, 3, 4), (22, 5, 3)]:
        needed = 0
        for alone in range(min(rows, experts)):  # so many experts have one row, one has the rest
            loads = [1] * alone + [rows - alone]
            needed = max(needed, sum(-(-load // block) for load in loads))
        assert needed == most_blocks(rows, experts, block) or rows > experts
        assert needed <= most_blocks(rows, experts, block)


@pytest.mark.interpreter
@cases
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counted_is_foretold(tokens, width, ffn, experts, top_k, limit, dtype, inputs):
    call = inputs(0, tokens, width, ffn, experts, top_k, dtype)
    with bounds.counting() as counts, bounds.checking_overflow():
        moe_experts(**call, limit=limit, impl="triton")
    blocks = block_sizes(tokens * top_k, experts, width, ffn, dtype)
    loads = torch.bincount(call["experts_Nk"].flatten(), minlength=experts).tolist()
    said = moe_experts.traffic(
        tokens=tokens, top_k=top_k, width=width, ffn=ffn, loads=loads, block=blocks["BLOCK_M"],
        parts=(-(-ffn // blocks["BLOCK_F"]), -(-width // blocks["BLOCK_F"])),
        itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])
    assert counts.launches == moe_experts.launches


@pytest.mark.interpreter
def test_a_block_shares_what_it_reads_of_the_weights(inputs):
    # 12 tokens choose 2 of 3 experts: without sorting, 24 readings of an expert.
    call = inputs(1, 12, 20, 12, 3, 2)
    with bounds.counting() as counts:
        moe_experts(**call, impl="triton")
    loads = torch.bincount(call["experts_Nk"].flatten(), minlength=3).tolist()
    blocks = sum(-(-load // 8) for load in loads)
    assert counts["gate"].loads == blocks * 12 * 20 and counts["down"].loads == blocks * 20 * 12
    assert moe_experts.padding(loads, 8) == blocks * 8 - 24


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, inputs):
    call = inputs(8, 9, 12, 6, 3, 2, torch.float16)
    wanted = answered(**call)
    for name in ("gate_EFX", "up_EFX", "down_EXF"):
        flat = torch.from_file(str(tmp_path / f"{name}.bin"), shared=True, size=2**31 + 4_000,
                               dtype=torch.float16)
        view = flat.as_strided(call[name].shape, (2**30 + 40, call[name].shape[2], 1))
        view.copy_(call[name])
        call[name] = view
    with bounds.checking_overflow():
        y = moe_experts(**call, impl="triton")
    close(y, wanted, 4e-3)


@pytest.mark.parametrize("options, words", [
    ({"experts_Nk": torch.tensor([[0, 4], [1, 0]])}, "experts goes from 0 to 4; expected 0 to 3"),
    ({"experts_Nk": torch.tensor([[0, -1], [1, 0]])}, "experts goes from -1 to 1"),
    ({"experts_Nk": torch.zeros(2, 2)}, "experts is torch.float32; expected a tensor of int32"),
    ({"experts_Nk": torch.zeros(2, 3, dtype=torch.int64)}, r"experts has shape \(2, 3\)"),
    ({"weights_Nk": torch.zeros(3, 2)}, r"weights has shape \(3, 2\) and x \(2, 6\)"),
    ({"down_EXF": torch.zeros(4, 6, 7)}, r"down has shape \(4, 6, 7\) .* F is 7 there and 5"),
    ({"limit": 0}, "limit is 0; expected None or a number above 0"),
    ({"impl": "gpu"}, "impl is 'gpu'"),
])
def test_errors_name_the_argument(options, words):
    call = dict(x_NX=torch.zeros(2, 6), experts_Nk=torch.tensor([[0, 3], [1, 0]]),
                weights_Nk=torch.zeros(2, 2), gate_EFX=torch.zeros(4, 5, 6),
                up_EFX=torch.zeros(4, 5, 6), down_EXF=torch.zeros(4, 6, 5), impl="torch")
    with pytest.raises(ValueError, match=words):
        moe_experts(**{**call, **options})
