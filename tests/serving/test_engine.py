"""Requests with the prefix cache give what they give without it; and what it costs and keeps."""

import gc
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tinymodels import test_replay, test_replay_v4
from tinymodels import ledger
from tinymodels.presets import tiny_v1, tiny_v2_lite, tiny_v3_2, tiny_v4, tiny_v4_1
from tinymodels.serving import rows, windows
from tinymodels.serving.engine import Engine
from tinymodels.transformer import Transformer

pytestmark = pytest.mark.usefixtures("no_waiting")
BIG, WINDOW = 10**9, 16


@cache
def model_of(preset, dtype=torch.float64):
    model = Transformer(preset(), seed=1).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return model.requires_grad_(False)


def engine_of(preset, folder, budget=BIG, storage="float64", **more):
    model = model_of(preset, torch.float32 if storage == "packed" else torch.float64)
    return Engine(model, folder, budget, storage=storage, **{"block": 6, **more})


def text_of(length, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(256, (length,), generator=draw).tolist()


def cold(engine, prompt, new):
    """Without any prefix cache: logits of the first token, and the answer."""
    model, tokens = engine.model, torch.tensor([prompt])
    memory = model.new_cache(1, len(prompt) + new, engine.storage)
    logits_V = model.prefill(tokens, memory)[0]
    first, answer = logits_V, [int(logits_V.argmax())]
    while len(answer) < new:
        answer.append(int(model(torch.tensor([answer[-1:]]), memory)[0, -1].argmax()))
    return first, tuple(answer)


# A trace: each request goes on with an earlier text (or none), cut somewhere, and adds tokens.
traces = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 70), st.integers(1, 25), st.integers(1, 3)),
    min_size=1,
    max_size=6,
)


def prompts(trace):
    texts = [[]]
    for i, (which, kept, more, new) in enumerate(trace):
        prompt = texts[which % len(texts)][:kept] + text_of(more, i)
        texts.append(prompt)
        yield prompt, new


def slow_is_fine(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v2_lite, tiny_v3_2])
@slow_is_fine(12)
@given(traces, st.sampled_from([0, 30_000, 90_000, BIG]), st.sampled_from([1, 5, 8]))
def test_without_windows_it_is_exact(tmp_path_factory, preset, trace, budget, block):
    engine = engine_of(preset, tmp_path_factory.mktemp("e"), budget, block=block)
    for prompt, new in prompts(trace):
        got = engine.serve(prompt, new)
        want, answer = cold(engine, prompt, new)
        torch.testing.assert_close(got.logits_V, want, rtol=0, atol=1e-10)
        assert got.tokens == answer
        assert got.hit + got.miss == len(prompt) and got.hit % block == 0
        assert got.replayed == 0 and got.refused == ()
        assert engine.store.lru.used <= budget


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_a_conversation_goes_on_as_in_a_cache_that_was_never_let_go(tmp_path, preset):
    engine = engine_of(preset, tmp_path)
    step, memory = engine.step, engine.model.new_cache(1, 300, "float64")
    # Its end falls on a whole piece, so the engine has windows of just that place.
    prompt, text = text_of(2 * step - 4), []
    for turn in range(3):
        got = engine.serve(text + prompt, 5)
        answer, chunk = [], prompt
        for i in range(5):
            tokens = torch.tensor([chunk])
            logits = engine.model.prefill(tokens, memory) if i == 0 else None
            logits = engine.model(tokens, memory)[:, -1] if i else logits
            if i == 0:
                torch.testing.assert_close(got.logits_V, logits[0], rtol=0, atol=1e-10)
            answer.append(int(logits.argmax()))
            chunk = answer[-1:]
        assert got.tokens == tuple(answer) and got.replayed == 0
        assert got.hit == (len(text) if turn else 0)
        text += [*prompt, *answer[:-1]]
        prompt = [answer[-1], *text_of(step - 5, turn)]


@pytest.mark.parametrize(("preset", "case"), [(tiny_v4_1, test_replay), (tiny_v4, test_replay_v4)])
@slow_is_fine(8)
@given(pieces=st.integers(1, 4), suffix=st.integers(1, 30), seed=st.integers(0, 99))
def test_a_replay_is_a_pass_with_cut_windows(tmp_path_factory, preset, case, pieces, suffix, seed):
    now = [0.0]
    engine = engine_of(preset, tmp_path_factory.mktemp("e"), ttl=10, clock=lambda: now[0])
    if engine.step > WINDOW:  # V4: 48 tokens
        pieces = 1 + pieces // 3
    prefix = pieces * engine.step
    text = text_of(prefix + suffix, seed)
    engine.serve(text[:prefix] + text_of(3, seed + 1), 1)
    now[0] = 10.0
    got = engine.serve(text, 2)
    if prefix <= WINDOW:  # no shorter to replay than to read again, which is exact
        assert (got.hit, got.replayed) == (0, 0)
    else:
        assert (got.hit, got.miss, got.replayed) == (prefix, suffix, WINDOW)
    with pytest.MonkeyPatch.context() as patch:
        tokens = torch.tensor([text])
        want = case.reference(engine.model, tokens, prefix, patch)[0]
    torch.testing.assert_close(got.logits_V, want, rtol=0, atol=1e-10)
    if prefix > WINDOW:
        assert (got.logits_V - engine.model(tokens)[0, -1]).abs().max() > 1e-7


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v3_2, tiny_v4, tiny_v4_1])
def test_rows_come_back_bit_for_bit_after_a_restart(tmp_path, preset):
    engine, text = engine_of(preset, tmp_path, storage="packed"), text_of(100)
    first = engine.serve(text, 4)
    made = engine.model.new_cache(1, 200)
    engine.model.prefill(torch.tensor([text]), made, exact=True)
    step = engine.step
    pieces = [rows.piece(made, i * step, (i + 1) * step) for i in range(100 // step)]
    engine.close()
    again = engine_of(preset, tmp_path, storage="packed")
    chain = list(again.store.lru)
    assert len(chain) == 103 // step
    for want, name in zip(pieces, reversed(chain[-len(pieces) :]), strict=True):
        got = again.store.get(name)
        assert all((got[key] == want[key]).all() for key in want) and set(got) == set(want)
    # What lies on the disk is what the ledger says, headers apart.
    stored = sum(r.nbytes for p in pieces for r in p.values())
    assert stored == ledger.persistent(engine.model.config, step * len(pieces))
    second = again.serve(text, 4)
    assert second.hit == 99 // step * step and first.hit == 0


def test_conversations_share_what_they_share(tmp_path):
    engine, shared = engine_of(tiny_v3_2, tmp_path), text_of(30)
    hits = [engine.serve(shared + text_of(11, seed), 1).hit for seed in (1, 2, 3)]
    assert hits == [0, 30, 30]
    assert len(engine.store.lru) == 5 + 3  # five pieces of the prefix once, one of each suffix
    assert engine.serve(text_of(3, 7) + shared, 1).hit == 0  # the same, but not at the beginning


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v4_1])
def test_a_damaged_file_is_named_and_its_rows_made_again(tmp_path, preset):
    engine, text = engine_of(preset, tmp_path, ttl=0), text_of(61)
    engine.serve(text, 1)
    chain = list(engine.store.lru)[::-1]
    path = engine.store.path(chain[6])
    path.write_bytes(path.read_bytes()[:-5])
    got = engine.serve(text, 1)
    assert got.hit == 36 and len(got.refused) == 1 and path.name in got.refused[0]
    again = engine.serve(text, 1)
    assert again.hit == 60 and again.refused == ()
    if preset is tiny_v1:
        torch.testing.assert_close(got.logits_V, cold(engine, text, 1)[0], rtol=0, atol=1e-10)


def test_rows_of_other_weights_are_never_found(tmp_path):
    text = text_of(40)
    engine_of(tiny_v1, tmp_path).serve(text, 1)
    other = Engine(Transformer(tiny_v1(), seed=5), tmp_path, BIG, block=6, storage="packed")
    assert other.serve(text, 1).hit == 0
    one, two = Transformer(tiny_v1(), seed=5), Transformer(tiny_v1(), seed=5)
    assert rows.fingerprint(one, "packed") == rows.fingerprint(two, "packed")
    with torch.no_grad():
        two.layers[1].ffn_norm.weight[3] += 1e-3
    assert rows.fingerprint(one, "packed") != rows.fingerprint(two, "packed")
    assert rows.fingerprint(one, "packed") != rows.fingerprint(one, "float64")


def one_step(model):
    """Of training, as optimizers take it."""
    model(torch.tensor([text_of(9)])).sum().backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(weight.grad, alpha=-0.1)


@pytest.mark.parametrize(
    "change",
    [
        one_step,
        lambda model: model.load_state_dict(Transformer(tiny_v1(), seed=6).state_dict()),
        lambda model: model.double(),
    ],
)
def test_weights_that_changed_meanwhile_are_noticed(tmp_path, change):
    """Else rows of the old weights would be read with the new ones, and called exact."""
    model, text = Transformer(tiny_v1(), seed=5), text_of(20)
    engine = Engine(model, tmp_path, BIG, block=6)
    engine.serve(text, 2)
    model.train().requires_grad_(True)  # changes nothing
    assert engine.serve(text, 2).hit == 18
    change(model)
    with pytest.raises(ValueError, match="weights .* have changed .* make a new one"):
        engine.serve(text, 2)
    engine.close()
    assert Engine(model, tmp_path, BIG, block=6).serve(text, 1).hit == 0


def test_windows_live_as_long_as_they_are_used(tmp_path):
    now = [0.0]
    engine = engine_of(tiny_v4_1, tmp_path, ttl=10, clock=lambda: now[0])
    text = text_of(40)
    engine.serve(text, 1)
    for now[0], replayed in ((9, 0), (18, 0), (28, WINDOW), (37.9, 0)):
        assert engine.serve(text, 1).replayed == replayed
    small = engine_of(tiny_v4_1, tmp_path / "small", window_budget=100)
    small.serve(text, 1)
    assert small.serve(text, 1).replayed == WINDOW and small.windows.lru.used == 0


def test_windows_that_were_found_and_not_used_grow_old(tmp_path):
    now = [0.0]
    engine = engine_of(tiny_v4_1, tmp_path, ttl=10, clock=lambda: now[0])
    text, early = text_of(61), engine.names(text_of(61)[:12])[-1]
    engine.serve(text, 1)
    now[0] = 6.0
    engine.serve(text[:13], 1)
    now[0] = 11.0
    assert engine.serve(text, 1).replayed == WINDOW  # from 12 it would be further
    now[0] = 15.9
    assert early in engine.windows
    now[0] = 16.0
    assert early not in engine.windows


@pytest.mark.parametrize("later", [-1e9, -0.001, float("nan")])
def test_windows_of_an_age_that_cannot_be_are_let_go(later):
    now = [0.0]
    held = windows.Windows(BIG, 10, lambda: now[0])
    held.put("n", windows.Near(1, (), (), None, 9))
    assert held.get("n") is not None
    now[0] = later
    assert held.get("n") is None and held.lru.used == 0


def test_windows_count_every_byte():
    model = model_of(tiny_v4_1)
    memory = model.new_cache(1, 30, "float64")
    model.prefill(torch.tensor([text_of(24)]), memory, last=False)
    near, carried = windows.take(memory), memory.pending.stream
    rings = sum(b.nbytes for c in memory.layers for b in c.window.buffers.values())
    opened = sum(c.open.nbytes for c in memory.layers if c.open is not None)
    waits = memory.pending.tokens_BT.nbytes + sum(x.nbytes for x in carried)
    assert near.nbytes == rings + opened + waits
    with pytest.raises(ValueError, match="after 24 tokens; the cache has 0"):
        windows.give(model.new_cache(1, 30, "float64"), near)


def test_the_bill(tmp_path):
    engine, text = engine_of(tiny_v3_2, tmp_path), text_of(40)
    engine.serve(text, 3)
    served = engine.serve(text, 3)
    bill = served.bill(hit_price=1, miss_price=10, output_price=100)
    assert (served.hit, served.miss) == (36, 4)
    assert bill.total == pytest.approx((36 * 1 + 4 * 10 + 3 * 100) / 1e6)
    with pytest.raises(TypeError):
        served.bill(hit_price=1, output_price=100)
    with pytest.raises(ValueError, match="miss_price is not known"):
        served.bill(hit_price=1, miss_price=None, output_price=100)


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v4_1])
@pytest.mark.parametrize("count", [80, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_requests_and_nothing_leaks(tmp_path, preset, count):
    now, budget = [0.0], 40_000
    engine = engine_of(
        preset, tmp_path, budget, window_budget=60_000, ttl=7, clock=lambda: now[0], block=8
    )
    draw = torch.Generator().manual_seed(0)
    hits, alive = 0, []
    for i in range(count):
        now[0] += float(torch.rand((), generator=draw))
        which, length = (int(x) for x in torch.randint(1, 33, (2,), generator=draw))
        got = engine.serve(text_of(length, which % 9), 1)
        hits += got.hit > 0
        assert engine.store.lru.used <= budget and engine.windows.lru.used <= 60_000
        assert len(engine.windows._held) == len(engine.windows.lru)
        if i + 1 in (count // 2, count):
            gc.collect()
            stores = (o.untyped_storage() for o in gc.get_objects() if type(o) is torch.Tensor)
            alive.append(sum({s.data_ptr(): s.nbytes() for s in stores}.values()))
            alive[-1] -= engine.windows.lru.used
    files = list(tmp_path.glob("*.rows"))
    assert len(files) == len(engine.store.lru) and not list(tmp_path.glob("*.half"))
    assert sum(f.stat().st_size for f in files) == engine.store.lru.used
    assert count // 20 < hits < count
    # Windows come and go, and are counted to the byte. Beyond them no more stays than an answer.
    assert abs(alive[1] - alive[0]) < 20_000, alive


def test_refusals(tmp_path):
    engine = engine_of(tiny_v1, tmp_path)
    for prompt, new, message in (
        ([], 1, "nothing to read"),
        ([3, 256], 1, "vocabulary"),
        ([3], 0, "new is 0"),
        ([3], True, "new is True"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.serve(prompt, new)
    assert len(engine.store.lru) == 0
    with pytest.raises(ValueError, match="ttl is -1"):
        engine_of(tiny_v1, tmp_path, ttl=-1)
    memory = engine.model.new_cache(1, 9, "float64")
    with pytest.raises(ValueError, match="0 to 3 are asked for; 0 are cached"):
        rows.piece(memory, 0, 3)


def test_a_model_whose_state_no_replay_brings_back_is_refused(tmp_path):
    from dataclasses import replace

    config = tiny_v1()
    first = replace(config.layers[0].attention, window=9)
    mixed = (replace(config.layers[0], attention=first), *config.layers[1:])
    with pytest.raises(ValueError, match="nothing brings that back"):
        Engine(Transformer(config.with_(layers=mixed)), tmp_path, BIG)
