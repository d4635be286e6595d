"""What type checkers are told of the package: a kernel's name is its function (see __init__.py),
and the function carries its traffic."""

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from kernels.candidate_blocks import candidate_blocks as _candidate_blocks
from kernels.decode_attention import decode_attention as _decode_attention
from kernels.flash_attention import flash_attention as _flash_attention
from kernels.group_pool import group_pool as _group_pool
from kernels.hyper_connection import hyper_connection as _hyper_connection
from kernels.indexer_scores import indexer_scores as _indexer_scores
from kernels.mla_decode import mla_decode as _mla_decode
from kernels.moe_experts import moe_experts as _moe_experts
from kernels.select_topk import select_topk as _select_topk
from kernels.sparse_attention import sparse_attention as _sparse_attention
from kernels.sparse_attention_fp4 import sparse_attention_fp4 as _sparse_attention_fp4

P = ParamSpec("P")
R = TypeVar("R")

KERNELS: tuple[str, ...]

class Kernel(Generic[P, R]):
    __name__: str
    traffic: Callable[..., dict[str, int]]
    padding: Callable[..., float]  # moe_experts
    launches: Callable[..., int]  # moe_experts

    def __call__(self, *args: P.args, **named: P.kwargs) -> R: ...

def kernel(function: Callable[P, R]) -> Kernel[P, R]: ...

candidate_blocks = kernel(_candidate_blocks)
decode_attention = kernel(_decode_attention)
flash_attention = kernel(_flash_attention)
group_pool = kernel(_group_pool)
hyper_connection = kernel(_hyper_connection)
indexer_scores = kernel(_indexer_scores)
mla_decode = kernel(_mla_decode)
moe_experts = kernel(_moe_experts)
select_topk = kernel(_select_topk)
sparse_attention = kernel(_sparse_attention)
sparse_attention_fp4 = kernel(_sparse_attention_fp4)
