"""Multi-head attention, and its thrifty forms GQA and MQA: one module, three settings.

    out_t = sum over s <= t of softmax_s(q_t . k_s / sqrt(D)) v_s            (arXiv 1706.03762)

H query heads share K key-value heads, H / K to each (GQA, arXiv 2305.13245). K = H is the
original, K = 1 is MQA (arXiv 1911.02150). Only keys and values are kept: 2 x K x D numbers a
token and layer.
"""

from jaxtyping import Float
from torch import Tensor, nn

from ..config import GQA
from ..parts import Parts
from ..step import Step
from .rope import rotate


class MHA(nn.Module):
    """`project` makes this chunk's queries and cache entries; `attend` reads one against the
    other. What stands between them is the cache, or nothing."""

    def __init__(self, width: int, config: GQA, parts: Parts):
        super().__init__()
        self.config, self.parts = config, parts
        queries, kvs = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.query = nn.Linear(width, queries, bias=config.bias)
        self.key = nn.Linear(width, kvs, bias=config.bias)
        self.value = nn.Linear(width, kvs, bias=config.bias)
        self.output = nn.Linear(queries, width, bias=False)

    def project(
        self, x_BTX: Float[Tensor, "B T X"], step: Step
    ) -> tuple[Float[Tensor, "B T H D"], dict[str, Float[Tensor, "B T KD"]]]:
        """Queries, and the rows to keep: keys already turned to their positions, and values."""
        c = self.config
        query_BTHD = self.query(x_BTX).unflatten(-1, (c.heads, c.head_dim))
        key_BTKD = self.key(x_BTX).unflatten(-1, (c.kv_heads, c.head_dim))
        if c.rope is not None:
            query_BTHD = rotate(query_BTHD, c.rope, step.positions_T)
            key_BTKD = rotate(key_BTKD, c.rope, step.positions_T)
        return query_BTHD, {"key": key_BTKD.flatten(-2), "value": self.value(x_BTX)}

    def attend(
        self,
        query_BTHD: Float[Tensor, "B T H D"],
        rows: dict[str, Float[Tensor, "B S KD"]],
        step: Step,
    ) -> Float[Tensor, "B T X"]:
        """The T queries are the newest of the S positions in `rows`."""
        heads = (self.config.kv_heads, self.config.head_dim)
        key_BSKD, value_BSKD = (rows[n].unflatten(-1, heads) for n in ("key", "value"))
        out_BTHD = self.parts.attention(
            query_BTHD, key_BSKD, value_BSKD, window=self.config.window, impl=step.impl(query_BTHD)
        )
        return self.output(out_BTHD.flatten(-2))

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query_BTHD, rows = self.project(x_BTX, step)
        if cache is not None:
            rows = (cache.main if self.config.window is None else cache.window).extend(rows)
        return self.attend(query_BTHD, rows, step), step
