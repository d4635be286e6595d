"""V4.1 in other shapes, read from the released description and the released tensor names.

YaRN, clamped SwiGLU, a window of 5, candidate blocks of 3, a batch of 2, other ratios and owners:
nothing is refused or missized, and one pass is any chunking.
"""

import json
from pathlib import Path

import pytest
import torch

from tinymodels import convert
from tinymodels.transformer import Transformer

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "v41_a_nq.json").read_text())["config"]
LENGTH = 47
CASES = {
    "YaRN": dict(original_seq_len=16, rope_factor=4.0, beta_fast=8, beta_slow=1),
    "clamps": dict(swiglu_limit=0.6),
    "window 5, blocks of 3": dict(window_size=5, candidate_block_size=3, candidate_topk_blocks=2),
    "all at once": dict(
        original_seq_len=12, rope_factor=6.0, swiglu_limit=0.4, window_size=5,
        candidate_block_size=3, candidate_topk_blocks=4, dim=42, n_heads=9, o_groups=3,
        o_lora_rank=11, q_lora_rank=26, head_dim=48, rope_head_dim=12, moe_inter_dim=22,
        n_routed_experts=7, n_activated_experts=3, index_n_heads=5, index_head_dim=24,
        index_topk=5, vocab_size=83, hc_mult=3, hc_sinkhorn_iters=7, n_shared_experts=1,
    ),
    "owners elsewhere": dict(
        n_layers=6, compress_ratios=[0, 0, 2, 2, 1, 1], kv_source_layers=[2, 4],
        index_source_layers=[2, 4, 5], candidate_source_layer=4,
    ),
}  # fmt: skip


def released(c, seed=0):
    """Random tensors by their released names and shapes, [out, in]."""
    dim, heads, wide = c["dim"], c["n_heads"], c["head_dim"]
    shapes = {"embed.weight": (c["vocab_size"], dim), "norm.weight": (dim,)}
    shapes["head.weight"] = shapes["embed.weight"]
    copies = c["hc_mult"]
    rows = (2 + copies) * copies
    for i in range(c["n_layers"]):
        own = {
            "attn.attn_sink": (heads,),
            "attn.wq_a.weight": (c["q_lora_rank"], dim),
            "attn.q_norm.weight": (c["q_lora_rank"],),
            "attn.wq_b.weight": (heads * wide, c["q_lora_rank"]),
            "attn.wkv.weight": (wide, dim),
            "attn.kv_norm.weight": (wide,),
            "attn.wo_a.weight": (c["o_groups"] * c["o_lora_rank"], heads * wide // c["o_groups"]),
            "attn.wo_b.weight": (dim, c["o_groups"] * c["o_lora_rank"]),
            "attn_norm.weight": (dim,),
            "ffn_norm.weight": (dim,),
            "ffn.gate.weight": (c["n_routed_experts"], dim),
            "ffn.gate.bias": (c["n_routed_experts"],),
        }
        for part in ("attn", "ffn"):
            own |= {f"hc_{part}_fn": (rows, copies * dim), f"hc_{part}_base": (rows,)}
            own[f"hc_{part}_scale"] = (3,)
        experts = [f"experts.{e}" for e in range(c["n_routed_experts"])]
        for expert in (*experts, "shared_experts"):
            own |= {f"ffn.{expert}.{w}.weight": (c["moe_inter_dim"], dim) for w in ("w1", "w3")}
            own[f"ffn.{expert}.w2.weight"] = (dim, c["moe_inter_dim"])
        if i in c["kv_source_layers"]:
            own |= {
                "attn.compressor.wkv.weight": (wide, dim),
                "attn.compressor.norm.weight": (wide,),
                "attn.indexer.wk.weight": (c["index_head_dim"], wide),
                "attn.indexer.k_norm.weight": (c["index_head_dim"],),
            }
            if c["compress_ratios"][i] > 1:
                own["attn.compressor.wgate.weight"] = (wide, dim)
        if i in c["index_source_layers"]:
            queries = c["index_n_heads"] * c["index_head_dim"]
            own["attn.indexer.wq_b.weight"] = (queries, c["q_lora_rank"])
            own["attn.indexer.weights_proj.weight"] = (c["index_n_heads"], dim)
        shapes |= {f"layers.{i}.{name}": shape for name, shape in own.items()}
    draw = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=draw) * (0.4 if len(shape) > 1 else 0.3)
        + ("norm" in name)
        for name, shape in shapes.items()
    }


def model_of(case):
    c = GOLDEN | CASES[case]
    config = convert.config_from(c | {"model_type": "deepseek_v4_1"}).with_(row="fp4")
    model = Transformer(config).double().requires_grad_(False)
    convert.load(model, released(c), source="deepseek_v4_1")
    draw = torch.Generator().manual_seed(1)
    return c, model, torch.randint(c["vocab_size"], (2, LENGTH), generator=draw)


@pytest.mark.parametrize("case", CASES)
def test_it_loads_and_one_pass_is_any_chunking(case):
    _, model, tokens = model_of(case)
    want = model(tokens)
    assert want.isfinite().all() and want.std() > 0.1
    for sizes in ([23] + [1] * 24, [1, 6, 2, 9, 5, 17, 7]):
        memory = model.new_cache(2, LENGTH, "float64")
        got = torch.cat([model(part, memory) for part in tokens.split(sizes, dim=1)], dim=1)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    packed = model.new_cache(2, LENGTH)
    assert model.prefill(tokens, packed).isfinite().all()


@pytest.mark.parametrize("case", ["YaRN", "clamps", "window 5, blocks of 3"])
def test_each_setting_is_heard(case):
    """The same weights without the setting give other logits."""
    c, model, tokens = model_of(case)
    plain = convert.config_from(GOLDEN | {"model_type": "deepseek_v4_1"})
    other = Transformer(plain).double().requires_grad_(False)
    convert.load(other, released(c), source="deepseek_v4_1")
    assert (model(tokens) - other(tokens)).abs().max() > 1e-3
