"""CED: which layers run for a prompt, what a bounded replay leaves exact, and what it costs."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from tinymodels import ced, ledger
from tinymodels.attention import seen
from tinymodels.generate import generate_without_cache, stream
from tinymodels.presets import tiny_v1, tiny_v4_1
from tinymodels.step import Step
from tinymodels.transformer import Transformer

WINDOW, LAYERS, ENCODER = 16, 8, 4
LENGTHS = [1, 5, WINDOW - 1, WINDOW, WINDOW + 1, 33]


@cache
def model_of(seed=0, dtype=torch.float64):
    model = Transformer(tiny_v4_1(), seed=seed).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return model.requires_grad_(False)


def tokens_of(length, seed=0, batch=2):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(256, (batch, length), generator=draw)


def cut_at(start):
    """`in_window` that lets no query see a key before position `start`."""
    right = seen.in_window

    def in_window(step, entries, window):
        end = step.start + step.tokens_BT.shape[1]
        rows = torch.arange(end - entries, end)
        return right(step, entries, window) & (rows >= start)

    return in_window


def with_cut_windows(model, tokens, start, monkeypatch):
    """Logits of an uncached pass whose decoder windows reach back to `start` at most."""
    step = Step(tokens)
    stream, step = model.run(range(ENCODER), model.open(step), step)
    step = replace(step, made={})  # the masks that the encoder shared are whole
    monkeypatch.setattr(seen, "in_window", cut_at(start))
    stream, _ = model.run(range(ENCODER, LAYERS), stream, step)
    monkeypatch.undo()
    return model.close(stream)


# ------------------------------------------------------------------ what runs


@pytest.mark.parametrize("length", LENGTHS)
def test_layer_tokens_of_a_prompt(length):
    model = model_of()
    for sizes in ([length], [1] * min(length, 3) + [length - 3] * (length > 3)):
        memory = model.new_cache(2, length, "float64")
        parts = tokens_of(length).split(sizes, dim=1)
        for part in parts[:-1]:
            assert model.prefill(part, memory, last=False) is None
        assert model.prefill(parts[-1], memory).shape == (2, 256)
        assert memory.length == length
        want = ENCODER * length + (LAYERS - ENCODER) * min(length, WINDOW)
        assert sum(memory.work.values()) == want
        assert [memory.work[i] for i in range(LAYERS)] == (
            [length] * ENCODER + [min(length, WINDOW)] * (LAYERS - ENCODER)
        )


def test_exact_runs_everything():
    model, memory = model_of(), model_of().new_cache(2, 33)
    assert model.prefill(tokens_of(33), memory, exact=True).shape == (2, 33, 256)
    assert sum(memory.work.values()) == LAYERS * 33


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prefilled_cache_holds_what_the_formula_says(length):
    model = model_of(0, torch.float32)
    memory = model.new_cache(2, length)
    model.prefill(tokens_of(length), memory)
    want = ledger.exact(model.config, length, batch=2)
    assert {k: memory.bytes()[k] for k in want} == want


# ------------------------------------------------------------------ what it gives


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("length", [1, 9, WINDOW])
def test_exact_up_to_the_window(length, seed):
    model, tokens = model_of(seed), tokens_of(length + 4, seed)
    memory = model.new_cache(2, length + 4, "float64")
    got = [model.prefill(tokens[:, :length], memory)]
    got += [model(tokens[:, i : i + 1], memory)[:, -1] for i in range(length, length + 4)]
    whole = model(tokens)[:, length - 1 :]
    torch.testing.assert_close(torch.stack(got, dim=1), whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("sizes", [[29], [11, 18], [28, 1], [3, 20, 6], [17, 12]])
def test_replay_is_a_pass_with_cut_windows(sizes, seed, monkeypatch):
    model, prompt, more = model_of(seed), sum(sizes), 5
    tokens = tokens_of(prompt + more, seed)
    memory = model.new_cache(2, prompt + more, "float64")
    parts = tokens[:, :prompt].split(sizes, dim=1)
    for part in parts[:-1]:
        model.prefill(part, memory, last=False)
    got = [model.prefill(parts[-1], memory)]
    got += [model(tokens[:, i : i + 1], memory)[:, -1] for i in range(prompt, prompt + more)]
    want = with_cut_windows(model, tokens, prompt - WINDOW, monkeypatch)[:, prompt - 1 :]
    torch.testing.assert_close(torch.stack(got, dim=1), want, rtol=0, atol=1e-10)
    # The approximation is one: the exact logits differ, by less than they vary themselves.
    exact = model(tokens)[:, prompt - 1 :]
    error = (torch.stack(got, dim=1) - exact).abs().max()
    assert 1e-6 < error < exact.std()


def test_a_second_prompt_goes_on_where_the_first_ended():
    """Shorter than the window: nothing is missing, so the decoder's windows just go on."""
    model, tokens = model_of(), tokens_of(24)
    memory = model.new_cache(2, 24, "float64")
    model.prefill(tokens[:, :12], memory)
    got = model.prefill(tokens[:, 12:], memory)
    torch.testing.assert_close(got, model(tokens)[:, -1], rtol=0, atol=1e-10)
    assert memory.work[ENCODER] == 24


def test_a_long_second_prompt_restarts_the_windows(monkeypatch):
    model, tokens = model_of(), tokens_of(33)
    memory = model.new_cache(2, 33, "float64")
    model.prefill(tokens[:, :5], memory)
    got = model.prefill(tokens[:, 5:], memory)
    want = with_cut_windows(model, tokens, 33 - WINDOW, monkeypatch)[:, -1]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [[23], [7, 16], [1] * 23])
def test_packed_replay_does_not_depend_on_the_chunking(sizes):
    model, tokens = model_of(), tokens_of(23)

    def read(sizes):
        memory = model.new_cache(2, 23)
        parts = tokens.split(sizes, dim=1)
        for part in parts[:-1]:
            model.prefill(part, memory, last=False)
        logits = model.prefill(parts[-1], memory)
        return logits, [s.packed() for c in memory.layers for s in c.stores()]

    (got, rows), (want, wanted) = read(sizes), read([10, 13])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    assert all(torch.equal(a, b) for a, b in zip(rows, wanted, strict=True))


# ------------------------------------------------------------------ refusals


def test_a_prompt_without_an_end_is_refused():
    model, tokens = model_of(), tokens_of(9)
    memory = model.new_cache(2, 20)
    model.prefill(tokens, memory, last=False)
    for call in (
        lambda: model(tokens[:, :1], memory),
        lambda: model.prefill(tokens, memory, exact=True),
    ):
        with pytest.raises(ValueError, match="has no end yet"):
            call()
    model.prefill(tokens, memory)
    model(tokens[:, :1], memory)
    memory.reset()
    assert not memory.work and memory.pending is None
    torch.testing.assert_close(
        model.prefill(tokens, memory), model.prefill(tokens, model.new_cache(2, 20)), rtol=0, atol=0
    )


def test_bad_chunks_leave_the_cache():
    model, memory = model_of(), model_of().new_cache(2, 8)
    model.prefill(tokens_of(5), memory, last=False)
    pending = memory.pending
    for bad, message in (
        (tokens_of(4), "do not fit"),
        (tokens_of(1, batch=3), "batch of 3"),
        (tokens_of(2) + 256, "vocabulary"),
    ):
        with pytest.raises(ValueError, match=message):
            model.prefill(bad, memory)
    assert memory.length == 5 and memory.pending is pending
    model.prefill(tokens_of(3), memory)


def test_resume_is_for_models_with_windows():
    model = Transformer(tiny_v1())
    with pytest.raises(ValueError, match="layer 0 of tiny_v1 has no window to rebuild"):
        ced.resume(model, tokens_of(3), model.new_cache(2, 3))


def test_written_text_is_that_of_the_whole_model():
    """Prefill by replay, then decode: within the window's reach the same words as without a
    cache, and any cut of the prompt gives the same text beyond it."""
    model = model_of()
    short = tokens_of(WINDOW)
    got = model.generate(short, 6, storage="float64")
    assert torch.equal(got, generate_without_cache(model, short, 6))
    long = tokens_of(30)
    memory = model.new_cache(2, 40, "float64")
    model.prefill(long[:, :19], memory, last=False)
    continued = torch.cat(
        [long, *(t[:, None] for t in stream(model, long[:, 19:], 6, cache=memory))], 1
    )
    assert torch.equal(continued, model.generate(long, 6, storage="float64"))
