"""Half-built groups, and the memory of V4 and V4.1 at real size, against literal bytes."""

import pytest
import torch

from tinymodels.cache import allocate, groups
from tinymodels.cache.rows import Rows
from tinymodels.layouts import entry_fp4, shared_kv_fp8


def numbers(count, seed, batch=2, dim=5):
    draw = torch.Generator().manual_seed(seed)
    shape, f64 = (batch, count, dim), torch.float64
    return tuple(torch.randn(shape, generator=draw, dtype=f64) for _ in range(2))


# ------------------------------------------------------------------ what waits


@pytest.mark.parametrize(
    ("start", "ratio", "overlap", "held"),
    [
        (0, 3, False, 0), (2, 3, False, 2), (3, 3, False, 0), (7, 3, False, 1),
        (0, 3, True, 0), (2, 3, True, 2), (3, 3, True, 3), (5, 3, True, 5), (6, 3, True, 3),
        (7, 3, True, 4), (11, 3, True, 5),
    ],
)  # fmt: skip
def test_how_many_are_held(start, ratio, overlap, held):
    assert groups.held_before(start, ratio, overlap) == held


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("ratio", [2, 3, 7])
@pytest.mark.parametrize("sizes", [[1] * 17, [5, 1, 11], [17], [2, 2, 9, 4]])
def test_held_tokens_come_back_in_order(sizes, ratio, overlap):
    value, gate = numbers(17, seed=ratio)
    slots = ratio * (1 + overlap)
    state, start = torch.zeros(2, 2 * slots * 5, dtype=torch.float64), 0
    for size in sizes:
        held, end = groups.held_before(start, ratio, overlap), start + size
        got = groups.wait(state, value[:, start:end], gate[:, start:end], start, held)
        for seen, whole in zip(got, (value, gate), strict=True):
            assert torch.equal(seen, whole[:, start - held : end])
        start = end


def test_numbers_are_rounded_whether_they_wait_or_not():
    value, gate = numbers(3, seed=1)
    state = torch.zeros(2, 2 * 2 * 5, dtype=torch.float32)
    got, _ = groups.wait(state, value, gate, 0, 0)
    assert got.dtype is torch.float64
    assert torch.equal(got, value.float().double()) and not torch.equal(got, value)


def test_without_a_state_nothing_is_kept():
    value, gate = numbers(3, seed=1)
    assert groups.wait(None, value, gate, 0, 0) == (value, gate)


# ------------------------------------------------------------------ whole entries


@pytest.mark.parametrize(("layout", "dim"), [(shared_kv_fp8(22, 6), 28), (entry_fp4(50), 50)])
@pytest.mark.parametrize("storage", ["packed", "float64"])
def test_entries_are_cut_into_fields_and_put_together(layout, dim, storage):
    entry, _ = numbers(4, 3, dim=dim)
    store = Rows(layout, 2, 9, storage, torch.float64)
    seen = groups.extend(store, entry)
    assert seen.shape == entry.shape
    assert torch.equal(seen, groups.as_stored(store, entry))
    assert torch.equal(seen, groups.read(store))
    assert torch.equal(seen, entry) == (storage == "float64")
    assert (seen - entry).abs().max() < 0.5
    for rows in store.buffers.values():
        assert rows[:, :4].any() and not rows[:, 4:].any()


# ------------------------------------------------------------------ real size, literally

W = 128


@pytest.mark.parametrize("n", [0, 1, 2, 3, 127, 128, 129, 255, 256, 384])
def test_v4_flash_at_real_size(n):
    memory = allocate("deepseek-v4-flash", n)
    held = {
        "global": 21 * (n // 4) * (584 + 68) + 20 * (n // 128) * 584,
        "window": 43 * min(n, W) * 584,
        "open_state": 12_206_080,
    }
    assert memory.bytes() == held | {"total": sum(held.values())}
    assert memory.rate() == 3_514.25
    assert [c.main.length if c.main else None for c in memory.layers[:5]] == [
        None, None, n // 4, n // 128, n // 4,
    ]  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 2, 3, 127, 128, 129, 257, 1000])
@pytest.mark.parametrize("batch", [1, 2])
def test_v4_1_at_real_size(n, batch):
    memory = allocate("deepseek-v4.1-flash", n, batch)
    held = {
        "global": 1_068 * (n // 2) + 356 * n,
        "window": 40 * min(n, W) * 528,
        "open_state": 24_576,
    }
    held = {k: v * batch for k, v in held.items()}
    assert memory.bytes() == held | {"total": sum(held.values())}
    assert memory.rate() == 890
    owners = {p["layer"] for p in memory.per_layer() if p["main"]}
    assert owners == (set() if n == 0 else {20} if n == 1 else {2, 8, 14, 20})


def test_890_bytes_a_token_from_storage():
    memory = allocate("deepseek-v4.1-flash", 1_000)
    assert memory.bytes()["global"] == 890_000
    storage = sum(
        store.buffers["row"].untyped_storage().nbytes()
        for c in memory.layers
        for store in (c.main, c.index)
        if store is not None
    )
    assert storage == 890_000


def test_v4_pro_at_real_size():
    memory = allocate("deepseek-v4-pro", 131)
    assert memory.bytes()["global"] == 30 * 32 * (584 + 68) + 31 * 584
    assert memory.bytes()["window"] == 4_559_872
    assert memory.bytes()["open_state"] == 18_710_528
