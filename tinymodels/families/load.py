"""Finds the family of a configuration and lets its reader build the `ModelConfig`."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..config import GQAAndState, ModelConfig, Recurrent
from . import (
    alternating,
    cross_layer,
    deepseek,
    deepseek_v4,
    early,
    hybrid,
    kin,
    latent,
    plain,
    searched,
    states,
    unequal,
)
from .fields import Fields
from .kv_formats import kv_bits

READERS = {
    **plain.READERS,
    **alternating.READERS,
    **kin.READERS,
    **cross_layer.READERS,
    **early.READERS,
    **latent.READERS,
    **deepseek.READERS,
    **deepseek_v4.READERS,
    **hybrid.READERS,
    **states.READERS,
    **searched.READERS,
    **unequal.READERS,
}

# Where multimodal configurations keep the language model.
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")

ENCODERS = frozenset(
    "albert bert camembert deberta deberta-v2 distilbert electra ernie esm eurobert longformer "
    "modernbert mpnet nomic_bert roberta xlm-roberta vit clip siglip".split()
)

# Models of which nothing grows; how large their states are is not read.
STATES_ALONE = ("rwkv", "xlstm", "retnet")


def config_from(values: dict[str, Any], name: str = "config.json") -> ModelConfig:
    """The model that a released configuration describes; rows in bf16 unless the file declares a
    KV-cache format.

    Raises ValueError, one sentence that names the field: no object, an unknown or encoder-only
    architecture, a missing field without a published default, a wrong type, values that do not
    fit together.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{name}: a configuration is a JSON object, not {_kind(values)}")
    inner, outer = _nested(values, name)
    fields = Fields(inner, name, None if inner is values else outer)
    if inner.get("is_encoder_decoder") is True:
        fields.refuse("is_encoder_decoder is true", "only decoder-only models are counted")
    family = _family(inner, values, name)
    for key, value in (("is_causal", False), ("use_bidirectional_attention", True)):
        if inner.get(key) is value:  # EmbeddingGemma and others made from a decoder
            fields.refuse(
                f"{key} is {str(value).lower()}", "an encoder keeps no cache between tokens"
            )
    try:
        config = READERS[family](fields)
    except ValueError as problem:
        text = str(problem)
        raise ValueError(text if text.startswith(f"{name}: ") else f"{name}: {text}") from None
    bits = kv_bits(fields, values)
    _note_what_is_left_out(fields, config)
    return config.with_(
        name=name.removesuffix(".json"),
        kv_bits=bits,
        source=f"{name}, read as {family}",
        notes=tuple(fields.notes) + config.notes,
    )


def load(path: Path) -> ModelConfig:
    """`config_from` of a file, or of the config.json in a folder."""
    if path.is_dir():
        path = path / "config.json"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(
            f"{path}: there is no such file; give a published name or a config.json"
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: cannot be read as text ({problem})") from None
    try:
        values = json.loads(text, parse_constant=_Constant, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; a config.json is a small object") from None
    except ValueError as problem:
        raise ValueError(f"{path}: is not JSON ({problem})") from None
    folder = path.resolve().parent.name
    return config_from(values, folder if folder and path.name == "config.json" else path.name)


# Released files of Mamba 2 write its "no limit" so; nothing here depends on it.
MAY_BE_INFINITE = frozenset({"time_step_limit"})


class _Constant:
    """NaN or Infinity, which JSON does not have: refused, unless it stands where files write it."""

    def __init__(self, text: str):
        self.text = text


def _check_constants(value: Any, allowed: tuple[str, ...] = ()) -> None:
    if isinstance(value, _Constant) and value.text not in allowed:
        raise ValueError(f"{value.text} is no JSON number")
    for entry in value if isinstance(value, list) else ():
        _check_constants(entry, allowed)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        _check_constants(value, ("Infinity",) if key in MAY_BE_INFINITE else ())
        if key in values and values[key] != value:
            raise ValueError(f"{key} stands there twice, as {values[key]!r} and {value!r}")
        values[key] = value
    return values


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _nested(values: dict, name: str) -> tuple[dict, dict]:
    """(the language model's values, the values around them)."""
    inner, outer = values, dict[str, Any]()
    while key := next((k for k in NESTED if k in inner and inner[k] is not None), None):
        if not isinstance(inner[key], dict):
            raise ValueError(f"{name}: {key} is {inner[key]!r}; it must be an object")
        outer = {**outer, **{k: v for k, v in inner.items() if k not in NESTED}}
        inner = inner[key]
    return inner, {k: v for k, v in outer.items() if k not in ("model_type", "architectures")}


def _family(inner: dict, values: dict, name: str) -> str:
    """The family by model_type, inner before outer, else by architecture."""
    stated = [d["model_type"] for d in (inner, values) if d.get("model_type") is not None]
    for model_type in stated:
        if not isinstance(model_type, str):
            raise ValueError(f"{name}: model_type is {model_type!r}; it must be a string")
        if model_type in READERS:
            return model_type
    if inner is not values and inner.get("model_type") is None:
        first = _architecture(inner)  # DeepSeek-OCR: the wrapper's type is that of another model
        if first in ARCHITECTURES:
            return ARCHITECTURES[first]
    if any(t in ENCODERS for t in stated):
        raise ValueError(f"{name}: {stated[0]} is an encoder; it keeps no cache between tokens")
    if not stated:
        if "kv_source_layers" in inner:
            return "deepseek_v41"
        first = _architecture(inner) or _architecture(values)
        if first in ARCHITECTURES:
            return ARCHITECTURES[first]
        if first is None:
            raise ValueError(f"{name}: model_type is missing; it says how the rest is to be read")
        stated = [first]
    raise ValueError(f"{name}: {_unknown(stated[0])}")


def _architecture(values: dict) -> str | None:
    """The first of `architectures`, where it is a text."""
    stated = values.get("architectures")
    first = stated[0] if isinstance(stated, list) and stated else None
    return first if isinstance(first, str) else None


def _unknown(stated: str) -> str:
    """Why nothing reads it, and what would."""
    if stated.lower().startswith(STATES_ALONE):
        return (
            f"{stated!r} keeps a state of fixed size and no row of any token, so nothing grows "
            "with the text; how large that state is, is not read here"
        )
    near = get_close_matches(stated, READERS, n=4)
    nearest = f" (nearest: {', '.join(near)})" if near else ""
    return (
        f"{stated!r} is no architecture known here{nearest}; a model whose layers all keep keys "
        'and values, as Llama\'s do, is read with "model_type": "llama"'
    )


ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForConditionalGeneration": "gemma4",
    "GptOssForCausalLM": "gpt_oss",
    "RWForCausalLM": "RefinedWebModel",
    "FalconForCausalLM": "falcon",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "MiniMaxM1ForCausalLM": "minimax_m1",
    "MiniMaxText01ForCausalLM": "minimax_text_01",
    "JambaForCausalLM": "jamba",
}

DRAFTS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
STATE_DTYPES = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def _note_what_is_left_out(fields: Fields, config: ModelConfig) -> None:
    """Draft layers, and the wider format of states, where the file speaks of them."""
    for name in DRAFTS:
        count = fields.values.get(name)
        if isinstance(count, int) and count > 0:
            fields.note(f"{name} is {count}: draft layers are not counted; running them keeps more")
    for name in STATE_DTYPES:
        states = any(isinstance(x.attention, Recurrent | GQAAndState) for x in config.layers)
        if states and fields.values.get(name) == "float32":
            fields.note(f"{name} is float32: the states take twice the 2 bytes a value counted")
