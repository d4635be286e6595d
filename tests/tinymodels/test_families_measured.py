"""Families against transformers' own models: tiny ones of each kind are built, read some tokens,
and what their cache holds is compared with what is counted for the same configuration, layer by
layer. Where a layer slides, transformers keeps one row less between steps: the new token's own.
"""

import warnings

import pytest
import torch

from tinymodels import ledger
from tinymodels.config import GQAAndState, Recurrent
from tinymodels.convert import config_from

transformers = pytest.importorskip("transformers")

N, WINDOW = 9, 5
SMALL = dict(
    vocab_size=31, hidden_size=72, intermediate_size=40, num_hidden_layers=7,
    num_attention_heads=6, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
EXPERTS = dict(
    num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=12,
)  # fmt: skip
WIDE = dict(head_dim=14)  # not hidden / heads
NEAR = dict(sliding_window=WINDOW)
LINEAR = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
    linear_value_head_dim=10, linear_conv_kernel_dim=3,
)  # fmt: skip
LATENT = dict(
    kv_lora_rank=22, q_lora_rank=18, qk_rope_head_dim=6, qk_nope_head_dim=10, v_head_dim=14,
    num_key_value_heads=6, n_group=1, topk_group=1, first_k_dense_replace=1,
)  # fmt: skip
MAMBA = dict(mamba_d_state=6, mamba_d_conv=3, mamba_expand=2)
GPT2 = dict(n_embd=72, n_head=6, n_layer=7, n_positions=64)

FAMILIES = {
    "llama": {}, "cohere": {}, "olmo": {}, "olmo2": {}, "apertus": {}, "granite": {}, "phi": {},
    "stablelm": dict(partial_rotary_factor=0.5), "nemotron": WIDE, "gpt_neox": {},
    "qwen2": {}, "qwen3": WIDE,
    "glm": WIDE, "glm4": WIDE, "seed_oss": WIDE, "ernie4_5": WIDE, "gemma": WIDE, "smollm3": {},
    "gpt2": GPT2, "gptj": {**GPT2, "rotary_dim": 4}, "codegen": {**GPT2, "rotary_dim": 4},
    "gpt_bigcode": GPT2,
    "opt": dict(ffn_dim=40, word_embed_proj_dim=72, max_position_embeddings=64),
    "bloom": dict(n_layer=7, n_head=6), "mpt": dict(d_model=72, n_heads=6, n_layers=7),
    "falcon": {},
    "arcee": WIDE, "helium": dict(head_dim=12), "internlm3": WIDE, "exaone": WIDE,
    "persimmon": dict(num_key_value_heads=6),
    "gpt_neo": dict(num_layers=7, num_heads=6, attention_types=[[["global", "local"], 3],
                                                               [["global"], 1]]),
    "dbrx": dict(
        d_model=72, n_heads=6, n_layers=7, max_seq_len=64,
        attn_config=dict(kv_n_heads=2, rope_theta=9.0, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=12, moe_num_experts=4, moe_top_k=2),
    ),
    "dots1": NEAR | WIDE | EXPERTS | dict(max_window_layers=4, n_shared_experts=1),
    "vaultgemma": NEAR | WIDE, "cwm": NEAR | WIDE, "afmoe": NEAR | WIDE | EXPERTS,
    "exaone_moe": NEAR | WIDE | EXPERTS, "solar_open": WIDE | EXPERTS,
    "mimo_v2_flash": NEAR | WIDE | EXPERTS | dict(v_head_dim=10, num_key_value_heads=3),
    "mistral": NEAR | WIDE, "mixtral": NEAR | EXPERTS, "ministral3": NEAR | WIDE,
    "phi3": NEAR, "phimoe": NEAR | EXPERTS, "starcoder2": NEAR,
    "gemma2": NEAR | WIDE, "gemma3_text": NEAR | WIDE, "cohere2": NEAR, "olmo3": NEAR,
    "exaone4": NEAR | WIDE, "gpt_oss": NEAR | WIDE | EXPERTS,
    "gemma3n_text": NEAR | WIDE | dict(
        num_kv_shared_layers=2, num_hidden_layers=10, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=31, laurel_rank=4,
    ),
    "gemma4_text": NEAR | WIDE | dict(
        num_kv_shared_layers=3, num_hidden_layers=12, global_head_dim=22,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=31,
    ),
    "llama4_text": WIDE | EXPERTS | dict(attention_chunk_size=WINDOW, intermediate_size_mlp=40),
    "qwen2_moe": EXPERTS, "qwen3_moe": EXPERTS | WIDE, "olmoe": EXPERTS, "flex_olmo": EXPERTS,
    "glm4_moe": EXPERTS | WIDE, "minimax_m2": EXPERTS | WIDE, "granitemoe": EXPERTS,
    "qwen3_next": EXPERTS | WIDE | LINEAR, "qwen3_5_text": WIDE | LINEAR,
    "qwen3_5_moe_text": EXPERTS | WIDE | LINEAR, "olmo_hybrid": LINEAR,
    "minimax": EXPERTS | WIDE,
    "kimi_linear": EXPERTS | LATENT | dict(
        q_lora_rank=None, linear_head_dim=6, linear_num_heads=4, linear_conv_kernel_dim=3
    ),
    "jamba": EXPERTS | MAMBA | dict(attn_layer_period=3, attn_layer_offset=1),
    "bamba": MAMBA | dict(attn_layer_indices=[2, 5], mamba_n_heads=6),
    "granitemoehybrid": EXPERTS | MAMBA | dict(
        mamba_n_heads=6, layer_types=["linear_attention", "full_attention"] * 3 + ["full_attention"]
    ),
    "nemotron_h": EXPERTS | WIDE | dict(
        layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
        ssm_state_size=6, mamba_num_heads=6, mamba_head_dim=12, n_groups=2, conv_kernel=3,
        expand=1,
    ),
    "zamba": MAMBA | dict(
        num_hidden_layers=4, num_key_value_heads=6, n_mamba_heads=2, attn_layer_offset=0
    ),
    "zamba2": dict(
        num_hidden_layers=3, layers_block_type=["mamba", "hybrid", "hybrid"], mamba_d_state=6,
        mamba_d_conv=3, mamba_ngroups=2, n_mamba_heads=6, num_key_value_heads=6, chunk_size=8,
    ),
    "falcon_mamba": dict(state_size=6, conv_kernel=3),
    "mamba2": dict(state_size=6, conv_kernel=3, num_heads=12, head_dim=12, n_groups=2),
    "falcon_h1": WIDE | dict(
        mamba_d_ssm=60, mamba_n_heads=6, mamba_d_head=10, mamba_n_groups=2, mamba_d_state=6,
        mamba_d_conv=3,
    ),
    "lfm2": dict(layer_types=["conv", "full_attention", "conv"] * 2 + ["full_attention"]),
    "lfm2_moe": EXPERTS | dict(layer_types=["conv", "full_attention", "conv"] * 2 + ["conv"]),
    "deepseek_v2": EXPERTS | LATENT, "deepseek_v3": EXPERTS | LATENT,
    "deepseek_v32": EXPERTS | LATENT | dict(index_head_dim=12, index_n_heads=3),
    "minicpm3": LATENT, "glm4_moe_lite": EXPERTS | LATENT,
    "longcat_flash": EXPERTS | LATENT | dict(
        num_layers=3, zero_expert_num=1, moe_topk=2, head_dim=6
    ),
    "glm_moe_dsa": EXPERTS | LATENT | dict(
        index_head_dim=12, index_n_heads=3,
        indexer_types=["full", "shared", "full"] + ["shared"] * 4,
    ),
}  # fmt: skip


def built(family: str):
    """(configuration as a dict, the cache after N tokens of a model made from it)."""
    warnings.filterwarnings("ignore", module="transformers")
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(family, **SMALL | FAMILIES[family])
    values = config.to_dict()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        seen = model(torch.randint(3, 31, (2, N)), use_cache=True)
    return values, seen.past_key_values


def values_of(layer, *names: str) -> int:
    """How many values one of two sequences holds in the tensors of these names."""
    held = [getattr(layer, name, None) for name in names]
    held = [t for x in held for t in (x.values() if isinstance(x, dict) else [x])]
    return sum(t.numel() // 2 for t in held if torch.is_tensor(t))


def check_state(state: Recurrent, cache, i: int):
    """The state to the value; of the convolution its channels, as transformers keeps one more of
    its inputs for some families."""
    layer = cache.layers[i]
    if state.kind == "lightning attention":
        assert cache.linear_cache[i].numel() // 2 == state.state
        return
    assert values_of(layer, "recurrent_states") == state.state  # 0: a convolution alone
    kept = {t.shape[-1] for t in layer.conv_states.values()}
    assert len(kept) == 1
    assert values_of(layer, "conv_states") * 2 == state.conv * kept.pop()  # taps - 1 = 2


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_each_layer(family):
    torch.manual_seed(0)
    values, cache = built(family)
    config = config_from(values)
    counted = [x["main"] + x["index"] + x["window"] for x in ledger.per_layer(config, N)]
    for i, layer in enumerate(cache.layers):
        attention = config.layers[i].attention
        measured = 2 * values_of(layer, "keys", "values", "indexer_keys")
        if isinstance(attention, Recurrent):
            assert counted[i] == 0
            check_state(attention, cache, i)
        elif isinstance(attention, GQAAndState):
            assert measured == counted[i] > 0
            check_state(attention.state, cache, i)
        elif getattr(attention, "kv_source", None) is not None:
            assert counted[i] == measured == 0
        elif getattr(attention, "window", None):
            assert measured == counted[i] * (WINDOW - 1) // WINDOW > 0
        else:
            assert measured == counted[i]
    assert not any(counted[len(cache.layers) :])  # layers that share come last and own nothing


def test_states_of_recurrent_gemma():
    """Its states are kept in the layers themselves. As everywhere, the convolution's last inputs
    are counted without the one just read."""
    values = SMALL | WIDE | dict(
        model_type="recurrent_gemma", lru_width=60, attention_window_size=WINDOW, conv1d_width=3
    )  # fmt: skip
    config = config_from(values)
    own = transformers.AutoConfig.for_model(**values)
    model = transformers.AutoModelForCausalLM.from_config(own).eval()
    with torch.no_grad():
        model(torch.randint(3, 31, (2, N)), use_cache=True)
    recurrent = 0
    for layer, counted in zip(model.model.layers, config.layers, strict=True):
        block, kept = layer.temporal_block, counted.attention
        if hasattr(block, "rg_lru"):
            assert block.rg_lru.recurrent_states.numel() == 2 * kept.state
            assert block.conv1d_state.numel() == 2 * kept.conv
            recurrent += 1
        else:
            assert (kept.kv_heads, kept.head_dim, kept.window) == (2, 14, WINDOW)
    assert recurrent == 5
    assert ledger.rate(config) == 0
    assert ledger.exact(config, 100)["window"] == 2 * WINDOW * 2 * 2 * 14 * 2
