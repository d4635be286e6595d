"""The replaceable pieces of a model: where a learner's own function goes.

A part is an ordinary function with the signature of the reference it replaces. It is passed in,
`Transformer(config, Parts(attention=mine))`, and never looked up by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields


def reference_attention(query_BTHD, key_BSKD, value_BSKD, *, window=None, impl="torch"):
    """Causal attention of the T newest positions over S kept ones; the course's own kernels, one
    for a single new token and one for several."""
    from kernels import decode_attention, flash_attention

    if impl == "triton" and query_BTHD.shape[1] == 1:
        return decode_attention(query_BTHD, key_BSKD, value_BSKD, window=window, impl=impl)
    return flash_attention(query_BTHD, key_BSKD, value_BSKD, window=window, impl=impl)


def reference_swiglu(gate, up, limit=None):
    from .ffn import swiglu

    return swiglu(gate, up, limit)


def reference_sinkhorn(logits_BTNN, iterations, eps):
    from .residual import sinkhorn

    return sinkhorn(logits_BTNN, iterations, eps)


def reference_block(x_BTX, attention, ffn, attention_weight_X, ffn_weight_X, eps):
    """A pre-norm layer around one plain stream. `Block` does the same; it asks this part only
    where it is somebody's own, and where there are no copies of the stream (mHC)."""
    from torch.nn.functional import rms_norm

    size = x_BTX.shape[-1:]
    x_BTX = x_BTX + attention(rms_norm(x_BTX, size, attention_weight_X, eps))
    return x_BTX + ffn(rms_norm(x_BTX, size, ffn_weight_X, eps))


def reference_absorb(
    nope_BTHD, rope_BTHR, latent_BSC, rope_BSR, up_k_HDC, up_v_HDC, scale, visible_TS
):
    """Absorbed attention to a latent cache (V2). `MLA` does the same; it asks this part only
    where it is somebody's own, and where order alone says what is visible."""
    from einops import einsum

    absorbed_BTHC = einsum(nope_BTHD, up_k_HDC, "b t h d, h d c -> b t h c")
    score_BHTS = einsum(absorbed_BTHC, latent_BSC, "b t h c, b s c -> b h t s")
    score_BHTS = score_BHTS + einsum(rope_BTHR, rope_BSR, "b t h r, b s r -> b h t s")
    weight_BHTS = (score_BHTS * scale).masked_fill(~visible_TS, -float("inf")).softmax(-1)
    mixed_BTHC = einsum(weight_BHTS, latent_BSC, "b h t s, b s c -> b t h c")
    return einsum(mixed_BTHC, up_v_HDC, "b t h c, h d c -> b t h d")


def reference_candidates(score_BTS, visible_TS, block, keep):
    from .attention.indexer import candidate_blocks

    return candidate_blocks(score_BTS, visible_TS, block, keep)


def reference_pool(value_BSD, gate_BSD, bias_MD):
    """Every M tokens to one entry (V4's HCA, V4.1): a softmax of the gates over the tokens of a
    group. The compressor does the same; it asks this part, and the two below, only where they
    are somebody's own. The model has added its bias by then, so `bias_MD` is zero."""
    m = bias_MD.shape[0]
    count = value_BSD.shape[1] // m
    value, gate = (x[:, : count * m].unflatten(1, (count, m)) for x in (value_BSD, gate_BSD))
    return ((gate + bias_MD).softmax(2) * value).sum(2)


def reference_pool_overlapping(value_BSC, gate_BSC, bias_MC):
    """The same over the group before as well (V4's CSA): of its tokens the first half of their
    numbers, of the group's own the second half."""
    import torch

    from .attention.csa import overlapping

    m = bias_MC.shape[0]
    count = value_BSC.shape[1] // m
    gate_BSC = gate_BSC + bias_MC[torch.arange(gate_BSC.shape[1], device=gate_BSC.device) % m]
    value = overlapping(value_BSC, count, m, False, 0.0)
    gate = overlapping(gate_BSC, count, m, False, -torch.inf)
    return (gate.softmax(2) * value).sum(2)


def reference_attend_with_sink(query_BTHD, row_BSD, visible_TS, sink_H):
    """Rows that are key and value of every head, in one softmax with a sink (V4, V4.1). Asked
    where all queries of a pass look at the same rows: one new token, or a short piece of text."""
    from .attention.seen import all_rows, look

    return look(query_BTHD, sink_H, all_rows(row_BSD, visible_TS))


def reference_select(score_BTS, visible_TS, k):
    from .attention.indexer import top_k

    return top_k(score_BTS, visible_TS, k)


def reference_who_runs(prompt, written, layers, encoder, window):
    """Which layer runs which token in CED: [layers, prompt + written]. `ced` does the same; it
    asks this part, for the replay of its decoder, only where it is somebody's own."""
    import torch

    runs_LT = torch.ones(layers, prompt + written, dtype=torch.bool)
    runs_LT[encoder:, : max(0, prompt - window)] = False
    return runs_LT


@dataclass(frozen=True)
class Parts:
    """One field a piece; the default is the reference."""

    attention: Callable = reference_attention
    swiglu: Callable = reference_swiglu
    sinkhorn: Callable = reference_sinkhorn
    block: Callable = reference_block
    absorb: Callable = reference_absorb
    candidates: Callable = reference_candidates
    who_runs: Callable = reference_who_runs
    select: Callable = reference_select
    pool: Callable = reference_pool
    pool_overlapping: Callable = reference_pool_overlapping
    attend_with_sink: Callable = reference_attend_with_sink

    def own(self) -> tuple[str, ...]:
        """The names of the pieces that are not the reference."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not f.default)
