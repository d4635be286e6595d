"""Models of other houses: what their released config.json says about the cache, and their size.

Of each file only the fields that decide the cache are kept, as they stand there; a field that a
release leaves to its default is left out here too. `Released.config()` reads them as
`tinymodels.families` reads any file. Weights: counted from the released shapes (D), or as the
model's card states them, rounded (C).
"""

from dataclasses import dataclass

from .config import ModelConfig
from .families import config_from


@dataclass(frozen=True)
class Released:
    """One released model. weights, active: parameters, all and those a token meets.

    experts, top_k: routed experts of a layer, and how many a token is sent to; 1, 1: no experts.
    """

    values: dict
    weights: int
    active: int
    status: str
    experts: int = 1
    top_k: int = 1

    def config(self, name: str) -> ModelConfig:
        """What is kept, by which layer."""
        return config_from(self.values, name)


def _turns(near: int, layers: int) -> list[str]:
    """`near` sliding layers, then a full one, and so on."""
    kinds = ["sliding_attention"] * near + ["full_attention"]
    return (kinds * layers)[:layers]


def _dense(values: dict, weights: int, status: str) -> Released:
    return Released(values, weights, weights, status)


RELEASED: dict[str, Released] = {
    "Llama 3.1 8B": _dense(
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "vocab_size": 128256,
            "torch_dtype": "bfloat16",
        },
        8_030_261_248,
        "D",
    ),
    "Qwen2 7B": _dense(
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "use_sliding_window": False,
            "sliding_window": 131072,
            "max_window_layers": 28,
            "vocab_size": 152064,
            "torch_dtype": "bfloat16",
        },
        7_615_616_512,
        "D",
    ),
    "Mistral 7B v0.1": _dense(
        {
            "model_type": "mistral",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
            "max_position_embeddings": 32768,
            "vocab_size": 32000,
            "torch_dtype": "bfloat16",
        },
        7_241_732_096,
        "D",
    ),
    "Gemma 3 27B": _dense(
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 5376,
                "num_hidden_layers": 62,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "sliding_window": 1024,
            },
            "torch_dtype": "bfloat16",
        },
        27_000_000_000,
        "C",
    ),
    "gpt-oss 20B": Released(
        {
            "model_type": "gpt_oss",
            "hidden_size": 2880,
            "num_hidden_layers": 24,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            "layer_types": _turns(1, 24),
            "max_position_embeddings": 131072,
            "vocab_size": 201088,
        },
        20_900_000_000,
        3_600_000_000,
        "C",
        experts=32,
        top_k=4,
    ),
    "Gemma 4 E2B": _dense(
        {
            "model_type": "gemma4",
            "text_config": {
                "hidden_size": 1536,
                "num_hidden_layers": 35,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
                "head_dim": 256,
                "global_head_dim": 512,
                "sliding_window": 512,
                "layer_types": _turns(4, 35),
                "num_kv_shared_layers": 20,
                "num_global_key_value_heads": None,
                "attention_k_eq_v": False,
                "hidden_size_per_layer_input": 256,
                "vocab_size_per_layer_input": 262144,
                "max_position_embeddings": 131072,
                "vocab_size": 262144,
            },
        },
        5_100_000_000,
        "C",
    ),
    "Qwen3-Next 80B": Released(
        {
            "model_type": "qwen3_next",
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "max_position_embeddings": 262144,
            "use_sliding_window": False,
            "vocab_size": 151936,
            "torch_dtype": "bfloat16",
        },
        80_000_000_000,
        3_000_000_000,
        "C",
        experts=512,
        top_k=10,
    ),
    "Jamba 1.5 Mini": Released(
        {
            "model_type": "jamba",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": 256,
            "max_position_embeddings": 262144,
            "sliding_window": None,
            "vocab_size": 65536,
            "torch_dtype": "bfloat16",
        },
        52_000_000_000,
        12_000_000_000,
        "C",
        experts=16,
        top_k=2,
    ),
}
