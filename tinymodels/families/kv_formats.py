"""The format of cached values, where a file declares one; that of the weights says nothing here."""

from typing import Any

from .fields import Fields

BITS = {
    "bf16": 16, "bfloat16": 16, "fp16": 16, "float16": 16, "fp32": 32, "float32": 32,
    "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "fp8_e4m3fnuz": 8,
    "fp8_e5m2fnuz": 8, "int8": 8, "int4": 4, "nvfp4": 4,
}  # fmt: skip
NOTHING = (None, "", "auto", "none")
CALIBRATED = ("static", "dynamic")  # how fp8 values get their scales: AutoFP8, Quark's first files


def kv_bits(fields: Fields, values: dict) -> int | None:
    """Bits of a cached value, without scales; None where the file declares nothing.

    Read: kv_cache_dtype; and inside quantization_config (older: compression_config)
    kv_cache_scheme (compressed-tensors, AutoFP8), kv_cache_quant_algo (ModelOpt) and the layers
    that Quark's `kv_cache_group` names.
    """
    quantisation: dict[str, Any] = {}
    for place in (values, fields.values):
        for key in ("compression_config", "quantization_config"):
            quantisation |= place[key] if isinstance(place.get(key), dict) else {}
    dtype = values.get("kv_cache_dtype", fields.values.get("kv_cache_dtype"))
    found = [
        ("kv_cache_dtype", _named(fields, "kv_cache_dtype", dtype)),
        *(
            (key, _named(fields, key, quantisation.get(key)))
            for key in ("kv_cache_quant_algo", "kv_cache_scheme")
        ),
        ("kv_cache_group", _grouped(fields, quantisation)),
    ]
    bits = [(key, count) for key, count in found if count is not None]
    if not bits:
        return None
    if len({count for _, count in bits}) > 1:
        fields.refuse(
            f"{bits[0][0]} says {bits[0][1]} bits and {bits[1][0]} {bits[1][1]}", "they must agree"
        )
    fields.note(f"{bits[0][0]} declares a KV cache of {bits[0][1]} bits a value")
    return bits[0][1]


def _named(fields: Fields, key: str, declared: Any) -> int | None:
    """Bits of a format by name, or by the object that compressed-tensors writes."""
    if declared in NOTHING:
        return None
    if isinstance(declared, dict) and key == "kv_cache_scheme":
        count = declared.get("num_bits")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 32:
            fields.refuse(f"{key} is {declared!r}", "it must give num_bits from 1 to 32")
        return count
    name = declared.lower() if isinstance(declared, str) else None
    if key == "kv_cache_scheme" and name in CALIBRATED:
        name = "fp8"
    if name not in BITS:
        fields.refuse(f"{key} is {declared!r}", f"known are {', '.join(BITS)}")
    if name == "nvfp4":
        fields.note("NVFP4's scales, a byte for 16 values, are not counted: they add an eighth")
    return BITS[name]


def _grouped(fields: Fields, quantisation: dict) -> int | None:
    """Quark: `export` names the projections that are cached, another field the format of each."""
    export, layers = quantisation.get("export"), quantisation.get("layer_quant_config")
    group = export.get("kv_cache_group") if isinstance(export, dict) else None
    if not isinstance(group, list) or not group:
        return None
    own = layers.get(group[0]) if isinstance(layers, dict) else None
    outputs = own.get("output_tensors") if isinstance(own, dict) else None
    if not isinstance(outputs, dict):
        fields.refuse(
            f"kv_cache_group names {group[0]!r}",
            "layer_quant_config must give its output_tensors, with a dtype",
        )
    return _named(fields, "kv_cache_group", outputs.get("dtype"))
