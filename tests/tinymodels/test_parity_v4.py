"""Promise 5 for V4: the same weights in transformers' DeepseekV4 give the same logits.

Fair settings as for the others (`deepseek_pairs.py`): eager, float64 throughout, ties of a top-k
to the lowest index. Configurations come through `config_from`, as those of released files do.
"""

from contextlib import contextmanager
from functools import cache

import pytest
import torch

from tinymodels import convert, residual
from tinymodels.attention import csa
from tinymodels.parts import Parts
from tinymodels.transformer import Transformer

from .deepseek_pairs import stable_topk
from .fp64_reference import float64_throughout

transformers = pytest.importorskip("transformers", reason="transformers is a test extra")

from transformers import modeling_rope_utils  # noqa: E402
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SWA, CSA, HCA = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
YARN = dict(
    rope_type="yarn", factor=5.0, original_max_position_embeddings=11, beta_fast=7.0, beta_slow=0.5
)
# Sizes that differ wherever two could be mixed up. The first follows V4-Flash, the second V4-Pro.
FLASH = dict(
    vocab_size=97,
    hidden_size=60,
    moe_intermediate_size=13,
    num_hidden_layers=5,
    num_attention_heads=6,
    head_dim=22,
    q_lora_rank=21,
    num_experts_per_tok=3,
    n_routed_experts=11,
    routed_scaling_factor=1.5,
    layer_types=[SWA, SWA, CSA, HCA, CSA],
    compress_rates={CSA: 4, HCA: 9},
    mlp_layer_types=["hash_moe"] * 3 + ["moe"] * 2,
    hc_mult=3,
    swiglu_limit=10.0,
    sliding_window=7,
    o_groups=2,
    o_lora_rank=14,
    index_n_heads=35,
    index_head_dim=10,
    index_topk=3,
    qk_rope_head_dim=6,
    initializer_range=0.3,
    max_position_embeddings=99,
)
PRO = FLASH | dict(
    hidden_size=45,
    num_attention_heads=9,
    head_dim=18,
    q_lora_rank=26,
    layer_types=[HCA, HCA, CSA, HCA, CSA],
    compress_rates={CSA: 3, HCA: 11},
    hc_mult=5,
    hc_sinkhorn_iters=7,
    sliding_window=5,
    o_groups=3,
    o_lora_rank=17,
    index_head_dim=16,
    index_topk=5,
    rope_parameters=YARN,
)
CLAMPED = FLASH | dict(
    num_hidden_layers=3,
    layer_types=[CSA, HCA, SWA],
    mlp_layer_types=["moe"] * 3,
    swiglu_limit=0.4,
    sliding_window=13,
    compress_rates={CSA: 5, HCA: 7},
    index_n_heads=3,
    index_topk=2,
    rms_norm_eps=1e-3,
    hc_eps=1e-2,
)
CASES = {"as Flash": FLASH, "as Pro, YaRN": PRO, "clamped, few index heads": CLAMPED}
by_case = pytest.mark.parametrize("case", CASES)


@contextmanager
def fair():
    before = torch.Tensor.topk, torch.topk
    torch.Tensor.topk = torch.topk = stable_topk
    try:
        with float64_throughout(v4, modeling_rope_utils):
            yield
    finally:
        torch.Tensor.topk, torch.topk = before


def theirs_of(case, dtype, seed):
    config = v4.DeepseekV4Config(
        **CASES[case], attn_implementation="eager", experts_implementation="eager"
    )
    torch.manual_seed(seed)
    if dtype is torch.float64:  # frequencies made in float64 from the start
        with fair():
            model = v4.DeepseekV4ForCausalLM(config).to(dtype).eval()
    else:
        model = v4.DeepseekV4ForCausalLM(config).to(dtype).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("tid2eid"):
                value.copy_(torch.randint(config.n_routed_experts, value.shape, generator=draw))
            elif value.dim() == 1 or "position_bias" in name:  # ones and zeros hide omissions
                value.add_(torch.randn(value.shape, generator=draw) * 0.3)
    return model.requires_grad_(False)


@cache
def pair(case, dtype=torch.float64, seed=0):
    theirs = theirs_of(case, dtype, seed)
    config = convert.config_from(theirs.config.to_dict(), case)
    ours = Transformer(config).to(dtype).requires_grad_(False)
    convert.load(ours, theirs.state_dict())
    return theirs, ours


def prompt(case, length, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(CASES[case]["vocab_size"], (2, length), generator=draw)


def edges(case):
    """Around the window, the groups, and where a choice begins to leave something out."""
    c = CASES[case]
    m, wide = c["compress_rates"][CSA], c["compress_rates"][HCA]
    return [1, m - 1, m, c["sliding_window"] + 1, 2 * wide - 1, 2 * wide, m * (c["index_topk"] + 3)]


@by_case
@torch.no_grad()
def test_prefill(case):
    theirs, ours = pair(case)
    for length in edges(case):
        tokens = prompt(case, length)
        with fair():
            want = theirs(tokens, use_cache=False).logits
        assert want.std() > 0.3
        torch.testing.assert_close(ours(tokens), want, rtol=0, atol=1e-10)


@by_case
@pytest.mark.parametrize("seed", [1, 2])
@torch.no_grad()
def test_decode_after_a_prompt(case, seed):
    theirs, ours = pair(case, seed=seed)
    tokens = prompt(case, 41, seed)
    memory, past = ours.new_cache(2, 41, "float64"), None
    for part in tokens.split([10, *[1] * 31], dim=1):
        with fair():
            out = theirs(part, cache=past, use_cache=True)
        past = out.cache
        torch.testing.assert_close(ours(part, memory), out.logits, rtol=0, atol=1e-10)


@by_case
@torch.no_grad()
def test_fp32(case):
    """As released, both in float32: within 1e-5 of the largest logit."""
    theirs, ours = pair(case, torch.float32)
    tokens = prompt(case, 13)
    want = theirs(tokens).logits
    scale = want.abs().max()
    torch.testing.assert_close(ours(tokens) / scale, want / scale, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ faults it must see


def clamp_after_silu(patch, ours):
    def wrong(gate, up, limit=None):
        return torch.nn.functional.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)

    for module in ours.modules():
        if isinstance(getattr(module, "parts", None), Parts):
            patch.setattr(module, "parts", Parts(swiglu=wrong))


def comb_transposed(patch, ours):
    right = residual.spread_and_mix

    def wrong(copies, mixes, found):
        return right(copies, mixes._replace(comb_BTNN=mixes.comb_BTNN.transpose(-1, -2)), found)

    patch.setattr(residual, "spread_and_mix", wrong)


def query_norm_left_out(patch, ours):
    for layer in ours.layers:
        patch.setattr(layer.attention, "query_heads_normed", False)


def groups_do_not_overlap(patch, ours):
    right = csa.overlapping

    def wrong(x, count, ratio, after_another, missing):
        rows = right(x, count, ratio, after_another, missing).clone()
        rows[:, :, :ratio] = missing
        return rows

    patch.setattr(csa, "overlapping", wrong)


def first_group_pools_zeros(patch, ours):
    right = csa.overlapping
    patch.setattr(csa, "overlapping", lambda *args: right(*args).nan_to_num(neginf=0.0))


def sink_left_out(patch, ours):
    for layer in ours.layers:
        patch.setattr(layer.attention.sink, "data", torch.full_like(layer.attention.sink, -1e9))


FAULTS = [
    clamp_after_silu, comb_transposed, query_norm_left_out, groups_do_not_overlap,
    first_group_pools_zeros, sink_left_out,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@torch.no_grad()
def test_faults_are_seen(fault, monkeypatch):
    case = "clamped, few index heads"
    theirs, ours = pair(case)
    tokens = prompt(case, 33)
    with fair():
        want = theirs(tokens, use_cache=False).logits
    assert (ours(tokens) - want).abs().max() < 1e-10
    fault(monkeypatch, ours)
    assert (ours(tokens) - want).abs().max() > 1e-3
