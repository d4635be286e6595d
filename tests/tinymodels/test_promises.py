"""Promises 1, 2 and 3, for every preset: bytes, one path, causality.

A preset joins by standing in PRESETS; nothing here knows how it works inside.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels import ledger
from tinymodels.cache import ModelCache
from tinymodels.cache.ring import Ring
from tinymodels.cache.rows import Rows
from tinymodels.config import Dense
from tinymodels.presets import (
    tiny_v1,
    tiny_v2,
    tiny_v2_lite,
    tiny_v3,
    tiny_v3_2,
    tiny_v4,
    tiny_v4_1,
)
from tinymodels.transformer import Transformer

from .gaps import closest_calls

MODELS = (tiny_v1, tiny_v2, tiny_v2_lite, tiny_v3, tiny_v3_2, tiny_v4, tiny_v4_1)
PRESETS = {f.__name__: f for f in MODELS}
# Past every edge: windows of 16, groups of 16, and choices of 24 tokens or 8 groups of 4.
LONGEST = 37
NEAR = 1e-4  # of a choice: closer calls are not judged in float32
FEWEST_JUDGED = 4
by_preset = pytest.mark.parametrize("name", PRESETS)


@cache
def model_of(name: str, seed: int, dtype=torch.float64, dense: bool = False) -> Transformer:
    """A model with weights large enough that attention is far from uniform."""
    config = PRESETS[name]()
    if dense:
        layers = tuple(replace(layer, ffn=Dense(72)) for layer in config.layers)
        config = config.with_(layers=layers)
    model = Transformer(config, seed=seed).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return model.requires_grad_(False)


def tokens_of(model: Transformer, batch: int, length: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab, (batch, length), generator=draw)


def in_chunks(model, tokens, sizes, storage) -> tuple[torch.Tensor, ModelCache]:
    memory = model.new_cache(tokens.shape[0], tokens.shape[1], storage)
    logits = [model.prefill(part, memory, exact=True) for part in tokens.split(sizes, dim=1)]
    return torch.cat(logits, dim=1), memory


def cut(length: int, cuts: list[int]) -> list[int]:
    """Chunk sizes that add up to `length`, cut at the given places."""
    places = sorted({0, length, *(c % (length + 1) for c in cuts)})
    return [b - a for a, b in zip(places, places[1:], strict=False)]


chunkings = st.lists(st.integers(0, LONGEST), max_size=5)
lengths, seeds = st.integers(1, LONGEST), st.integers(0, 2)


# ------------------------------------------------------------------ promise 1: bytes


@by_preset
def test_formula_is_measured_at_every_length(name):
    model = model_of(name, 0, torch.float32)
    memory = model.new_cache(3, LONGEST)
    tokens = tokens_of(model, 3, LONGEST, 0)
    assert memory.bytes()["global"] == 0
    for n in range(LONGEST):
        model(tokens[:, n : n + 1], memory)
        want = ledger.exact(model.config, n + 1, batch=3)
        assert {k: memory.bytes()[k] for k in want} == want, n
    assert memory.rate() == ledger.rate(model.config)


def test_tiny_v1_rate_by_hand():
    # 4 layers, keys and values, 2 kv heads of 16, 2 bytes each
    assert ledger.rate(tiny_v1()) == 4 * 2 * 2 * 16 * 2 == 512


# ------------------------------------------------------------------ promise 2: one path


@by_preset
@settings(max_examples=6, deadline=None)
@given(length=lengths, cuts=chunkings, seed=seeds)
def test_one_pass_is_any_chunking_in_fp64(name, length, cuts, seed):
    model = model_of(name, seed)
    tokens = tokens_of(model, 2, length, seed + 100)
    whole = model(tokens)
    chunked, _ = in_chunks(model, tokens, cut(length, cuts), "float64")
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-10)


@by_preset
@pytest.mark.parametrize("seed", [0, 1])
def test_one_pass_is_token_by_token(name, seed):
    model = model_of(name, seed)
    tokens = tokens_of(model, 3, LONGEST, seed)
    single, _ = in_chunks(model, tokens, [1] * LONGEST, "float64")
    torch.testing.assert_close(single, model(tokens), rtol=0, atol=1e-10)


@by_preset
def test_one_pass_is_any_chunking_in_fp32(name, record_property):
    """To 1e-5 of the largest logit, in every text whose choices were no close calls."""
    judged = 0
    for seed in range(12):
        model = model_of(name, seed % 3, torch.float32)
        tokens = tokens_of(model, 1, LONGEST, seed + 50)
        with closest_calls() as gaps:
            whole = model(tokens)
            chunked, _ = in_chunks(model, tokens, [11, 1, 1, 14, 10], "float32")
        if min(gaps, default=1.0) <= NEAR:
            continue
        judged += 1
        scale = whole.abs().max().clamp(min=1)
        torch.testing.assert_close(chunked / scale, whole / scale, rtol=0, atol=1e-5)
    record_property("judged", f"{judged} of 12")
    assert judged >= FEWEST_JUDGED, f"only {judged} of 12 texts had no close call"


def stored_rows(memory: ModelCache) -> list[Rows]:
    return [store for layer in memory.layers for store in layer.stores()]


@pytest.fixture
def written(monkeypatch):
    """What each store was given, before rounding: {id(store): {field: [chunk, chunk, ...]}}."""
    seen: dict[int, dict[str, list]] = {}

    def watched(extend):
        def record(self, new):
            for name, x in new.items():
                seen.setdefault(id(self), {}).setdefault(name, []).append(x.clone())
            return extend(self, new)

        return record

    for kind in (Rows, Ring):
        monkeypatch.setattr(kind, "extend", watched(kind.__dict__["extend"]))
    return lambda store: torch.cat([torch.cat(x, dim=1) for x in seen[id(store)].values()], dim=-1)


@by_preset
@pytest.mark.parametrize("sizes", [[1] * LONGEST, [7, 1, 19, 10], [36, 1]])
def test_packed_rows_do_not_depend_on_the_chunking(name, sizes, written, record_property):
    """fp64 compute, packed storage: the same bytes, however the text is cut.

    Bytes may differ where a number lies on a rounding boundary: then both runs wrote nearly the
    same number, and there are few. (A fresh LayerNorm puts the first value of an index key, after
    the Hadamard turn, at 0 for the first token: its sign is such a boundary.)
    """
    model = model_of(name, 0)
    tokens = tokens_of(model, 2, LONGEST, 0)
    whole, one_pass = in_chunks(model, tokens, [LONGEST], "packed")
    chunked, cut_up = in_chunks(model, tokens, sizes, "packed")
    differing = 0
    for a, b in zip(stored_rows(one_pass), stored_rows(cut_up), strict=True):
        torch.testing.assert_close(written(a), written(b), rtol=0, atol=1e-6)
        differing += (a.packed() != b.packed()).sum().item()
    record_property("codes on a boundary", differing)
    assert differing <= 6, f"{differing} codes differ"
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6 if differing else 1e-10)


@by_preset
def test_packed_storage_really_rounds(name):
    """If packed rows kept every bit, the test above would prove nothing about packing."""
    model = model_of(name, 0)
    tokens = tokens_of(model, 2, LONGEST, 0)
    packed, _ = in_chunks(model, tokens, [LONGEST], "packed")
    error = (packed - model(tokens)).abs().max().item()
    assert 1e-4 < error < 10


@by_preset
def test_a_cache_continues_and_a_reset_one_is_new(name):
    model = model_of(name, 1)
    first, second = tokens_of(model, 2, 20, 1), tokens_of(model, 2, 17, 2)
    memory = model.new_cache(2, 20, "float64")
    model(first, memory)
    memory.reset()
    again = model(second, memory)
    torch.testing.assert_close(again, model(second), rtol=0, atol=1e-10)


@by_preset
def test_sequences_of_a_batch_do_not_meet(name):
    model = model_of(name, 2)
    tokens = tokens_of(model, 3, 24, 5)
    together, _ = in_chunks(model, tokens, [9, 1, 14], "float64")
    for row in range(3):
        alone, _ = in_chunks(model, tokens[row : row + 1], [9, 1, 14], "float64")
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-10)


# ------------------------------------------------------------------ promise 3: causality


def first_differences(model, changed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits before the changed token, in the text as it was and as it is then; and the change."""
    tokens = tokens_of(model, 2, LONGEST, 3)
    other = tokens.clone()
    other[:, changed] = (other[:, changed] + 1) % model.config.vocab
    before, after = model(tokens), model(other)
    return before[:, :changed], after[:, :changed], (before - after)[:, changed].abs().max()


@by_preset
@pytest.mark.parametrize("changed", [1, 16, 31, LONGEST - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_bit_before_a_changed_token_changes(name, changed, dtype):
    """The preset with dense feed-forward layers: no shape in it depends on values."""
    before, after, change = first_differences(model_of(name, 0, dtype, dense=True), changed)
    assert torch.equal(before, after) and change > 1e-2


@by_preset
@pytest.mark.parametrize("changed", [1, 16, LONGEST - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_later_token_changes_nothing_before_it(name, changed, dtype):
    """How many tokens an expert multiplies at once depends on where all of them go, and a
    matrix product's last bits on that."""
    before, after, change = first_differences(model_of(name, 0, dtype), changed)
    atol = 1e-12 if dtype is torch.float64 else 1e-5
    scale = before.abs().max().clamp(min=1)
    torch.testing.assert_close(before / scale, after / scale, rtol=0, atol=atol)
    assert change > 1e-2
