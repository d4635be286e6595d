"""Encoder replay: a stored prefix has far rows and no windows, and its last W tokens bring them."""

from dataclasses import replace

import pytest
import torch

from tinymodels import ced
from tinymodels.attention.csa2 import CSA2
from tinymodels.cache.ring import Ring
from tinymodels.presets import tiny_v1, tiny_v4
from tinymodels.residual import newest
from tinymodels.step import Step
from tinymodels.transformer import Transformer

from .test_ced import ENCODER, LAYERS, WINDOW, model_of, tokens_of


def far_rows(memory, tokens=None):
    return [
        store.buffers[name][:, : None if tokens is None else planned.rows(tokens)].clone()
        for c in memory.layers
        for store, planned in ((c.main, c.plan.main), (c.index, c.plan.index))
        if store is not None
        for name in store.buffers
    ]


def after_a_hit(model, tokens, prefix, storage="float64", capacity=None):
    """A cache with the prefix's far rows, its windows rebuilt; and the one it came from."""
    stored = model.new_cache(2, prefix + 3, storage)
    model.prefill(tokens[:, : prefix + 3], stored, exact=True)
    memory = model.new_cache(2, capacity or tokens.shape[1], storage)
    other = tokens_of(min(20, memory.capacity), seed=9)
    model.prefill(other, memory)  # an earlier text leaves its traces, were they not cleaned
    memory.adopt(stored, prefix)
    ced.resume(model, tokens[:, :prefix], memory)
    return memory, stored


def reference(model, tokens, prefix, monkeypatch):
    """The same without a cache: exact far entries of the prefix, windows that begin in its last
    W tokens, and a decoder that runs the last W tokens of all."""
    exact = {}
    right = CSA2.publish

    def record(self, x, step, cache=None):
        step = right(self, x, step, cache)
        exact[self.layer] = step.far
        return step

    monkeypatch.setattr(CSA2, "publish", record)
    model(tokens)
    first = max(0, prefix - WINDOW)

    def publish(self, x, step, cache=None):
        if step.far is not None and step.far.owner == self.layer:
            return step
        step = right(self, x, step, cache)
        far, whole = step.far, exact[self.layer]
        skip, kept = (prefix - first) // far.ratio, prefix // far.ratio
        entry = torch.cat([whole.entry_BSD[:, :kept], far.entry_BSD[:, skip:]], dim=1)
        key = torch.cat([whole.key_BSD[:, :kept], far.key_BSD[:, skip:]], dim=1)
        return replace(step, far=replace(far, entry_BSD=entry, key_BSD=key))

    monkeypatch.setattr(CSA2, "publish", publish)
    step = Step(tokens[:, first:], first)
    stream, step = model.run(range(ENCODER), model.open(step), step)
    step = model.layers[ENCODER].publish(stream, step)
    last = min(WINDOW, tokens.shape[1] - first)
    step = replace(step, tokens_BT=tokens[:, -last:], start=tokens.shape[1] - last)
    stream, _ = model.run(range(ENCODER, LAYERS), newest(stream, last), step)
    monkeypatch.undo()
    return model.close(stream)[:, -1]


CASES = [(4, 3), (8, 8), (22, 1), (22, 5), (26, 19), (WINDOW, 2)]


@pytest.mark.parametrize(("prefix", "suffix"), CASES)
def test_a_hit_and_a_suffix(prefix, suffix, monkeypatch):
    model, tokens = model_of(), tokens_of(prefix + suffix, prefix)
    memory, stored = after_a_hit(model, tokens, prefix)
    got = model.prefill(tokens[:, prefix:], memory)
    want = reference(model, tokens, prefix, monkeypatch)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    exact = model(tokens)[:, -1]
    if prefix + suffix <= WINDOW:
        torch.testing.assert_close(got, exact, rtol=0, atol=1e-10)
    elif prefix > WINDOW:
        assert (got - exact).abs().max() > 1e-6  # random weights: it can be large


@pytest.mark.parametrize("storage", ["packed", "float64"])
def test_far_rows_are_read_and_never_written(storage):
    model, tokens = model_of(), tokens_of(31)
    memory, stored = after_a_hit(model, tokens, 22, storage)
    wanted = far_rows(stored, 22)
    assert all(torch.equal(a, b) for a, b in zip(far_rows(memory, 22), wanted, strict=True))
    assert [c.main.length for c in memory.layers if c.main] == [11, 22]
    assert memory.work == {i: WINDOW for i in range(ENCODER)}
    assert memory.bytes()["global"] == 2 * 22 * memory.rate()
    model.prefill(tokens[:, 22:], memory)
    assert all(torch.equal(a, b) for a, b in zip(far_rows(memory, 22), wanted, strict=True))
    assert memory.length == 31 and memory.layers[1].main.length == 15
    assert memory.work == {i: WINDOW + 9 for i in range(ENCODER)} | {
        i: WINDOW for i in range(ENCODER, LAYERS)
    }


def test_decode_after_a_hit_is_open_to_any_chunking():
    model, tokens = model_of(), tokens_of(33)
    results = []
    for sizes in ([11], [4, 7], [1] * 11):
        memory, _ = after_a_hit(model, tokens, 22)
        parts = tokens[:, 22:].split(sizes, dim=1)
        for part in parts[:-1]:
            model.prefill(part, memory, last=False)
        results.append(model.prefill(parts[-1], memory))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=1e-10)


# ------------------------------------------------------------------ faults it must see


def stale_ring(patch):
    patch.setattr(Ring, "reset", lambda self: None)


def far_rows_written_again(patch):
    patch.setattr(ced, "Step", lambda *args, windows_only=False: Step(*args))


def windows_not_rebuilt(patch):
    right = Ring.extend

    def forgets(self, new):
        rows = right(self, new)
        if self.seen == 22:
            self.restart(22)
        return rows

    patch.setattr(Ring, "extend", forgets)


@pytest.mark.parametrize("fault", [stale_ring, far_rows_written_again, windows_not_rebuilt])
def test_faults_are_seen(fault, monkeypatch):
    model, tokens = model_of(), tokens_of(31)
    want = reference(model, tokens, 22, monkeypatch)
    fault(monkeypatch)
    memory, stored = after_a_hit(model, tokens, 22, capacity=99)
    got = model.prefill(tokens[:, 22:], memory)
    assert (got - want).abs().max() > 1e-3


# ------------------------------------------------------------------ refusals


def test_a_prefix_that_does_not_fit_is_refused():
    model = model_of()
    stored, memory = model.new_cache(2, 9), model.new_cache(2, 7)
    model.prefill(tokens_of(9), stored)
    model.prefill(tokens_of(3), memory)
    for source, tokens, message in (
        (stored, 5, "a prefix ends on a multiple of 2"),
        (stored, 8, "9 are cached there, and 7 fit here"),
        (stored, -2, "tokens is -2"),
        (model.new_cache(3, 9), 0, "differ in batch: 3 there, 2 here"),
        (model.new_cache(2, 9, "float32"), 0, "differ in storage"),
        (
            model.new_cache(2, 9, row="bf16"),
            0,
            r"rows: bf16 entry \(64 bytes\), .* there, FP8 entry \(32 \+ 1 bytes\), .* here",
        ),
        (memory, 2, "cannot adopt from itself"),
        (Transformer(tiny_v1()).new_cache(2, 9), 0, "differ in config"),
    ):
        with pytest.raises(ValueError, match=message):
            memory.adopt(source, tokens)
    assert memory.length == 3
    memory.adopt(stored, 4)
    with pytest.raises(ValueError, match="the prefix has 6 tokens; 4 are in the cache"):
        ced.resume(model, tokens_of(6), memory)
    with pytest.raises(ValueError, match="has no end yet"):
        ced.resume(model, tokens_of(4), memory)
        model(tokens_of(1), memory)


def test_far_rows_without_windows_are_not_read():
    model, tokens = model_of(), tokens_of(31)
    stored, memory = model.new_cache(2, 31, "float64"), model.new_cache(2, 31, "float64")
    model.prefill(tokens[:, :22], stored)
    memory.adopt(stored, 22)
    for read in (model.prefill, model):
        with pytest.raises(ValueError, match="has no windows yet; call ced.resume"):
            read(tokens[:, 22:], memory)
    ced.resume(model, tokens[:, :22], memory)
    got = model.prefill(tokens[:, 22:], memory)
    again, _ = after_a_hit(model, tokens, 22, capacity=31)
    want = model.prefill(tokens[:, 22:], again)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    memory.adopt(stored, 22)
    memory.adopt(stored, 0)  # nothing was taken over, so nothing is missing
    model.prefill(tokens, memory)


def test_groups_that_overlap_need_a_window_that_reaches_back():
    config = tiny_v4()
    short = [
        replace(layer, attention=replace(layer.attention, window=3)) for layer in config.layers
    ]
    model = Transformer(config.with_(layers=tuple(short)))
    with pytest.raises(ValueError, match="layer 2 of tiny_v4 pools groups of 4 that overlap"):
        model.new_cache(2, 32).adopt(model.new_cache(2, 32), 0)


def test_models_without_windows_need_no_replay():
    model = Transformer(tiny_v1()).requires_grad_(False)
    tokens = tokens_of(11)
    stored, memory = model.new_cache(2, 9), model.new_cache(2, 11)
    model(tokens[:, :9], stored)
    memory.adopt(stored, 7)
    got = model(tokens[:, 7:], memory)[:, -1]
    whole = model.new_cache(2, 11)
    torch.testing.assert_close(got, model(tokens, whole)[:, -1], rtol=0, atol=1e-5)
