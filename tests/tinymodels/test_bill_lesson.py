"""What chapter 05 says in words, held against what it computes."""

import pytest

from tinymodels import ledger, paging, roofline
from tinymodels.released import RELEASED

K = 1024
ROWS = 16_384
SEEDS = (0, 1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_hold_about_four_times_as_many_as_a_reserve(seed):
    """The lesson shows seed 0; other traces of the same kind say the same."""
    requests = paging.trace(1500, seed=seed)
    reserve, known, pages = (
        paging.serve(memory, requests, steps=800)
        for memory in (
            paging.Contiguous(ROWS, lambda r: 2048),
            paging.Contiguous(ROWS, lambda r: r.total),
            paging.Pages(ROWS, 16),
        )
    )
    assert 0.15 < reserve.filled < 0.3
    assert pages.filled > 0.94 and pages.inside < 0.025
    assert pages.requests > 3.5 * reserve.requests
    assert pages.requests > 1.4 * known.requests
    assert 0 < pages.sent_back < 800 / 3


def test_weights_decide_whether_and_caches_how_many():
    def fits(name, card, context, size):
        return ledger.room(name, card, context, size * ledger.parameters(name), cards=8).sequences

    assert fits("deepseek-67b", "H100", 4 * K, 2) == 316
    assert fits("deepseek-v3", "H100", 4 * K, 1) == 0
    v1, v3 = (fits(n, "H200", 4 * K, s) for n, s in (("deepseek-67b", 2), ("deepseek-v3", 1)))
    assert v3 / v1 == pytest.approx(2.5, abs=0.1)
    assert ledger.weight_bytes("deepseek-v3", "fp8") / ledger.weight_bytes("deepseek-67b") > 4.9


def test_sharing_lifts_the_work_done_for_each_byte_of_cache():
    """8 query heads meet each number of V1's cache: 2 x 8 operations for 2 bytes."""
    n = 4 * K
    v1 = roofline.look_flops("deepseek-67b", n) / roofline.cache_read("deepseek-67b", n)
    assert v1 == 8


def test_the_caches_take_over_as_the_batch_grows():
    small, full = (roofline.decode("deepseek-67b", 4 * K, b, "H100", cards=8) for b in (1, 316))
    assert (small.bound_by, full.bound_by) == ("reading the weights", "reading the caches")
    share = 64 * roofline.cache_read("deepseek-67b", 4 * K)
    assert round(100 * share / (share + ledger.weight_bytes("deepseek-67b"))) == 43


def test_bounded_models():
    mistral = RELEASED["Mistral 7B v0.1"].config("m")
    assert ledger.rate(mistral) == 0
    held = {ledger.exact(mistral, n)["total"] for n in (4096, 10**5, 10**6)}
    assert held == {32 * 4096 * 2 * 8 * 128 * 2}
    llama = ledger.rate(RELEASED["Llama 3.1 8B"].config("l"))
    for name in ("Gemma 3 27B", "gpt-oss 20B", "Qwen3-Next 80B", "Jamba 1.5 Mini"):
        assert 0 < ledger.rate(RELEASED[name].config(name)) < llama
