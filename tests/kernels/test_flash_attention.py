"""flash_attention against an attention in numpy, on shapes that break careless kernels."""

import pytest
import torch

from kernels import backend, bounds, flash_attention, gates
from kernels.check import poisoned

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def close(output, wanted, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tokens, entries, heads, kv_heads, dim", [
    (7, 7, 3, 3, 40),
    (1, 127, 6, 2, 96),
    (5, 128, 6, 3, 24),
    (9, 129, 3, 1, 192),
    (129, 131, 2, 1, 12),
    (1, 1, 6, 6, 5),
])
def test_equals_the_reference(impl, seed, tokens, entries, heads, kv_heads, dim, draw, reference):
    query = draw(seed, 2, tokens, heads, dim)
    key = draw(seed + 10, 2, entries, kv_heads, dim)
    value = draw(seed + 20, 2, entries, kv_heads, dim)
    with poisoned():
        output = flash_attention(query, key, value, impl=impl)
    close(output, reference(query, key, value))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("window", [1, 3, 17, 500])
def test_window(impl, window, draw, reference):
    query, key, value = draw(1, 2, 21, 6, 20), draw(2, 2, 50, 3, 20), draw(3, 2, 50, 3, 20)
    with poisoned():
        output = flash_attention(query, key, value, window=window, impl=impl)
    close(output, reference(query, key, value, window=window))


@pytest.mark.parametrize("impl", IMPLS)
def test_lengths_nan_beyond_them_and_queries_that_see_nothing(impl, draw, device, reference):
    query, key, value = draw(1, 4, 9, 6, 20), draw(2, 4, 33, 2, 20), draw(3, 4, 33, 2, 28)
    lengths = torch.tensor([33, 9, 4, 0], device=device)
    for row, length in enumerate(lengths.tolist()):
        key[row, length:] = torch.nan
        value[row, length:] = torch.nan
    with poisoned():
        output = flash_attention(query, key, value, lengths=lengths, window=11, impl=impl)
    close(output, reference(query, key, value, window=11, lengths=lengths))
    assert (output[3] == 0).all() and (output[2, :5] == 0).all()
    assert (output[2, 5:] != 0).any()


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks as on a GPU, fewer keys than queries: many turns of the loop for each query."""
    module = gates.module("flash_attention")
    chosen = module._blocks
    monkeypatch.setattr(module, "_blocks",
                        lambda *sizes: {**chosen(*sizes), "BLOCK_T": 64, "BLOCK_S": 16})


@pytest.mark.triton_runs
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize("tokens, entries", [(1, 45), (70, 70), (66, 119)])
def test_many_blocks_and_blocks_that_some_queries_do_not_see(window, tokens, entries, draw,
                                                             reference):
    # With a window, whole tiles of scores are -inf for the last queries at the beginning and
    # for the first queries at the end. Large scores make every new maximum matter.
    query, key, value = (draw(1, 2, tokens, 3, 12) * 4, draw(2, 2, entries, 1, 12),
                         draw(3, 2, entries, 1, 12))
    with poisoned():
        output = flash_attention(query, key, value, window=window, impl="triton")
    close(output, reference(query, key, value, window=window))


@pytest.mark.triton_runs
def test_more_entries_than_one_block_of_the_interpreter(draw, reference):
    query, key, value = draw(1, 1, 3, 2, 12) * 4, draw(2, 1, 1300, 2, 12), draw(3, 1, 1300, 2, 12)
    close(flash_attention(query, key, value, impl="triton"), reference(query, key, value))


@pytest.mark.parametrize("impl", IMPLS)
def test_last_query_sees_everything(impl, draw, reference):
    query, key, value = draw(1, 2, 3, 2, 12), draw(2, 2, 10, 2, 12), draw(3, 2, 10, 2, 12)
    output = flash_attention(query, key, value, impl=impl)
    changed = value.clone()
    changed[:, 8] += 1  # the entry of the middle token
    moved = (flash_attention(query, key, changed, impl=impl) - output).abs().amax((0, 2, 3))
    assert moved[0] == 0 and moved[1] > 0 and moved[2] > 0


@pytest.mark.parametrize("impl", IMPLS)
def test_scores_of_any_size(impl, draw, reference):
    # Scores near -1e5 all over: a finite mask value such as -1e4 would exceed them.
    query, key, value = draw(1, 1, 6, 2, 12), draw(2, 1, 6, 2, 12), draw(3, 1, 6, 2, 12)
    query, key = query.abs() * 300, -key.abs() * 300
    close(flash_attention(query, key, value, impl=impl), reference(query, key, value), 1e-4)


@pytest.mark.parametrize("impl", IMPLS)
def test_scale(impl, draw, reference):
    query, key, value = draw(1, 2, 6, 3, 12), draw(2, 2, 6, 3, 12), draw(3, 2, 6, 3, 12)
    close(flash_attention(query, key, value, scale=0.07, impl=impl),
          reference(query, key, value, scale=0.07))


@pytest.mark.parametrize("impl", IMPLS)
def test_views_of_any_stride(impl, draw, reference):
    query = draw(1, 6, 3, 11, 20).permute(1, 2, 0, 3)  # stored as H B T D
    key = draw(2, 3, 2, 26, 40)[..., ::2].transpose(1, 2)[:, 3:]  # every second number, moved
    value = draw(3, 3, 20, 23, 2).permute(0, 2, 3, 1)  # head dim not contiguous
    assert not any(x.is_contiguous() for x in (query, key, value))
    close(flash_attention(query, key, value, impl=impl), reference(query, key, value))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_16_bit(dtype, tolerance, draw, reference):
    query, key, value = (draw(seed, 2, length, heads, 40, dtype=dtype)
                         for seed, length, heads in ((1, 30, 6), (2, 77, 3), (3, 77, 3)))
    output = flash_attention(query, key, value, impl="triton")
    assert output.dtype == dtype
    close(output.double(), reference(query, key, value), tolerance)


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw, reference):
    # Row 2 of the batch starts above 2**31 elements, in a sparse file: no memory is used. The
    # stride itself fits in 32 bits, so only a product in 32 bits overflows.
    stride = 2**30 + 40
    tensors = []
    for index, (seed, dim) in enumerate(((2, 12), (3, 12))):
        path = str(tmp_path / f"{index}.bin")
        flat = torch.from_file(path, shared=True, size=2 * stride + 4096, dtype=torch.float16)
        view = flat.as_strided((3, 19, 2, dim), (stride, 2 * dim, dim, 1))
        view.copy_(draw(seed, 3, 19, 2, dim, dtype=torch.float16))
        tensors.append(view)
    query = draw(1, 3, 4, 2, 12, dtype=torch.float16)
    with bounds.checking_overflow():
        output = flash_attention(query, *tensors, impl="triton")
    close(output.double(), reference(query, *tensors), 3e-3)


@pytest.mark.interpreter
@pytest.mark.parametrize("batch, tokens, entries, heads, kv_heads, dim, value_dim, window", [
    (2, 30, 30, 6, 3, 20, 20, None), (1, 200, 333, 2, 1, 12, 28, None),
    (2, 140, 150, 3, 3, 8, 8, 9),
])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counted_is_foretold(batch, tokens, entries, heads, kv_heads, dim, value_dim, window,
                             dtype, draw):
    query = draw(1, batch, tokens, heads, dim, dtype=dtype)
    key = draw(2, batch, entries, kv_heads, dim, dtype=dtype)
    value = draw(3, batch, entries, kv_heads, value_dim, dtype=dtype)
    for lengths in (None, [entries] + [tokens // 2] * (batch - 1)):
        with bounds.counting() as counts:
            flash_attention(query, key, value, window=window, impl="triton",
                            lengths=None if lengths is None else torch.tensor(lengths))
        foretold = flash_attention.traffic(
            batch=batch, tokens=tokens, entries=entries, heads=heads, kv_heads=kv_heads,
            head_dim=dim, value_dim=value_dim, window=window, lengths=lengths,
            block=min(128, 1 << (tokens - 1).bit_length()), itemsize=dtype.itemsize)
        assert (counts.bytes_read, counts.bytes_written) == (
            foretold["bytes_read"], foretold["bytes_written"])


def test_flops_count_visible_pairs():
    flops = flash_attention.traffic(tokens=3, entries=5, heads=2, kv_heads=1, head_dim=10,
                                    value_dim=6)["flops"]
    assert flops == (3 + 4 + 5) * 2 * 2 * (10 + 6)  # entries seen, heads, multiply and add


@pytest.mark.interpreter
def test_all_programs_lie_on_grid_axis_0(draw):
    seen = {}
    from triton.runtime import interpreter as stock

    class Spy(stock.GridExecutor):
        def __init__(self, fn, arg_names, grid, *rest):
            seen["grid"] = grid
            super().__init__(fn, arg_names, grid, *rest)

    before, stock.GridExecutor = stock.GridExecutor, Spy
    try:
        tensors = [draw(seed, 2, 4, 3, 8) for seed in (1, 2, 3)]
        flash_attention(*tensors, impl="triton")
    finally:
        stock.GridExecutor = before
    assert seen["grid"] == (6,)  # axes 1 and 2 of a GPU end at 65,535; batch * heads may not


def shapes(query=(2, 5, 6, 8), key=(2, 9, 3, 8), value=(2, 9, 3, 8)):
    return [torch.zeros(shape) for shape in (query, key, value)]


@pytest.mark.parametrize("tensors, options, words", [
    (shapes(key=(2, 9, 4, 8), value=(2, 9, 4, 8)), {}, "query has 6 heads and key 4"),
    (shapes(key=(2, 9, 3, 7)), {}, r"key has shape \(2, 9, 3, 7\).*D is 7 there and 8 in query"),
    (shapes(value=(2, 8, 3, 8)), {}, "value has shape.*S is 8 there and 9 in key"),
    (shapes(key=(3, 9, 3, 8)), {}, "key has shape.*B is 3 there and 2 in query"),
    (shapes(query=(2, 6, 8)), {}, r"query has shape \(2, 6, 8\), 3 dimensions; expected 4"),
    (shapes(query=(2, 10, 6, 8)), {}, "query has 10 tokens and key 9 entries"),
    (shapes(query=(2, 0, 6, 8)), {}, "query has shape.*T is 0"),
    (shapes(), {"window": 0}, "window is 0"),
    (shapes(), {"window": 2.0}, "window is 2.0"),
    (shapes(), {"lengths": torch.tensor([9])}, r"lengths has shape \(1,\); expected \(2,\)"),
    (shapes(), {"lengths": torch.tensor([9, 10])}, "lengths goes from 9 to 10; expected 0 to 9"),
    (shapes(), {"lengths": torch.tensor([-1, 2])}, "lengths goes from -1"),
    (shapes(), {"lengths": torch.tensor([1.0, 2.0])}, "lengths is torch.float32"),
    (shapes(), {"impl": "cuda"}, "impl is 'cuda'"),
])
@pytest.mark.parametrize("impl", IMPLS)
def test_errors_name_the_argument(tensors, options, words, impl, device):
    options = {name: value.to(device) if isinstance(value, torch.Tensor) else value
               for name, value in options.items()}
    if device == "cuda" and "lengths goes" in words:
        pytest.skip("values on a GPU are clamped, not read")
    with pytest.raises(ValueError, match=words):
        flash_attention(*[x.to(device) for x in tensors], **{"impl": impl, **options})


@pytest.mark.parametrize("impl", IMPLS)
def test_dtypes_must_agree(impl, device):
    query, key, value = (x.to(device) for x in shapes())
    with pytest.raises(ValueError, match="value has dtype torch.float16 and query has torch.f"):
        flash_attention(query, key, value.half(), impl=impl)
    with pytest.raises(ValueError, match="query has dtype torch.int64"):
        flash_attention(query.long(), key.long(), value.long(), impl=impl)
    with pytest.raises(TypeError, match="key must be a tensor"):
        flash_attention(query, [1.0], value, impl=impl)


@pytest.mark.triton_runs
def test_what_the_kernel_cannot_do_goes_to_the_twin_or_is_refused(device, reference, draw):
    query, key, value = (draw(seed, 2, 9, 3, 8).double() for seed in (1, 2, 3))
    close(flash_attention(query, key, value), reference(query, key, value), 1e-12)
    with pytest.raises(ValueError, match="query is float64; the kernel has float32, bfloat16"):
        flash_attention(query, key, value, impl="triton")
    query, key, value = (x.float() for x in (query, key, value))
    value.requires_grad_()
    flash_attention(query, key, value).sum().backward()  # the twin, so the gradient is there
    assert value.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="value requires a gradient and the kernel has no"):
        flash_attention(query, key, value, impl="triton")
    wide = draw(1, 1, 2, 1, 300)
    with pytest.raises(ValueError, match="query has head dim 300; expected at most 256"):
        flash_attention(wide, wide, wide, impl="triton")


def test_backend_of_this_run():
    assert backend.current().name in ("interpret", "cuda", "torch")
