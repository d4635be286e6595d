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


@dataclass(frozen=True)
class Parts:
    """One field a piece; the default is the reference."""

    attention: Callable = reference_attention
    swiglu: Callable = reference_swiglu
    sinkhorn: Callable = reference_sinkhorn
    block: Callable = reference_block

    def own(self) -> tuple[str, ...]:
        """The names of the pieces that are not the reference."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not f.default)
