"""Somebody's own absorption inside transformers' DeepSeek models: the same weights, other sums.

Their attention makes keys and values of all heads and reads those. While `absorbing` is open it
does not: the latent and the rope key are handed to a function with the signature of
`Parts.absorb`, whoever wrote it. Logits must stay what they were.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module

import torch
from torch import Tensor, nn

from .attention.mla import in_order


def _attentions(model: nn.Module) -> list[nn.Module]:
    found = [module for module in model.modules() if hasattr(module, "kv_a_proj_with_mqa")]
    if not found:
        raise ValueError(f"{type(model).__name__} has no latent attention to absorb in")
    return found


def _forward(self, absorb: Callable, hidden_states: Tensor, position_embeddings, **rest):
    """transformers' own steps up to the cache, then `absorb`. [B, T, X] -> ([B, T, X], None)."""
    new = hidden_states.shape[1]
    if self.q_lora_rank is None:
        query = self.q_proj(hidden_states)
    else:
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
    nope = self.qk_nope_head_dim
    query_BHTD = query.unflatten(-1, (-1, nope + self.qk_rope_head_dim)).transpose(1, 2)
    nope_BHTD, rope_BHTR = query_BHTD.split([nope, self.qk_rope_head_dim], dim=-1)
    latent, key = self.kv_a_proj_with_mqa(hidden_states).split(
        [self.kv_lora_rank, self.qk_rope_head_dim], dim=-1
    )
    latent_B1SC, key_B1SR = self.kv_a_layernorm(latent)[:, None], key[:, None]
    theirs = import_module(type(self).__module__)
    turn = theirs.apply_rotary_pos_emb_interleave
    if not getattr(self.config, "rope_interleave", True):
        turn = theirs.apply_rotary_pos_emb
    rope_BHTR, key_B1SR = turn(rope_BHTR, key_B1SR, *position_embeddings)
    cache = rest.get("cache", rest.get("past_key_values"))
    if cache is not None:  # what is kept is the two small rows, as ever
        latent_B1SC, key_B1SR = cache.update(latent_B1SC, key_B1SR, self.layer_idx)
    up_HDC = self.kv_b_proj.weight.unflatten(0, (-1, nope + self.v_head_dim))
    up_k_HDC, up_v_HDC = up_HDC.split([nope, self.v_head_dim], dim=1)
    out_BTHD = absorb(
        nope_BHTD.transpose(1, 2), rope_BHTR.transpose(1, 2), latent_B1SC[:, 0], key_B1SR[:, 0],
        up_k_HDC, up_v_HDC, self.scaling, in_order(new, latent_B1SC.shape[2], hidden_states.device),
    )  # fmt: skip
    return self.o_proj(out_BTHD.flatten(-2)), None


@contextmanager
def absorbing(model: nn.Module, absorb: Callable) -> Iterator[nn.Module]:
    """While open, every attention of transformers' DeepSeek V3 `model` reads through `absorb`.

    For texts without padding: order alone says what is visible. Errors: ValueError for a model
    without latent attention.
    """
    layers = _attentions(model)
    for layer in layers:
        layer.forward = partial(_forward, layer, absorb)
    try:
        yield model
    finally:
        for layer in layers:
            del layer.forward


def tiny_v3(seed: int = 0) -> nn.Module:
    """transformers' own V3 with random weights: three layers, five heads, a latent of 18."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    torch.manual_seed(seed)
    config = DeepseekV3Config(
        vocab_size=97, hidden_size=60, intermediate_size=37, moe_intermediate_size=13,
        num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=5, q_lora_rank=21,
        kv_lora_rank=18, qk_nope_head_dim=14, qk_rope_head_dim=6, v_head_dim=11,
        n_routed_experts=15, n_shared_experts=1, num_experts_per_tok=3, n_group=5, topk_group=2,
        first_k_dense_replace=1, max_position_embeddings=99, initializer_range=0.3,
        attn_implementation="eager", experts_implementation="eager",
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config).eval().requires_grad_(False)
