"""V4 after a prefix hit: far rows adopted, windows and overlapping groups rebuilt by a replay."""

from functools import cache

import pytest
import torch

from tinymodels import ced
from tinymodels.attention import seen
from tinymodels.attention.csa import CSA
from tinymodels.presets import tiny_v3, tiny_v4
from tinymodels.transformer import Transformer

WINDOW, MULTIPLE = 16, 16  # groups of 4 and of 16


@cache
def model_of(seed=0):
    model = Transformer(tiny_v4(), seed=seed).double()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return model.requires_grad_(False)


def tokens_of(length, seed=0):
    return torch.randint(256, (2, length), generator=torch.Generator().manual_seed(seed))


def after_a_hit(model, tokens, prefix, storage="float64"):
    stored = model.new_cache(2, prefix + 5, storage)
    model(tokens[:, : prefix + 5], stored)
    memory = model.new_cache(2, tokens.shape[1], storage)
    model(tokens_of(19, seed=9), memory)  # an earlier text leaves its traces, were they not cleaned
    memory.adopt(stored, prefix)
    ced.resume(model, tokens[:, :prefix], memory)
    return memory, stored


def far_rows(memory, tokens):
    return [
        buffer[:, : tokens // c.plan.main.ratio].clone()
        for c in memory.layers
        for store in (c.main, c.index)
        if store is not None
        for buffer in store.buffers.values()
    ]


def reference(model, tokens, prefix, patch):
    """One uncached pass: groups of the prefix as they are, windows that begin in its last W
    tokens. What tokens before those become is of no account."""
    exact, far, ask = {}, CSA.far, CSA.ask

    def record(name, right):
        def recorded(self, *args):
            found = right(self, *args)
            exact[id(self), name] = found
            return found

        return recorded

    patch.setattr(CSA, "far", record("far", far))
    patch.setattr(CSA, "ask", record("ask", ask))
    model(tokens)

    def joined(self, old, new):
        kept = prefix // self.ratio
        return torch.cat([old[:, :kept], new[:, kept:]], dim=1)

    patch.setattr(CSA, "far", lambda s, *a: joined(s, exact[id(s), "far"], far(s, *a)))

    def asked(self, *args):
        found = ask(self, *args)
        return found._replace(key_BSD=joined(self, exact[id(self), "ask"].key_BSD, found.key_BSD))

    patch.setattr(CSA, "ask", asked)
    whole = seen.in_window

    def cut(step, entries, window):
        rows = torch.arange(entries)
        return whole(step, entries, window) & (rows >= max(0, prefix - WINDOW))

    patch.setattr(seen, "in_window", cut)
    got = model(tokens)[:, -1]
    patch.undo()
    return got


CASES = [(16, 1), (16, 13), (32, 3), (48, 21), (64, 4)]


@pytest.mark.parametrize(("prefix", "suffix"), CASES)
def test_a_hit_and_a_suffix(prefix, suffix, monkeypatch):
    model, tokens = model_of(), tokens_of(prefix + suffix + 5, prefix)[:, : prefix + suffix]
    memory, _ = after_a_hit(model, torch.cat([tokens, tokens_of(5)], dim=1), prefix)
    got = model.prefill(tokens[:, prefix:], memory)
    want = reference(model, tokens, prefix, monkeypatch)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    exact = model(tokens)[:, -1]
    if prefix <= WINDOW:
        torch.testing.assert_close(got, exact, rtol=0, atol=1e-10)
    else:
        assert (got - exact).abs().max() > 1e-6  # bounded: an approximation beyond the window


@pytest.mark.parametrize("storage", ["packed", "float64"])
def test_far_rows_are_read_and_never_written(storage):
    model, tokens = model_of(), tokens_of(61)
    memory, stored = after_a_hit(model, tokens, 48, storage)
    wanted = far_rows(stored, 48)
    assert all(torch.equal(a, b) for a, b in zip(far_rows(memory, 48), wanted, strict=True))
    assert memory.work == dict.fromkeys(range(len(model.layers)), WINDOW)
    model.prefill(tokens[:, 48:], memory)
    assert all(torch.equal(a, b) for a, b in zip(far_rows(memory, 48), wanted, strict=True))
    assert memory.length == 61


def test_what_comes_after_is_open_to_any_chunking():
    model, tokens, found = model_of(), tokens_of(53), []
    for sizes in ([21], [3, 18], [1] * 21):
        memory, _ = after_a_hit(model, tokens, 32)
        parts = tokens[:, 32:].split(sizes, dim=1)
        found.append(torch.cat([model(part, memory) for part in parts], dim=1))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-10)


def test_without_the_replay_the_next_groups_are_wrong(monkeypatch):
    model, tokens = model_of(), tokens_of(61)
    stored, memory = (model.new_cache(2, 61, "float64") for _ in range(2))
    model(tokens[:, :48], stored)
    memory.adopt(stored, 48)
    memory.without_windows = False  # else it is refused
    got = model.prefill(tokens[:, 48:], memory)
    assert (got - reference(model, tokens, 48, monkeypatch)).abs().max() > 1e-3


def test_what_cannot_be_resumed_is_refused():
    model = model_of()
    stored, memory = (model.new_cache(2, 40, "float64") for _ in range(2))
    model(tokens_of(40), stored)
    with pytest.raises(ValueError, match="a prefix ends on a multiple of 16"):
        memory.adopt(stored, 20)
    v3 = Transformer(tiny_v3())
    with pytest.raises(ValueError, match="layer 0 of tiny_v3 has no window to rebuild"):
        ced.resume(v3, tokens_of(4), v3.new_cache(2, 9))
