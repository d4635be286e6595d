"""Rows and rings: what is stored, what comes back, and what a refusal leaves behind."""

import pytest
import torch

from tinymodels.cache import ModelCache, allocate
from tinymodels.cache.ring import Ring
from tinymodels.cache.rows import Rows
from tinymodels.layouts import key_value
from tinymodels.presets import tiny_v1

LAYOUT = key_value(3, 5)
STORAGES = ["packed", "float32", "float64"]


def new_rows(count, batch=2, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.randn(batch, count, 15, generator=draw) for n in ("key", "value")}


@pytest.mark.parametrize("storage", STORAGES)
def test_rows_come_back_in_order(storage):
    rows = Rows(LAYOUT, 2, 7, storage)
    parts = [new_rows(n, seed=n) for n in (1, 4, 2)]
    for part in parts:
        seen = rows.extend(part)
    for name in ("key", "value"):
        want = torch.cat([p[name] for p in parts], dim=1)
        if storage == "packed":
            want = want.bfloat16().float()
        assert torch.equal(seen[name], want.to(seen[name].dtype))


@pytest.mark.parametrize(
    ("storage", "row_bytes"), [("packed", 60), ("float32", 120), ("float64", 240)]
)
def test_bytes_are_those_in_use(storage, row_bytes):
    rows = Rows(LAYOUT, 2, 7, storage)
    assert rows.nbytes == 0
    rows.extend(new_rows(3))
    assert rows.row_bytes == row_bytes
    assert rows.nbytes == 2 * 3 * row_bytes


@pytest.mark.parametrize("storage", STORAGES)
def test_a_refusal_stores_nothing(storage):
    rows = Rows(LAYOUT, 2, 4, storage)
    rows.extend(new_rows(3))
    before = {k: v.clone() for k, v in rows.buffers.items()}
    good = new_rows(1)
    bad = [
        (new_rows(2), "2 new rows do not fit: 3 of 4"),
        ({"key": good["key"]}, "expected"),
        (good | {"value": good["value"][..., :14]}, "'value' has shape"),
        (new_rows(1, batch=3), "'key' has shape"),
    ]
    for rows_in, message in bad:
        with pytest.raises(ValueError, match=message):
            rows.extend(rows_in)
    assert rows.length == 3
    assert all(torch.equal(before[k], v) for k, v in rows.buffers.items())


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("window", [1, 3, 5])
@pytest.mark.parametrize("sizes", [[1] * 11, [2, 3, 5, 1], [11], [4, 7]])
def test_ring_keeps_the_newest_in_order(storage, window, sizes):
    ring, everything = Ring(LAYOUT, 2, window, storage), Rows(LAYOUT, 2, 11, storage)
    for i, size in enumerate(sizes):
        part = new_rows(size, seed=i)
        before = ring.length
        seen, all_rows = ring.extend(part), everything.extend(part)
        for name in ("key", "value"):
            assert torch.equal(seen[name], all_rows[name][:, -(before + size) :])
            assert torch.equal(ring.read()[name], all_rows[name][:, -ring.length :])
        assert ring.length == min(window, everything.length)
    assert ring.nbytes == min(window, 11) * 2 * ring.row_bytes


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("batch", [1, 2])
def test_v1_at_real_size(tokens, batch):
    memory = allocate("deepseek-67b", tokens, batch)
    held = 389_120 * tokens * batch
    assert memory.bytes() == {"global": held, "window": 0, "open_state": 0, "total": held}
    assert memory.rate() == 389_120
    assert len(memory.per_layer()) == 95
    assert all(p["main"] == 4_096 * tokens * batch for p in memory.per_layer())
    storage = sum(c.main.buffers["row"].untyped_storage().nbytes() for c in memory.layers)
    assert storage == held


def test_allocate_refuses_by_name():
    with pytest.raises(ValueError, match="deepseek-v9"):
        allocate("deepseek-v9", 3)
    with pytest.raises(ValueError, match="None is neither a published name nor a ModelConfig"):
        allocate(None, 3)
    with pytest.raises(ValueError, match="capacity is -1"):
        allocate("deepseek-67b", -1)
    with pytest.raises(ValueError, match="batch is 0"):
        allocate("deepseek-67b", 1, batch=0)
    with pytest.raises(ValueError, match="'packed', 'float32' or 'float64'"):
        ModelCache(tiny_v1(), 1, 1, storage="int8")


def test_cache_says_what_it_holds():
    memory = ModelCache(tiny_v1(), 2, 9)
    memory.advance(4)
    assert repr(memory) == "ModelCache(tiny_v1, 2 x 4 tokens, packed: 4,096 bytes)"
