"""The same random DeepSeek model twice: transformers' and ours, of its configuration's dictionary.

What makes the comparison fair: their attention and experts run eager, their float32 islands are
lifted to float64 (`fp64_reference`), and their indexer's top-k, which leaves the order of equal
scores open, takes the lowest index.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from tinymodels import convert
from tinymodels.transformer import Transformer

from .fp64_reference import float64_throughout

FAMILIES = {"v2": "DeepseekV2", "v3": "DeepseekV3", "v32": "DeepseekV32"}
YARN = dict(
    rope_type="yarn",
    rope_theta=10_000.0,
    factor=5.0,
    original_max_position_embeddings=11,
    beta_fast=7.0,
    beta_slow=0.5,
    mscale=0.7,
    mscale_all_dim=0.7,
)
SHARED = dict(
    intermediate_size=37,
    n_shared_experts=1,
    first_k_dense_replace=1,
    max_position_embeddings=99,
    rms_norm_eps=1e-6,
    initializer_range=0.3,
    rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
    tie_word_embeddings=False,
)
# Sizes that differ wherever two could be mixed up, and are no powers of two.
SMALL = SHARED | dict(
    vocab_size=97,
    hidden_size=60,
    num_hidden_layers=3,
    num_attention_heads=5,
    num_key_value_heads=5,
    q_lora_rank=21,
    kv_lora_rank=18,
    qk_nope_head_dim=14,
    qk_rope_head_dim=6,
    v_head_dim=11,
    moe_intermediate_size=13,
    n_routed_experts=15,
    num_experts_per_tok=3,
    n_group=5,
    topk_group=2,
    routed_scaling_factor=1.7,
)
WIDE = SMALL | dict(
    hidden_size=45,
    num_attention_heads=3,
    num_key_value_heads=3,
    kv_lora_rank=26,
    qk_nope_head_dim=10,
    qk_rope_head_dim=14,
    v_head_dim=19,
    n_routed_experts=14,
    num_experts_per_tok=5,
    n_shared_experts=3,
    n_group=7,
    topk_group=3,
)
V2 = dict(topk_method="group_limited_greedy")
INDEX = dict(index_n_heads=35, index_head_dim=10, index_topk=7)
CASES: dict[str, dict] = {
    "v2 groups": SMALL | V2,
    "v2 greedy, queries without a latent": WIDE | dict(topk_method="greedy", q_lora_rank=None),
    "v2 YaRN": WIDE | V2 | dict(rope_parameters=YARN, max_position_embeddings=55),
    "v3 groups": SMALL,
    "v3 queries without a latent": WIDE | dict(q_lora_rank=None, first_k_dense_replace=2),
    "v3 YaRN": WIDE
    | dict(rope_parameters=YARN, max_position_embeddings=55, routed_scaling_factor=2.5),
    "v3 YaRN turning halves, its two scales apart": WIDE
    | dict(
        rope_parameters=YARN | dict(mscale=1.3), rope_interleave=False, max_position_embeddings=55
    ),
    "v2 YaRN with one scale of two": SMALL
    | V2
    | dict(
        rope_parameters={k: v for k, v in YARN.items() if k != "mscale"},
        max_position_embeddings=55,
    ),
    "v3 weights not normalised": SMALL | dict(norm_topk_prob=False, num_hidden_layers=2),
    "v32 small": SMALL | INDEX,
    "v32 YaRN": WIDE
    | dict(
        INDEX, rope_parameters=YARN, max_position_embeddings=55, index_head_dim=22, index_topk=11
    ),
    "v32 Hadamard": WIDE | dict(INDEX, index_head_dim=16, index_n_heads=33, index_topk=5),
}


@cache
def modules(family: str) -> tuple[ModuleType, ModuleType]:
    name = FAMILIES[family].lower().replace("deepseek", "deepseek_")
    return (
        import_module(f"transformers.models.{name}.modeling_{name}"),
        import_module("transformers.modeling_rope_utils"),
    )


def stable_topk(x, k, dim=-1, largest=True, sorted=True):
    """Top-k in which the lowest index wins."""
    values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


@contextmanager
def fair(family: str) -> Iterator[None]:
    """While open, their model computes in float64 and its top-k takes the lowest index."""
    before = torch.Tensor.topk, torch.topk
    torch.Tensor.topk = torch.topk = stable_topk
    try:
        with float64_throughout(*modules(family)):
            yield
    finally:
        torch.Tensor.topk, torch.topk = before


def theirs_of(case: str, dtype=torch.float64, seed: int = 0, **changes) -> torch.nn.Module:
    family = case.split()[0]
    modelling, _ = modules(family)
    values = CASES[case] | changes
    config = getattr(modelling, FAMILIES[family] + "Config")(
        **values, attn_implementation="eager", experts_implementation="eager"
    )
    torch.manual_seed(seed)
    model = getattr(modelling, FAMILIES[family] + "ForCausalLM")(config).to(dtype).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "norm" in name:  # ones and zeros would hide a norm that is left out
                value.add_(torch.randn(value.shape, generator=draw) * 0.2)
            elif name.endswith("e_score_correction_bias"):
                value.copy_(torch.randn(value.shape, generator=draw) * 0.3)
    if dtype is torch.float64:  # its frequencies were made in float32
        with fair(family):
            model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model


def pair(case: str, dtype=torch.float64, seed: int = 0, **changes):
    """(theirs, ours). Ours is made from the dictionary of their configuration."""
    theirs = theirs_of(case, dtype, seed, **changes)
    config = convert.config_from(theirs.config.to_dict(), case)
    ours = Transformer(config).to(dtype).requires_grad_(False)
    convert.load(ours, theirs.state_dict())
    return theirs.requires_grad_(False), ours
