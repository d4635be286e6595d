"""The work of writing one token at a context of n, by part and by number format.

Formats differ in speed, so work is weighted: a BF16 operation counts 1, FP8 0.5, FP4 0.25. Which
part runs in which format is an assumption, and the totals move with it. The one used here:

    linear layers and experts                           FP8
    attention core, head, router, residual mixing       BF16
    indexer scores                                      FP4 in V4 and V4.1, FP8 in V3.2

Under it V4.1's work per token grows by 27 % from 4K (4,096) to 1M (1,048,576; its report says
about a quarter), V4-Flash's 3.71 times, V3's 166.46 times; other assignments give V4.1 +16 % to
+62 %. Without the projections that groups are pooled from V4-Flash's grows 3.76 times, and V4.1's
by 27 % still. Norms, softmax, RoPE and top-k are not counted.
"""

from typing import Any

from ..config import CSA2, GQA, MLA, GQAAndState, Grouped, Indexer, ModelConfig
from ..published import config_of
from .parameters import Weight, weights

PRECISION_WEIGHTS = {"bf16": 1.0, "fp8": 0.5, "fp4": 0.25}


def decode_flops(
    model: str | ModelConfig, context: int, precision_weights: dict[str, float] | None = None
) -> float:
    """FLOPs per written token at `context` cached tokens, weighted to BF16 equivalents.

    `precision_weights` of 1 everywhere gives plain FLOPs; one multiply-add is 2 FLOPs.
    """
    weight = PRECISION_WEIGHTS if precision_weights is None else precision_weights
    parts = decode_flop_parts(model, context)
    return sum(flops * weight[precision] for (_, precision), flops in parts.items())


def decode_flop_parts(model: str | ModelConfig, context: int) -> dict[tuple[str, str], int]:
    """{(part, format): FLOPs} of writing one token, unweighted.

    Parts: linear (projections and experts), router, residual mixing, head, attention core,
    indexer scores.
    MLA is counted in its absorbed form, the one that decode runs.
    """
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise ValueError(f"context is {context!r}; writing a token needs an integer >= 1")
    config = config_of(model)
    parts = {
        ("linear", "fp8"): 0,
        ("router", "bf16"): 0,
        ("residual mixing", "bf16"): 0,
        ("head", "bf16"): 2 * config.vocab * config.width if config.tied else 0,
        ("attention core", "bf16"): 0,
        ("indexer scores", "fp8"): 0,
        ("indexer scores", "fp4"): 0,
    }
    for _, weight in weights(config):
        if weight.is_matrix and weight.part != "embedding":
            parts[_linear_part(weight)] += 2 * weight.active_count
    for i, layer in enumerate(config.layers):
        a: Any = layer.attention
        parts["attention core", "bf16"] += core(a) * attended(config, i, context)
        indexer = getattr(a, "indexer", None)
        if indexer:
            work = 2 * indexer.heads * indexer.dim * scored(a, context)
            parts["indexer scores", indexer.fmt] += work
    return parts


def _linear_part(weight: Weight) -> tuple[str, str]:
    if weight.part in ("head", "residual"):
        return {"head": "head", "residual": "residual mixing"}[weight.part], "bf16"
    return ("router", "bf16") if weight.name == "ffn.gate.weight" else ("linear", "fp8")


def scored(a: MLA | Grouped | CSA2, context: int) -> int:
    """Entries whose keys the indexer scores for one query: all complete ones, but for a V4.1
    layer that chooses inside another layer's candidates at most those."""
    visible = context if isinstance(a, MLA) else context // a.ratio
    if isinstance(a, CSA2) and a.mode == "reindex" and a.candidates:
        return min(visible, a.candidates.keep * a.candidates.block)
    return visible


def attended(config: ModelConfig, layer: int, context: int) -> int:
    """Entries that one query of a layer reads: its window and those selected, or all there are."""
    a = config.layers[layer].attention
    match a:
        case GQAAndState(attention=GQA(window=window)) | GQA(window=window):
            return min(context, window) if window else context
        case MLA():
            return min(context, a.indexer.top_k) if a.indexer else context
        case Grouped() | CSA2():
            near = min(context, a.window)
            if a.ratio == 0:
                return near
            far = context // a.ratio
            chooser = a.indexer or _borrowed_indexer(config, a)
            return near + (min(far, chooser.top_k) if chooser else far)
    raise ValueError(f"layer {layer}: {type(a).__name__} has state only, its work is not counted")


def _borrowed_indexer(config: ModelConfig, a: Grouped | CSA2) -> Indexer | None:
    if isinstance(a, CSA2) and a.index_source is not None:
        return config.layers[a.index_source].attention.indexer
    return None


def core(a: GQA | GQAAndState | MLA | Grouped | CSA2) -> int:
    """FLOPs of one query over one entry, all heads: each number is met as key and as value."""
    if isinstance(a, GQAAndState):
        return core(a.attention)
    if isinstance(a, MLA):
        return 2 * a.heads * (a.kv_rank + a.rope_dim + a.kv_rank)
    return 2 * a.heads * 2 * a.head_dim
