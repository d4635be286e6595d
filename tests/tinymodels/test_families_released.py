"""Released models whose bytes follow from figures their makers print: written out by hand."""

import pytest

from tinymodels import ledger
from tinymodels.convert import config_from

PATTERN_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI_LINEAR = [i for i in range(1, 28) if i not in KIMI_FULL]
MIMO = [1] * 5 + [0]
ZAMBA2 = [6, *range(11, 81, 6)]  # the second of the two blocks comes before it too
DECILM = [4, 4, 2, 2, 2, 2, 2, 1] + [1, 2, 2, 2, 1, 2, 2, 2] + [4, 1, 2, 2] * 2 + [2, 2, 2, 2] * 2
OPENELM = [4] * 3 + [5] * 7 + [6] * 8 + [7] * 6 + [8] * 4


def shapes(layers: int, heads: int, kv_heads: int | None, width: int, **more) -> dict:
    return dict(
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        hidden_size=width, **more,
    )  # fmt: skip


# name: (values, growing bytes a token, bytes of full windows, constant bytes), rows in bf16
RELEASED = {
    "gpt2": (dict(n_layer=12, n_head=12, n_embd=768, n_positions=1024), 12 * 2 * 768 * 2, 0, 0),
    "bloom-176b": (
        dict(model_type="bloom", n_layer=70, num_attention_heads=112, hidden_size=14336),
        70 * 2 * 14336 * 2, 0, 0,
    ),
    "starcoder": (
        dict(model_type="gpt_bigcode", n_layer=40, n_head=48, n_embd=6144, multi_query=True),
        40 * 2 * 128 * 2, 0, 0,
    ),
    "llama-2-70b": (shapes(80, 64, 8, 8192, model_type="llama"), 327_680, 0, 0),
    "llama-4-scout": (
        {"model_type": "llama4", "text_config": shapes(
            48, 40, 8, 5120, model_type="llama4_text", head_dim=128, no_rope_layers=[],
            attention_chunk_size=8192)},
        12 * 4096, 36 * 8192 * 4096, 0,
    ),
    "qwen3-0.6b": (
        shapes(28, 16, 8, 1024, model_type="qwen3", head_dim=128, use_sliding_window=False,
               sliding_window=None, max_window_layers=28),
        28 * 4096, 0, 0,
    ),
    "gemma-2-9b": (
        shapes(42, 16, 8, 3584, model_type="gemma2", head_dim=256, sliding_window=4096),
        21 * 8192, 21 * 4096 * 8192, 0,
    ),
    "gemma-3-4b": (
        {"model_type": "gemma3", "text_config": dict(
            model_type="gemma3_text", hidden_size=2560, num_hidden_layers=34, sliding_window=1024)},
        5 * 2 * 4 * 256 * 2, 29 * 1024 * 4096, 0,
    ),
    "gemma-3n-e4b": (
        {"model_type": "gemma3n", "text_config": shapes(
            35, 8, 2, 2048, model_type="gemma3n_text", head_dim=256, sliding_window=512,
            num_kv_shared_layers=15,
            layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7)},
        4 * 2048, 16 * 512 * 2048, 0,
    ),
    "llava-1.5-7b": (
        {"model_type": "llava", "text_config": dict(model_type="llama", vocab_size=32064,
                                                    max_position_embeddings=4096)},
        32 * 2 * 32 * 128 * 2, 0, 0,
    ),
    "mixtral-8x7b": (
        shapes(32, 32, 8, 4096, model_type="mixtral", sliding_window=None), 131_072, 0, 0,
    ),
    "phi-2": (shapes(32, 32, None, 2560, model_type="phi"), 32 * 2 * 32 * 80 * 2, 0, 0),
    "phi-3-mini-4k": (
        shapes(32, 32, 32, 3072, model_type="phi3", sliding_window=2047),
        0, 32 * 2047 * 2 * 32 * 96 * 2, 0,
    ),
    "glm-4-9b": (
        dict(model_type="chatglm", num_layers=40, num_attention_heads=32, hidden_size=4096,
             kv_channels=128, multi_query_attention=True, multi_query_group_num=2,
             seq_length=131072),
        40 * 1024, 0, 0,
    ),
    "glm-4.5": (shapes(92, 96, 8, 5120, model_type="glm4_moe", head_dim=128), 92 * 4096, 0, 0),
    "kimi-linear-48b": (
        shapes(27, 32, 32, 2304, model_type="kimi_linear", kv_lora_rank=512, qk_rope_head_dim=64,
               q_lora_rank=None, linear_attn_config=dict(
                   full_attn_layers=KIMI_FULL, kda_layers=KIMI_LINEAR, head_dim=128, num_heads=32,
                   short_conv_kernel_size=4)),
        7 * 1152, 0, 20 * 2 * (32 * 128 * 128 + 3 * 32 * 128 * 3),
    ),
    "minimax-m2": (
        shapes(62, 48, 8, 3072, model_type="minimax_m2", head_dim=128), 62 * 4096, 0, 0,
    ),
    "command-r7b": (
        shapes(32, 32, 8, 4096, model_type="cohere2", sliding_window=4096,
               sliding_window_pattern=4),
        8 * 4096, 24 * 4096 * 4096, 0,
    ),
    "olmo-3-7b": (
        shapes(32, 32, 32, 4096, model_type="olmo3", sliding_window=4096),
        8 * 16_384, 24 * 4096 * 16_384, 0,
    ),
    "starcoder2-15b": (
        shapes(40, 48, 4, 6144, model_type="starcoder2", sliding_window=4096),
        0, 40 * 4096 * 2048, 0,
    ),
    "nemotron-4-340b": (
        shapes(96, 96, 8, 18432, model_type="nemotron"), 96 * 2 * 8 * 192 * 2, 0, 0,
    ),
    "nemotron-h-8b": (
        shapes(52, 32, 8, 4096, model_type="nemotron_h", attention_head_dim=128,
               hybrid_override_pattern=PATTERN_8B, mamba_num_heads=128, mamba_head_dim=64,
               n_groups=8, ssm_state_size=128, conv_kernel=4),
        4 * 4096, 0, 24 * 2 * (128 * 64 * 128 + (8192 + 2 * 8 * 128) * 3),
    ),
    "deepseek-moe-16b": (
        shapes(28, 16, 16, 2048, model_type="deepseek"), 28 * 2 * 16 * 128 * 2, 0, 0,
    ),
    "deepseek-vl2-tiny": (
        {"model_type": "deepseek_vl_v2", "language_config": shapes(
            12, 10, 10, 1280, model_type="deepseek_v2", use_mla=False, kv_lora_rank=None,
            q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, v_head_dim=0)},
        12 * 2 * 10 * 128 * 2, 0, 0,
    ),
    "dbrx": (
        dict(model_type="dbrx", d_model=6144, n_heads=48, n_layers=40, max_seq_len=32768,
             attn_config={"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}),
        40 * 4096, 0, 0,
    ),
    "dots.llm1": (
        shapes(62, 32, 32, 4096, model_type="dots1", head_dim=128, sliding_window=None,
               max_window_layers=62),
        62 * 4 * 4096, 0, 0,
    ),
    "internlm-20b": (shapes(60, 40, None, 5120, model_type="internlm"), 60 * 4 * 5120, 0, 0),
    "internlm3-8b": (
        shapes(48, 32, 2, 4096, model_type="internlm3", head_dim=128), 48 * 1024, 0, 0,
    ),
    "yi-6b, first files": (shapes(32, 32, 4, 4096, model_type="Yi"), 32 * 2048, 0, 0),
    "stablelm-3b, first files": (
        shapes(32, 32, 32, 2560, model_type="stablelm_epoch"), 32 * 4 * 2560, 0, 0,
    ),
    "exaone-3.5-7.8b": (
        dict(model_type="exaone", num_layers=32, num_attention_heads=32, num_key_value_heads=8,
             hidden_size=4096, head_dim=128),
        131_072, 0, 0,
    ),
    "exaone-4-32b, a text for a pattern": (
        shapes(64, 40, 8, 5120, model_type="exaone4", head_dim=128, sliding_window=4096,
               sliding_window_pattern="LLLG"),
        16 * 4096, 48 * 4096 * 4096, 0,
    ),
    "k-exaone": (
        shapes(48, 64, 8, 6144, model_type="exaone_moe", head_dim=128, sliding_window=128,
               sliding_window_pattern="LLLG"),
        12 * 4096, 36 * 128 * 4096, 0,
    ),
    "mimo-7b": (
        shapes(36, 32, 8, 4096, model_type="mimo", head_dim=128, use_sliding_window=False,
               sliding_window=32768, max_window_layers=36),
        36 * 4096, 0, 0,
    ),
    "mimo-v2-flash": (
        shapes(48, 64, 4, 4096, model_type="mimo_v2_flash", head_dim=192, v_head_dim=128,
               swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, sliding_window=128,
               sliding_window_size=128, hybrid_layer_pattern=[0] + ([1] * 4 + [0]) + MIMO * 7),
        9 * 4 * (192 + 128) * 2, 39 * 129 * 8 * (192 + 128) * 2, 0,
    ),
    "zamba2-7b": (
        shapes(81, 32, 32, 3584, model_type="zamba2", attention_head_dim=224, mamba_d_state=64,
               mamba_ngroups=2, n_mamba_heads=112, mamba_d_conv=4, mamba_expand=2,
               layers_block_type=["hybrid" if i in ZAMBA2 else "mamba" for i in range(81)]),
        13 * 4 * 7168, 0, 81 * 2 * (112 * 64 * 64 + (7168 + 2 * 2 * 64) * 3),
    ),
    "zamba-7b": (
        shapes(76, 16, 16, 3712, model_type="zamba", attention_head_dim=464, mamba_d_state=16,
               mamba_d_conv=4, mamba_expand=2, attn_layer_period=6, attn_layer_offset=4),
        13 * 4 * 7424, 0, 76 * 2 * 7424 * (16 + 3),
    ),
    "minicpm-2b": (shapes(40, 36, 36, 2304, model_type="minicpm"), 40 * 4 * 2304, 0, 0),
    "minicpm3-4b": (
        shapes(62, 40, 40, 2560, model_type="minicpm3", kv_lora_rank=256, qk_rope_head_dim=32),
        62 * 288 * 2, 0, 0,
    ),
    "minicpm-v-2.6": (
        shapes(28, 28, 4, 3584, model_type="minicpmv", use_sliding_window=False,
               sliding_window=131072, max_window_layers=28, query_num=64),
        28 * 2048, 0, 0,
    ),
    "decilm-7b": (
        shapes(32, 32, None, 4096, model_type="deci", num_key_value_heads_per_layer=DECILM),
        67 * 2 * 128 * 2, 0, 0,
    ),
    "openelm-1.1b": (
        dict(model_type="openelm", num_transformer_layers=28, model_dim=2048, head_dim=64,
             num_kv_heads=OPENELM, num_query_heads=[4 * n for n in OPENELM]),
        169 * 2 * 64 * 2, 0, 0,
    ),
    "arctic": (shapes(35, 56, 8, 7168, model_type="arctic"), 35 * 4096, 0, 0),
    "ling-lite": (shapes(28, 16, 4, 2048, model_type="bailing_moe"), 28 * 2048, 0, 0),
    "ernie-4.5-vl-28b": (
        shapes(28, 20, 4, 2560, model_type="ernie4_5_moe_vl", moe_num_experts=[64, 64]),
        28 * 2048, 0, 0,
    ),
    "molmo-7b-o": (shapes(32, 32, None, 4096, model_type="molmo"), 524_288, 0, 0),
    "gpt-neo-2.7b": (
        dict(model_type="gpt_neo", num_layers=32, num_heads=20, hidden_size=2560, window_size=256),
        32 * 4 * 2560, 0, 0,
    ),
    "glm-5": (
        shapes(78, 64, 64, 6144, model_type="glm_moe_dsa", kv_lora_rank=512, qk_rope_head_dim=64,
               index_n_heads=32, index_head_dim=128),
        78 * (1152 + 256), 0, 0,
    ),
}  # fmt: skip
RELEASED["gpt2"][0]["model_type"] = "gpt2"


@pytest.mark.parametrize("name", RELEASED)
def test_released(name):
    values, rate, window, constant = RELEASED[name]
    config = config_from(values, name)
    assert ledger.rate(config) == rate
    for n in (1, 777, 1_000_003):
        assert ledger.exact(config, n)["global"] == n * rate
    assert ledger.exact(config, 1_000_003)["window"] == window
    assert ledger.constant(config) == constant
    if window:  # half of the smallest window: half full
        smallest = min(layer["window"] for layer in ledger.per_layer(config, 1) if layer["window"])
        assert ledger.exact(config, 10)["window"] >= 10 * smallest


REFUSED = {
    "a text for a number, though unused": (
        shapes(2, 4, 2, 64, model_type="qwen2", use_sliding_window=False, sliding_window="4096"),
        "sliding_window is '4096'; it must be an integer",
    ),
    "kv heads that do not divide": (
        shapes(12, 12, 5, 768, model_type="glm4_moe"), "5; it must divide the 12 query heads",
    ),
    "heads that do not divide the width": (
        dict(model_type="gpt2", n_layer=2, n_head=7, n_embd=768), "n_embd is 768; the 7 heads",
    ),
    "two names that differ": (
        dict(model_type="gpt2", n_layer=2, num_hidden_layers=3, n_head=2, n_embd=8),
        "n_layer is 2 but num_hidden_layers is 3; they must agree",
    ),
    "pattern of other letters": (
        shapes(3, 8, 2, 64, model_type="nemotron_h", hybrid_override_pattern="M*X"),
        "hybrid_override_pattern is 'M[*]X'",
    ),
    "pattern of other length": (
        shapes(4, 8, 2, 64, model_type="nemotron_h", hybrid_override_pattern="M*-"),
        "num_hidden_layers is 4; the pattern names 3 layers",
    ),
    "lists that miss a layer": (
        shapes(3, 4, 4, 64, model_type="kimi_linear",
               linear_attn_config=dict(full_attn_layers=[3], kda_layers=[1])),
        "do not name each layer once",
    ),
    "all layers share": (
        shapes(4, 4, 2, 64, model_type="gemma3n_text", num_kv_shared_layers=4),
        "num_kv_shared_layers is 4; fewer than 4 layers can share",
    ),
    "marks for other layers": (
        shapes(4, 4, 2, 64, model_type="llama4_text", no_rope_layers=[1, 0]),
        "no_rope_layers has 2 entries; there are 4 layers",
    ),
    "layer_types of another family": (
        shapes(2, 4, 2, 64, model_type="olmo3",
               layer_types=["full_attention", "chunked_attention"]),
        "layer_types.1. is 'chunked_attention'",
    ),
    "a pattern of other letters than L and G": (
        shapes(4, 4, 2, 64, model_type="exaone4", sliding_window=7, sliding_window_pattern="LGX"),
        "sliding_window_pattern is 'LGX'; it must be a text of L and G",
    ),
    "heads for another number of layers": (
        shapes(3, 4, None, 64, model_type="deci", num_key_value_heads_per_layer=[4, 2]),
        "num_key_value_heads_per_layer has 2 entries; there are 3 layers",
    ),
    "no list of heads": (
        shapes(3, 4, None, 64, model_type="deci"),
        "num_key_value_heads_per_layer is missing; it must give one number for each of 3 layers",
    ),
    "channels that heads do not make": (
        shapes(4, 4, 2, 64, model_type="bamba", mamba_n_heads=5, attn_layer_indices=[1]),
        "mamba_n_heads is 5; heads of 25 must make 128 channels together",
    ),
    "channels that heads do not make, Zamba 2": (
        shapes(2, 4, 4, 64, model_type="zamba2", n_mamba_heads=5,
               layers_block_type=["mamba", "hybrid"]),
        "n_mamba_heads is 5; it must divide the 128 channels",
    ),
    "zamba 2 without kinds": (
        shapes(7, 4, 4, 64, model_type="zamba2"), "layers_block_type is missing",
    ),
    "layers without kinds": (
        shapes(4, 4, 2, 64, model_type="granitemoehybrid"), "layer_types is missing",
    ),
    "an index beyond the layers": (
        shapes(4, 4, 2, 64, model_type="bamba", attn_layer_indices=[4]),
        "attn_layer_indices.0. is 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    values, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as refused:
        config_from(values, "given.json")
    assert str(refused.value).startswith("given.json: ") and "\n" not in str(refused.value)
