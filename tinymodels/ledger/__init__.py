"""What a model's memory costs, by arithmetic alone: no torch, no numpy.

    memory.py      bytes: rate, exact, per layer, persistent, constant, on disk
    parameters.py  every weight tensor by name and shape; totals, active, by part
    flops.py       work of writing one token at a context
    gpus.py        what fits on a card
    price.py       a request's bill
    ladder.py      389,120 -> ... -> 890, one switch at a time

Every function takes a published name or a `ModelConfig`.
"""

from .flops import PRECISION_WEIGHTS, decode_flop_parts, decode_flops
from .gpus import GPUS, Gpu, Room, gpu, room, weight_bytes
from .ladder import Step, steps
from .memory import constant, disk_rate, exact, per_layer, persistent, rate
from .parameters import Weight, active, ffn_share, parameter_parts, parameters, weights
from .price import Bill, bill

__all__ = [
    "GPUS",
    "PRECISION_WEIGHTS",
    "Bill",
    "Gpu",
    "Room",
    "Step",
    "Weight",
    "active",
    "bill",
    "constant",
    "decode_flop_parts",
    "decode_flops",
    "disk_rate",
    "exact",
    "ffn_share",
    "gpu",
    "parameter_parts",
    "parameters",
    "per_layer",
    "persistent",
    "rate",
    "room",
    "steps",
    "weight_bytes",
    "weights",
]
