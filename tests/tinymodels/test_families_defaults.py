"""What a silent file is read as = what the family's published class fills in for the same file."""

import pytest

from tinymodels import ledger
from tinymodels.convert import config_from
from tinymodels.families import READERS

transformers = pytest.importorskip("transformers")

# Families whose class is not in transformers (their files came with code of their own), or is
# described there under another name; and wrappers, whose model is the nested one.
ELSEWHERE = {
    "RefinedWeb", "RefinedWebModel", "baichuan", "chatglm", "deepseek", "internlm2", "kimi_k2",
    "hf_olmo", "hunyuan", "minimax_m1", "minimax_text_01", "nemotron-nas", "phi-msft", "phi3_v",
    "phi3small", "phi4mm", "qwen", "Yi", "arctic", "bailing_moe", "bailing_moe_v2", "internlm",
    "ernie4_5_moe_vl", "mimo", "minicpm", "molmo", "stablelm_epoch",
    "deci", "minicpmo", "minicpmv", "openelm",
}  # fmt: skip
WRAPPERS = {
    "gemma3", "gemma3n", "gemma4", "llama4", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe",
    "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe", "mllama",
}  # fmt: skip
# Readers without defaults for layers, heads or width: no nested file of these is known.
STATED = {
    "dbrx", "gpt_neo", "exaone", "zamba", "zamba2",
    "gpt2", "gptj", "codegen", "bloom", "opt", "gpt_bigcode", "gpt_neox", "falcon", "mpt",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "nemotron_h",
    "granitemoehybrid", "bamba", "jamba", "glm4_moe", "glm4v_moe_text", "qwen3_omni_moe_text",
}  # fmt: skip

SHAPES = dict(hidden_size=3072, num_hidden_layers=13, num_attention_heads=8)
MORE = {
    "llama": dict(num_attention_heads=32),
    "mistral": dict(num_attention_heads=16),
    "qwen2": dict(num_attention_heads=32, use_sliding_window=True, max_window_layers=5),
    "qwen2_moe": dict(num_attention_heads=16, use_sliding_window=True, max_window_layers=5),
    "qwen3": dict(num_attention_heads=32, use_sliding_window=True, max_window_layers=7),
    "qwen3_moe": dict(use_sliding_window=True),
    "qwen3_vl_text": dict(num_attention_heads=32),
    "qwen3_vl_moe_text": dict(num_attention_heads=16),
    "smollm3": dict(use_sliding_window=True, sliding_window=300),
    "stablelm": dict(num_attention_heads=32),
    "exaone4": dict(num_attention_heads=32),
    "gemma": dict(num_attention_heads=16),
    "gemma3n_text": dict(num_hidden_layers=35),
    "gpt_oss": dict(num_attention_heads=16),
    "deepseek_v2": dict(kv_lora_rank=320),
    "deepseek_v3": dict(kv_lora_rank=320),
    "deepseek_v32": dict(kv_lora_rank=320),
    "bamba": dict(attn_layer_indices=[3, 9]),
    "mamba2": dict(hidden_size=4096),
    "falcon_h1": dict(num_attention_heads=16),
    "lfm2": dict(num_attention_heads=16, layer_types=["conv"] * 9 + ["full_attention"] * 4),
    "lfm2_moe": dict(num_attention_heads=16, layer_types=["conv"] * 9 + ["full_attention"] * 4),
    "granitemoehybrid": dict(layer_types=["linear_attention"] * 6 + ["full_attention"] * 7),
    "nemotron_h": dict(
        num_hidden_layers=3, layers_block_type=["linear_attention", "full_attention", "mlp"]
    ),
    "longcat_flash": dict(num_layers=13, num_hidden_layers=None),
    "dbrx": dict(d_model=3072, n_heads=8, n_layers=13),
    "exaone": dict(num_layers=13, num_hidden_layers=None),
    "gpt_neo": dict(num_layers=13, num_heads=8, attention_types=[[["global"], 13]]),
    "dots1": dict(num_attention_heads=32, max_window_layers=5),
    "exaone_moe": dict(num_attention_heads=32),
    "helium": dict(num_attention_heads=20),
    "minicpm3": dict(num_attention_heads=32),
    "zamba": dict(num_attention_heads=16),
    "zamba2": dict(layers_block_type=["mamba"] * 9 + ["hybrid"] * 4),
    "mpt": dict(d_model=3072, n_heads=8, n_layers=13),
    "bloom": dict(n_layer=13, n_head=8),
    "gpt2": dict(n_embd=3072, n_layer=13, n_head=8),
}  # fmt: skip
for name in ("gptj", "codegen", "gpt_bigcode"):
    MORE[name] = MORE["gpt2"]

GROUPED = {name for name in READERS if name.startswith("deepseek_v4")}  # tests of their own
PUBLISHED = sorted(set(READERS) - ELSEWHERE - WRAPPERS - GROUPED)


def same(silent, spoken):
    assert ledger.per_layer(silent, 100_003) == ledger.per_layer(spoken, 100_003)
    assert ledger.exact(silent, 100_003) == ledger.exact(spoken, 100_003)
    assert ledger.constant(silent) == ledger.constant(spoken)
    assert silent.context == spoken.context


@pytest.mark.parametrize("family", PUBLISHED)
def test_shapes_given_and_nothing_else(family):
    values = {k: v for k, v in (SHAPES | MORE.get(family, {})).items() if v is not None}
    filled = transformers.AutoConfig.for_model(family, **values).to_dict()
    silent, spoken = config_from({**values, "model_type": family}), config_from(filled)
    same(silent, spoken)
    assert silent.notes


@pytest.mark.parametrize("family", sorted(set(PUBLISHED) - STATED))
def test_a_nested_file_leaves_out_what_its_class_says(family):
    filled = transformers.AutoConfig.for_model(family).to_dict()
    nested = config_from({"model_type": "anything", "text_config": {"model_type": family}})
    same(nested, config_from(filled))
    for stated in ({"model_type": family}, {"model_type": family, "num_hidden_layers": 7}):
        with pytest.raises(ValueError, match="is missing"):
            config_from(stated)


@pytest.mark.parametrize(
    "family, name",
    [
        (family, "num_key_value_heads")
        for family in "ernie4_5 falcon_h1 glm4v_text qwen2_5_omni_text smollm3 llama".split()
    ]
    + [("ernie4_5", "head_dim"), ("seed_oss", "head_dim"), ("llama", "head_dim")],
)
def test_null_is_not_the_same_as_absent(family, name):
    """null: as many kv heads as query heads, and heads of width / heads, as the classes make it."""
    values = {**SHAPES, **MORE.get(family, {}), name: None}
    filled = transformers.AutoConfig.for_model(family, **values).to_dict()
    same(config_from({**values, "model_type": family}), config_from(filled))


def test_the_lists_above_name_families_that_exist():
    assert ELSEWHERE | WRAPPERS | STATED | set(MORE) <= set(READERS)
