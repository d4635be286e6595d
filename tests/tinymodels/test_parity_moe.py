"""Our routers choose and weigh as those of transformers, with the same weights."""

import pytest
import torch

from .moe_cases import V2, V2_LITE, V3, V4, V4_HASH, VOCAB, WIDTH, made

by_seed = pytest.mark.parametrize("seed", [1, 2, 3])


def parity(theirs, config, seed):
    """Same experts, same weights as their router with our weights, in float32."""
    layer, x, ids = made(config, seed, torch.float32)
    ours = layer.router(x, ids)
    theirs.weight.data = layer.router.gate.weight.data.clone()
    if config.selection_bias:
        theirs.e_score_correction_bias = layer.router.bias.clone()
    if config.hash_routed:
        theirs.tid2eid = layer.router.table.clone()
        _, weights, experts = theirs(x, ids)
    else:
        _, weights, experts = theirs(x)
    experts, order = experts.view(3, 11, -1).sort(-1)
    weights = weights.view(3, 11, -1).gather(-1, order)
    our_experts, order = ours.experts_BTk.sort(-1)
    assert torch.equal(our_experts, experts)
    assert torch.allclose(ours.weights_BTk.gather(-1, order), weights, rtol=1e-5, atol=0)


@by_seed
@pytest.mark.parametrize("config", [V2, V2_LITE], ids=["V2", "V2-Lite"])
def test_router_of_transformers_v2(config, seed):
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2

    theirs = v2.DeepseekV2TopkRouter(
        v2.DeepseekV2Config(
            hidden_size=WIDTH,
            num_attention_heads=5,
            n_routed_experts=config.experts,
            num_experts_per_tok=config.top_k,
            routed_scaling_factor=config.scale,
            topk_method="greedy" if config.groups == 1 else "group_limited_greedy",
            n_group=config.groups,
            topk_group=config.top_groups,
        )
    )
    parity(theirs, config, seed)


@by_seed
def test_router_of_transformers_v3(seed):
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    theirs = v3.DeepseekV3TopkRouter(
        v3.DeepseekV3Config(
            hidden_size=WIDTH,
            n_routed_experts=V3.experts,
            num_experts_per_tok=V3.top_k,
            routed_scaling_factor=V3.scale,
            n_group=V3.groups,
            topk_group=V3.top_groups,
            norm_topk_prob=True,
        )
    )
    parity(theirs, V3, seed)


@by_seed
@pytest.mark.parametrize("config", [V4, V4_HASH], ids=["bias", "hash"])
def test_routers_of_transformers_v4(config, seed):
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

    theirs = v4.DeepseekV4HashRouter if config.hash_routed else v4.DeepseekV4TopKRouter
    their_config = v4.DeepseekV4Config(
        hidden_size=WIDTH,
        vocab_size=VOCAB,
        n_routed_experts=config.experts,
        num_experts_per_tok=config.top_k,
        routed_scaling_factor=config.scale,
        scoring_func="sqrtsoftplus",
    )
    parity(theirs(their_config), config, seed)
