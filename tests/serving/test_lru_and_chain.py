"""Names of pieces, what of a prompt is usable, and who has to go."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.presets import tiny_v1, tiny_v4, tiny_v4_1
from tinymodels.serving.chain import names, step_of, usable
from tinymodels.serving.lru import Lru

texts = st.lists(st.integers(0, 3), max_size=30)


@given(texts, texts, st.integers(1, 7))
def test_equal_names_mean_equal_text_up_to_there(one, other, step):
    pairs = zip(names(one, step, "m"), names(other, step, "m"))
    for i, (a, b) in enumerate(pairs):
        end = (i + 1) * step
        assert (a == b) == (one[:end] == other[:end])
    assert len(names(one, step, "m")) == len(one) // step
    assert not set(names(one, step, "m")) & set(names(one, step, "another model"))


def test_digits_do_not_run_together():
    assert names([1, 23], 2, "m") != names([12, 3], 2, "m")


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 50))
def test_usable_is_the_longest_that_is_allowed(prompt, same, step):
    got = usable(prompt, same, step)
    allowed = [n for n in range(0, 401, step) if n <= same and n < prompt]
    assert got == max(allowed, default=0)


@pytest.mark.parametrize(
    ("config", "block", "want"),
    [(tiny_v1(), 7, 7), (tiny_v4(), 12, 48), (tiny_v4_1(), 7, 14), (tiny_v4(), 16, 16)],
)
def test_a_piece_is_a_multiple_of_ratios_and_block(config, block, want):
    assert step_of(config, block) == want == math.lcm(want, block)


@pytest.mark.parametrize("block", [0, -3, True, 2.0])
def test_bad_blocks(block):
    config = ModelConfig("m", 11, 21, uniform(1, GQA(3, 1, 7, rope=Rope(6)), Dense(9)), 99)
    with pytest.raises(ValueError, match="block is"):
        step_of(config, block)


# ------------------------------------------------------------------ LRU

steps = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), max_size=60)


@given(steps, st.integers(0, 25))
def test_the_budget_is_never_exceeded_and_the_oldest_goes(operations, budget):
    lru, mirror = Lru(budget), []  # [name, size], oldest first
    for number, size in operations:
        name = str(number)
        if name in lru:
            lru.touch([name])
            mirror.append(mirror.pop([n for n, _ in mirror].index(name)))
        else:
            leaving = lru.room(size)
            if size > budget:
                assert leaving is None
                continue
            while sum(s for _, s in mirror) + size > budget:
                assert leaving.pop(0) == mirror.pop(0)[0]
                lru.drop(next(iter(lru)))
            assert not leaving
            lru.add(name, size)
            mirror.append((name, size))
        assert list(lru) == [n for n, _ in mirror]
        assert lru.used == sum(s for _, s in mirror) <= budget


def test_what_comes_in_never_pushes_out_what_it_depends_on():
    lru = Lru(10)
    for name in "abc":
        lru.add(name, 3)
    assert lru.room(4, keep="ab") == ["c"]
    assert lru.room(5, keep="ab") is None
    assert lru.room(0) == []


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), max_size=25), st.integers(1, 9)
)
def test_no_piece_outlives_the_one_before_it(requests, budget):
    """Chains are prefixes of texts of 0 and 1; whoever is held has all before it held, too."""
    lru = Lru(budget)
    for text in requests:
        chain = ["".join(map(str, text[: i + 1])) for i in range(len(text))]
        held = lru.held(chain)
        lru.touch(chain[:held])
        for i in range(held, len(chain)):
            leaving = lru.room(1, keep=chain[:i])
            if leaving is None:
                break
            for old in leaving:
                lru.drop(old)
            lru.add(chain[i], 1)
        lru.touch(chain[: lru.held(chain)])
        for name in lru:
            assert all(name[:i] in lru for i in range(1, len(name)))


def test_refusals():
    lru = Lru(5)
    lru.add("a", 3)
    with pytest.raises(ValueError, match="held already"):
        lru.add("a", 1)
    with pytest.raises(ValueError, match="do not fit"):
        lru.add("b", 3)
    for budget in (-1, True, 2.5):
        with pytest.raises(ValueError, match="budget is"):
            Lru(budget)
    assert lru.drop("nobody") == 0 and lru.used == 3
