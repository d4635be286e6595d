"""V4.1 against a second, slow reading of its description (`v41_by_loops.py`).

Released numbers exist for one configuration. Here a judge that shares no code with the subject
reads others: chosen ones whose settings bind, and ones that hypothesis makes up.
"""

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from safetensors.torch import load_file

from tinymodels import ced, convert
from tinymodels.attention import indexer
from tinymodels.transformer import Transformer

from .test_v41_configurations import CASES, GOLDEN, model_of, released
from .v41_by_loops import blocks_kept, logits

LENGTH = 25


def by_loops(c, weights, tokens, decoder_from=0):
    numbers = {name: w.double().numpy() for name, w in weights.items()}
    each = [logits(c, numbers, row.tolist(), decoder_from).values() for row in tokens]
    return torch.tensor(np.array([list(row) for row in each]))


def agree(got, want):
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


def test_the_judge_gives_the_released_numbers():
    folder = Path(__file__).parents[1] / "golden"
    tensors, weights = (
        load_file(folder / f"v41_a_{part}.safetensors") for part in ("nq", "weights")
    )
    got = by_loops(GOLDEN, weights, tensors["token_ids"])
    agree(got, tensors["logits_prefill_f64"])


@pytest.mark.parametrize("case", CASES)
def test_the_judge_agrees(case):
    """In one pass, in chunks, and where the decoder runs for the last tokens only."""
    c, model, tokens = model_of(case)
    tokens = tokens[:, :LENGTH]
    want = by_loops(c, released(c), tokens)
    agree(model(tokens), want)
    memory = model.new_cache(2, LENGTH, "float64")
    parts = tokens.split([1, 6, 2, 9, 1, 6], dim=1)
    agree(torch.cat([model(part, memory) for part in parts], dim=1), want)
    replayed = model.prefill(tokens, model.new_cache(2, LENGTH, "float64"))
    want = by_loops(c, released(c), tokens, LENGTH - c["window_size"])
    agree(replayed, want[:, -1])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("hit", [4, 12, 20])
def test_the_judge_agrees_after_a_prefix_hit(case, hit):
    """Far rows come from a whole pass, windows from one that runs the last W tokens again."""
    c, model, tokens = model_of(case)
    tokens, reach, weights = tokens[:, :LENGTH], c["window_size"], released(c)
    stored, memory = (model.new_cache(2, LENGTH, "float64") for _ in range(2))
    model.prefill(tokens[:, :hit], stored)
    memory.adopt(stored, hit)
    ced.resume(model, tokens[:, :hit], memory)
    model.prefill(tokens[:, hit : hit + 3], memory, last=False)
    got = model.prefill(tokens[:, hit + 3 :], memory)
    numbers = {name: w.double().numpy() for name, w in weights.items()}
    for row, mine in zip(tokens.tolist(), got, strict=True):
        made = {}
        logits(c, numbers, row[:hit], made=made)
        want = logits(c, numbers, row, LENGTH - reach, max(0, hit - reach), made)
        agree(mine, torch.tensor(want[LENGTH - 1]))


def test_candidate_blocks_and_choices_bind():
    """Else the agreement above would not be about them."""
    c, model, tokens = model_of("window 5, blocks of 3")
    want = model(tokens)
    for setting in ("candidate_topk_blocks", "index_topk", "window_size"):
        other = c | {setting: c[setting] + 1}
        with_it = by_loops(other, released(c), tokens[:, :LENGTH])
        assert (with_it - want[:, :LENGTH]).abs().max() > 1e-3, setting


def test_blocks_on_paper():
    falling = [float(-i) for i in range(17)]
    assert blocks_kept(falling, 8, 1) == {16}
    assert blocks_kept(falling[:16], 8, 1) == set(range(8, 16))
    assert blocks_kept([], 8, 1) == set()


# ------------------------------------------------------------------ made-up models


@st.composite
def descriptions(draw):
    """A decoder, before it up to one group of layers that pools, before that windows alone."""
    pick = lambda *of: draw(st.sampled_from(of))  # noqa: E731
    windows, pooling, writing = pick(0, 1), pick(0, 1, 2), pick(1, 2, 3)
    half = windows + pooling
    owners = [windows, half] if pooling else [half]
    choosers = {*owners, *range(half, half + pick(1, writing))}
    heads, rope = pick(2, 3, 6), pick(2, 6)
    return GOLDEN | dict(
        n_layers=half + writing,
        compress_ratios=[0] * windows + [pick(2, 3)] * pooling + [pick(1, 1, 2)] * writing,
        kv_source_layers=owners, index_source_layers=sorted(choosers),
        candidate_source_layer=half, candidate_block_size=pick(1, 3, 4),
        candidate_topk_blocks=pick(1, 2, 20), index_topk=pick(1, 3, 50),
        index_n_heads=pick(1, 5), index_head_dim=rope + pick(0, 5),
        dim=pick(7, 13), n_heads=heads, o_groups=pick(1, heads), o_lora_rank=3, q_lora_rank=5,
        head_dim=rope + pick(0, 3), rope_head_dim=rope, window_size=pick(1, 2, 5, 40),
        n_routed_experts=7, n_activated_experts=pick(1, 3), moe_inter_dim=5, vocab_size=19,
        swiglu_limit=pick(0.0, 0.3), route_scale=pick(1.0, 1.5), norm_eps=pick(1e-20, 1e-2),
        hc_mult=pick(1, 3, 5), hc_sinkhorn_iters=pick(1, 2, 20), hc_eps=pick(1e-6, 1e-2),
        original_seq_len=pick(0, 8), rope_factor=4.0, beta_fast=pick(2, 8), beta_slow=1,
    )  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    c=descriptions(),
    length=st.integers(1, 21),
    cuts=st.sets(st.integers(1, 20)),
    block=st.sampled_from([1, 90, 2**18]),  # scores at a time: one query, a few, all
    heads_say=st.sampled_from([0, -1, 1]),  # all scores equal; none above 0, so ties at 0
    seed=st.integers(0, 9),
)
def test_made_up_models(c, length, cuts, block, heads_say, seed):
    weights = released(c, seed)
    for name in weights:
        if name.endswith("weights_proj.weight") and heads_say < 1:
            weights[name] = heads_say * weights[name].abs()
    config = convert.config_from(c | {"model_type": "deepseek_v4_1"}).with_(row="fp4")
    model = Transformer(config).double().requires_grad_(False)
    convert.load(model, weights, source="deepseek_v4_1")
    tokens = torch.randint(19, (2, length), generator=torch.Generator().manual_seed(seed))
    want = by_loops(c, weights, tokens)
    ends = sorted({*(cut for cut in cuts if cut < length), length})
    parts = tokens.tensor_split(ends[:-1], dim=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexer, "BLOCK", block)
        agree(model(tokens), want)
        memory = model.new_cache(2, length, "float64")
        agree(torch.cat([model(part, memory) for part in parts], dim=1), want)
        if config.decoder_start is not None:
            memory = model.new_cache(2, length, "float64")
            for part, end in zip(parts, ends, strict=True):
                got = model.prefill(part, memory, last=end == length)
            want = by_loops(c, weights, tokens, max(0, length - c["window_size"]))
            agree(got, want[:, -1])
