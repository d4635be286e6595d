"""The roofline: bytes and operations by hand, and no more than what is held can be read."""

from pathlib import Path

import pytest

from kernels import decode_attention
from tinymodels import ledger, roofline
from tinymodels.config import GQA, Dense, Layer, ModelConfig, NoAttention, Recurrent
from tinymodels.families import load
from tinymodels.published import PUBLISHED
from tinymodels.released import RELEASED
from tinymodels.roofline import SPEEDS, Weights, cache_read, decode, look_flops, weights_of

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = {
    "Llama 3.1 8B": "llama-3.1-8b",
    "Qwen2 7B": "qwen2-7b",
    "Mistral 7B v0.1": "mistral-7b-v0.1",
    "Gemma 3 27B": "gemma-3-27b",
    "gpt-oss 20B": "gpt-oss-20b",
    "Gemma 4 E2B": "gemma-4-e2b",
    "Qwen3-Next 80B": "qwen3-next-80b-a3b",
    "Jamba 1.5 Mini": "jamba-1.5-mini",
}


def model(*attentions):
    layers = tuple(Layer(a, Dense(30)) for a in attentions)
    return ModelConfig("m", vocab=50, width=24, layers=layers, context=999)


@pytest.mark.parametrize("name", RELEASED)
def test_released_models_are_read_as_their_files_are(name):
    ours, file = RELEASED[name].config(name), load(CONFIGS / f"{FILES[name]}.json")
    assert ours.layers == file.layers
    for tokens in (1, 777, 200_000):
        assert ledger.exact(ours, tokens) == ledger.exact(file, tokens)


def test_windows_sharing_and_states_by_hand():
    """Rows of 2 x kv heads x dim x 2 bytes; a shared layer's rows are read twice, kept once."""
    config = model(
        GQA(6, 3, 10),
        GQA(6, 2, 10, window=13),
        GQA(6, 3, 10, kv_source=0),
        GQA(6, 2, 10, window=13, kv_source=1),
        Recurrent("linear", state=70, conv=5),
        NoAttention(),
    )
    for n, near in ((9, 9), (400, 13)):
        assert cache_read(config, n) == 2 * n * 120 + 2 * near * 80 + 2 * 75
        assert look_flops(config, n) == 4 * 6 * 10 * (2 * n + 2 * near)
        held = ledger.exact(config, n)["total"]
        assert held == n * 120 + near * 80 + 2 * 75


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_read_of_the_published_models(name):
    """All of it where every entry is read; less where entries are chosen; V4.1 shares rows, so
    several layers read the same ones."""
    n = 131_072
    read, held = cache_read(name, n), ledger.exact(name, n)["total"]
    if name in ("deepseek-67b", "deepseek-v2", "deepseek-v2-lite", "deepseek-v3"):
        assert read == held
    else:
        assert read < held / 3


def test_v3_2_by_hand():
    """61 layers: 2,048 chosen rows of 656 bytes, and every index key of 132."""
    n = 50_000
    assert cache_read("deepseek-v3.2", n) == 61 * (2048 * 656 + n * 132)
    assert cache_read("deepseek-v3.2", 1000) == 61 * 1000 * (656 + 132)


def test_the_kernel_reads_and_computes_as_much():
    """One layer of V1: the kernel's own count, less the query and the partial results."""
    config, n = PUBLISHED["deepseek-67b"].config, 4096
    counted = decode_attention.traffic(entries=n, heads=64, kv_heads=8, head_dim=128)
    assert look_flops(config, n) == 95 * counted["flops"]
    assert cache_read(config, n) / 95 == pytest.approx(counted["bytes_read"], rel=0.01)


def test_experts_are_met_one_by_one():
    w = Weights(total=1000, active=300, experts=10, top_k=2)
    assert w.met(1) == 300 and w.met(10_000) == pytest.approx(1000)
    routed = 700 / (1 - 0.2)  # 875: a fifth of them and 125 others make 300
    assert w.met(2) == pytest.approx(125 + routed * (1 - 0.8**2))
    dense = Weights(500, 500)
    assert dense.met(1) == dense.met(64) == 500
    with pytest.raises(ValueError, match="batch is 0"):
        w.met(0)


@pytest.mark.parametrize("name", PUBLISHED)
def test_one_token_meets_the_active_parameters(name):
    w = weights_of(name)
    assert w.met(1) == pytest.approx(ledger.active(name) if w.experts > 1 else w.total)
    assert w.total == ledger.parameters(name)


def test_a_step_by_hand():
    speed, n, batch = SPEEDS["H100"], 4096, 16
    step = decode("deepseek-67b", n, batch, "H100", cards=8)
    weights = ledger.parameters("deepseek-67b")
    assert step.weight_reading == pytest.approx(2 * weights / (8 * speed.bandwidth))
    assert step.weight_computing == pytest.approx(2 * weights * batch / (8 * speed.flops))
    assert step.cache_reading == pytest.approx(389_120 * n * batch / (8 * speed.bandwidth))
    assert step.seconds == pytest.approx(step.weight_reading + step.cache_reading)
    assert step.tokens_a_second == pytest.approx(batch / step.seconds)
    assert step.bound_by == "reading the weights"
    half = decode("deepseek-67b", n, batch, "H100", cards=8, weight_bits=8, kv_bits=8)
    assert half.weight_reading == pytest.approx(step.weight_reading / 2)
    assert half.cache_reading == pytest.approx(step.cache_reading / 2)
    assert decode("deepseek-67b", n, 1000, "H100").bound_by == "reading the caches"


def test_an_unknown_card_is_named():
    with pytest.raises(ValueError, match="'H7'"):
        decode("deepseek-v3", 100, 1, "H7")


def test_every_speed_has_a_card():
    assert set(SPEEDS) <= set(ledger.GPUS)
    assert SPEEDS["H100"].ridge == pytest.approx(295.2, abs=0.1)
    assert roofline.STATE_BYTES == 2
