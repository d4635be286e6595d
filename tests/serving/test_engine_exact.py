"""What `Served.exact` promises, replays after replays, and texts of awkward lengths."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinymodels.parts import Parts
from tinymodels.presets import (
    tiny_v1,
    tiny_v2,
    tiny_v2_lite,
    tiny_v3,
    tiny_v3_2,
    tiny_v4,
    tiny_v4_1,
)
from tinymodels.serving import rows, windows
from tinymodels.serving.engine import Engine
from tinymodels.transformer import Transformer

from . import replays
from .test_engine import BIG, WINDOW, cold, engine_of, model_of, prompts, slow_is_fine, text_of
from .test_store_faults import FullDisk
from .uncached import Uncached

pytestmark = pytest.mark.usefixtures("no_waiting")
PRESETS = (tiny_v1, tiny_v2, tiny_v2_lite, tiny_v3, tiny_v3_2, tiny_v4, tiny_v4_1)
jumps = st.lists(st.sampled_from([0.0, 4.0, 10.0]), min_size=6, max_size=6)
traces = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 70), st.integers(1, 25), st.integers(1, 3)),
    min_size=2,
    max_size=6,
)

talks = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 12)), min_size=2, max_size=6
)


def close(got, want):
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
@slow_is_fine(6)
@given(traces, jumps, st.sampled_from([12_000, BIG]))
def test_what_is_called_exact_is_exact(tmp_path_factory, preset, trace, jumps, budget):
    now = [0.0]
    engine = engine_of(preset, tmp_path_factory.mktemp("e"), budget, ttl=10, clock=lambda: now[0])
    for (prompt, new), jump in zip(prompts(trace), jumps, strict=False):
        now[0] += jump
        got = engine.serve(prompt, new)
        if got.hit == 0:
            assert got.exact
        if got.exact:
            want, answer = cold(engine, prompt, new)
            close(got.logits_V, want)
            assert got.tokens == answer and got.replayed == 0


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
@slow_is_fine(4)
@given(traces, st.sampled_from([25_000, BIG]))
def test_replays_after_replays_are_uncached_passes_with_cut_windows(
    tmp_path_factory, preset, trace, budget
):
    """No windows live (ttl 0), so every hit is a replay; rows that it makes are read later on."""
    engine = engine_of(preset, tmp_path_factory.mktemp("e"), budget, ttl=0, block=8)
    made = {}  # name of a piece: the replays that it comes from
    for prompt, _ in prompts(trace):
        before = set(engine.store.lru)
        got = engine.serve(prompt, 1)
        chain = engine.names(prompt)
        cuts = (*made[chain[got.hit // engine.step - 1]], got.hit) if got.hit else ()
        made |= {name: cuts for name in chain if name not in before}
        close(got.logits_V, replays.after(engine.model, prompt, cuts))
        assert got.replayed == (WINDOW if got.hit else 0) and got.exact == (got.hit == 0)


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_three_replays_in_a_row(tmp_path, preset):
    engine, cuts = engine_of(preset, tmp_path, ttl=0, block=8), []
    text, step = text_of(150), engine.step
    engine.serve(text[: 3 * step + 1], 1)
    for pieces in (5, 6, 9):
        prompt = text[: pieces * step + 3]
        got = engine.serve(prompt, 1)
        cuts.append(got.hit)
        close(got.logits_V, replays.after(engine.model, prompt, cuts))
        with pytest.raises(AssertionError):
            close(got.logits_V, replays.after(engine.model, prompt, cuts[-1:])) or len(cuts) > 1
            close(got.logits_V, cold(engine, prompt, 1)[0])
    assert cuts == [3 * step, 5 * step, 6 * step]


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_rows_of_a_replay_stay_known_as_such_after_a_restart(tmp_path, preset):
    now = [0.0]
    engine = engine_of(preset, tmp_path, ttl=10, clock=lambda: now[0])
    step = engine.step
    text = text_of(6 * step + 2)
    assert engine.serve(text[: 3 * step + 1], 1).exact
    now[0] = 10.0
    assert not engine.serve(text, 1).exact  # replayed
    other = engine.serve(text[: 3 * step] + text_of(2, 9), 1)  # exact rows, windows of the replay
    assert (other.replayed, other.exact, other.hit) == (0, False, 3 * step)
    again = engine.serve(text, 1)  # goes on from windows that a replay made
    assert (again.replayed, again.exact, again.hit) == (0, False, 6 * step)
    engine.close()
    engine = engine_of(preset, tmp_path, ttl=10, clock=lambda: now[0])
    marks = [rows.replayed(engine.store.get(name)) for name in engine.names(text)]
    assert marks == 3 * [False] + 3 * [True]


def test_a_decoder_that_goes_on_is_not_called_exact(tmp_path):
    """V4.1 without a prefix cache runs its decoder once, over the last W tokens. After an answer
    it has run before: closer to the whole, and not the same."""
    engine = engine_of(tiny_v4_1, tmp_path)
    text = text_of(29)
    assert engine.serve(text[:24], 1).exact
    got = engine.serve(text, 1)
    assert (got.hit, got.replayed, got.exact) == (24, 0, False)
    assert (got.logits_V - cold(engine, text, 1)[0]).abs().max() > 1e-6
    want = Uncached(engine.model, engine.step)
    want.serve(text[:24], 1, 0)
    close(got.logits_V, want.serve(text, 1, 24)[0])
    assert not any(rows.replayed(engine.store.get(name)) for name in engine.names(text))


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_far_rows_made_while_writing_are_those_of_reading(tmp_path, preset):
    """Only the windows of V4.1's decoder know where a prompt ended; no far row depends on them."""
    engine = engine_of(preset, tmp_path)
    step, prompt = engine.step, text_of(37)
    first = engine.serve(prompt, 2 * step)
    text = prompt + list(first.tokens) + text_of(3, 1)
    second = engine.serve(text, 1)
    assert second.hit > 37 + step and second.replayed == 0
    assert second.exact == (preset is tiny_v4)
    made = engine.model.new_cache(1, len(text), "float64")
    engine.model.prefill(torch.tensor([text]), made)
    for i, name in enumerate(engine.names(text)):
        got, want = engine.store.get(name), rows.piece(made, i * step, (i + 1) * step)
        assert set(got) == set(want)
        for key in want:
            close(*(torch.from_numpy(r[key]).view(torch.float64) for r in (got, want)))


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
@slow_is_fine(5)
@given(talks)
def test_a_talk_goes_on_as_if_nothing_had_been_stored(tmp_path_factory, preset, talk):
    """Each request goes on after an earlier answer, exact or not, and is compared."""
    engine = engine_of(preset, tmp_path_factory.mktemp("e"), ttl=1e9)
    uncached, texts = Uncached(engine.model, engine.step), [[]]
    for i, (which, more, new) in enumerate(talk):
        prompt = texts[which % len(texts)] + text_of(more, i)
        got = engine.serve(prompt, new)
        want_V, answer = uncached.serve(prompt, new, got.hit)
        close(got.logits_V, want_V)
        assert got.tokens == answer and got.replayed == 0
        texts.append(prompt + list(answer))


@pytest.mark.parametrize("preset", PRESETS)
def test_awkward_lengths(tmp_path, preset):
    """Cold, again, and with three tokens more, around the window and the piece."""
    engine = engine_of(preset, tmp_path / "e", ttl=1e9)
    step, kinds = engine.step, set()
    lengths = {1, 2, WINDOW - 1, WINDOW, WINDOW + 1, step - 1, step, step + 1, 3 * step}
    for length in sorted(lengths):
        text = text_of(length + 3, seed=length)
        for prompt in (text[:length], text[:length], text):
            got = engine.serve(prompt, 1)
            kinds.add((got.exact, got.hit > 0))
            assert got.hit % step == 0 and got.hit < len(prompt)
            if got.exact:
                close(got.logits_V, cold(engine, prompt, 1)[0])
    assert (True, True) in kinds and (preset is tiny_v4_1 or {e for e, _ in kinds} == {True})


@pytest.mark.parametrize("preset", [tiny_v3_2, tiny_v4_1])
def test_a_text_parts_inside_a_piece(tmp_path, preset):
    engine = engine_of(preset, tmp_path)
    one = text_of(50)
    for at in (engine.step - 1, engine.step, 25, 48):
        other = one[:at] + [(one[at] + 1) % 256] + one[at + 1 :]
        engine.serve(one, 1)
        got = engine.serve(other, 1)
        same = at // engine.step * engine.step
        if preset is tiny_v4_1 and same <= WINDOW:  # no shorter to replay than to read again
            same = 0
        assert got.hit == same
        if got.exact:
            close(got.logits_V, cold(engine, other, 1)[0])
        else:
            close(got.logits_V, replays.after(engine.model, other, [same]))


@pytest.mark.parametrize("preset", [tiny_v2, tiny_v4_1])
@pytest.mark.parametrize("pieces", [0, 1, 4])
def test_a_budget_of_nothing_one_piece_and_just_enough(tmp_path, preset, pieces):
    probe = engine_of(preset, tmp_path / "probe")
    probe.serve(text_of(25), 1)
    size = probe.store.lru.used // 4
    engine = engine_of(preset, tmp_path / "e", pieces * size, ttl=0)
    for prompt in (text_of(25), text_of(25, 1), text_of(25), text_of(25)):
        got = engine.serve(prompt, 1)
        assert len(engine.store.lru) == pieces and engine.store.lru.used == pieces * size
        if got.exact:
            close(got.logits_V, cold(engine, prompt, 1)[0])
    want = pieces * engine.step
    assert got.hit == (0 if preset is tiny_v4_1 and want <= WINDOW else want)


@pytest.mark.parametrize("late", range(12))
def test_windows_may_expire_at_any_moment_of_a_request(tmp_path, late):
    """A clock that goes on at every look at it."""
    ticks = [0.0]

    def clock():
        ticks[0] += 1
        return ticks[0]

    engine = engine_of(tiny_v4_1, tmp_path, ttl=late + 0.5, clock=clock)
    text = text_of(60)
    engine.serve(text, 1)
    for _ in range(3):
        got = engine.serve(text, 1)
        if got.exact:
            close(got.logits_V, cold(engine, text, 1)[0])


def test_requests_from_many_threads_take_turns(tmp_path):
    """As behind a web server: what one thread stores another one finds."""
    engine = engine_of(tiny_v1, tmp_path, storage="packed")
    prompts = [text_of(30) + text_of(10, seed) for seed in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda prompt: engine.serve(prompt, 2), prompts))
    assert sorted(one.hit for one in got) == [0, 30, 30] and not any(one.refused for one in got)
    assert len(engine.store.lru) == 5 + 3
    for one, prompt in zip(got, prompts, strict=True):
        assert one.tokens == cold(engine, prompt, 2)[1]


def test_prompts_of_all_kinds_have_the_same_names(tmp_path):
    engine, text = engine_of(tiny_v1, tmp_path), text_of(20)
    engine.serve(text, 1)
    for prompt in (tuple(text), bytes(text), np.array(text), torch.tensor(text)):
        assert engine.serve(prompt, 1).hit == 18


@pytest.mark.parametrize("prompt", ["abc", None, [1.5, 2], [[1, 2], [3, 4]], [2**70], [-1]])
def test_what_is_no_prompt_is_refused(tmp_path, prompt):
    with pytest.raises(ValueError, match="token|vocabulary"):
        engine_of(tiny_v1, tmp_path).serve(prompt, 1)


def test_a_model_of_own_parts_shares_rows_with_nobody(tmp_path):
    """What a part computes is in no configuration and no weight."""
    right = model_of(tiny_v1)
    own = Transformer(tiny_v1(), Parts(swiglu=lambda gate, up, limit=None: up), seed=1).double()
    own.load_state_dict(right.state_dict())
    text = text_of(40)
    for model, hits in ((right, (0, 36)), (own, (0, 36)), (right, (36, 36)), (own, (0, 36))):
        engine = Engine(model, tmp_path, BIG, block=6, storage="float64")
        for hit in hits:
            got = engine.serve(text, 1)
            assert got.hit == hit
            close(got.logits_V, cold(engine, text, 1)[0])
        engine.close()


def test_autocast_leaves_no_coarser_rows_behind(tmp_path):
    """Nothing in the model says that it was on, so a later request would read what it made."""
    engine = engine_of(tiny_v3_2, tmp_path, storage="packed")
    text = text_of(40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = engine.serve(text, 1)
    again = engine.serve(text, 1)
    assert again.hit == 36 and first.logits_V.dtype == torch.float32
    want = cold(engine, text, 1)[0]
    for got in (first, again):
        torch.testing.assert_close(got.logits_V, want, rtol=0, atol=1e-3)


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v4_1])
def test_a_full_disk_costs_no_answer(tmp_path, preset):
    engine, text = engine_of(preset, tmp_path), text_of(61)
    want, answer = cold(engine, text, 3)
    with FullDisk(300):
        got = engine.serve(text, 3)
        close(got.logits_V, want)
        assert got.tokens == answer and "cannot be stored" in got.refused[0]
    assert engine.serve(text, 3).refused == () and len(engine.store.lru) == 10


def test_windows_hold_no_more_than_they_count():
    """A piece of a long tensor would keep all of it alive."""
    model = model_of(tiny_v4_1)
    memory = model.new_cache(1, 900, "float64")
    model.prefill(torch.tensor([text_of(600)]), memory, last=False)
    near = windows.take(memory)
    held = [b for ring in near.rings if ring for b in ring[0].values()]
    held += [state for state in near.opened if state is not None]
    held += windows._tensors(near.pending)
    assert sum(t.untyped_storage().nbytes() for t in held) == near.nbytes
