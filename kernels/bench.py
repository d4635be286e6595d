"""How fast a kernel is, against what the card can do at all.

Two rates are measured first: bytes copied per second, and FLOPs per second of a large
matrix product. No kernel can be done sooner than its bytes take at the one and its FLOPs
at the other; the longer of the two is its floor, and floor / time says how much of the
card it uses. Beside it stands torch's own scaled_dot_product_attention where that
computes the same thing. What must be moved at least is in `kernels.unavoidable`: each
distinct row once, however many tokens or programs ask for it. Times are medians, the
card's L2 cache emptied before each run.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels import backend, gates
from kernels.unavoidable import unavoidable

RESULTS = Path(__file__).parent / "results"
FLUSH = 512 * 2**20  # bytes written between runs: more than any L2 cache


@dataclass(frozen=True)
class Card:
    """What was measured of the card itself."""

    name: str
    copy_bandwidth: float  # bytes per second, read and written
    matmul_rate: dict[str, float]  # FLOPs per second, by dtype


@dataclass(frozen=True)
class Timed:
    """One kernel on one shape. Times in seconds."""

    kernel: str
    shape: str
    dtype: str
    bytes_moved: int
    flops: int
    seconds: float
    floor: float
    sdpa: float | None  # torch's own, None where it does not compute this

    @property
    def of_floor(self) -> float:
        """Floor over time: 1 is the card's limit."""
        return self.floor / self.seconds


def floor(traffic: dict[str, int], card: Card, dtype: str) -> float:
    """The seconds below which this card cannot do it."""
    moving = (traffic["bytes_read"] + traffic["bytes_written"]) / card.copy_bandwidth
    return max(moving, traffic["flops"] / card.matmul_rate[dtype])


def seconds_of(call, repeats: int = 30) -> float:
    """Median seconds of a call on the GPU, after warming up and with a cold L2 cache."""
    flush = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        flush.zero_()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        call()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) / 1e3)
    return statistics.median(times)


def measure_card() -> Card:
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.numel() / seconds_of(lambda: target.copy_(source), repeats=10)
    del source, target
    rates = {}
    for dtype, size in ((torch.bfloat16, 8192), (torch.float16, 8192), (torch.float32, 4096)):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        seconds = seconds_of(lambda: a @ b, repeats=10)  # noqa: B023
        rates[str(dtype).removeprefix("torch.")] = 2 * size**3 / seconds
    return Card(torch.cuda.get_device_name(), copied, rates)


def bench_kernels(names, card: Card) -> list[Timed]:
    """Time the named kernels at all their real shapes."""
    found = []
    for name in names:
        for shape in gates.module(name).REAL:
            inputs = shape.arguments("cuda")
            rival = sdpa(shape, inputs)
            dtype = str(shape.dtype).removeprefix("torch.")
            with torch.no_grad():
                output = gates.call(name, shape, inputs, "triton")
                traffic = unavoidable(name, shape, inputs, output)
                del output
                seconds = seconds_of(lambda: gates.call(name, shape, inputs, "triton"))  # noqa: B023
                found.append(Timed(
                    kernel=name, shape=shape.label, dtype=dtype,
                    bytes_moved=traffic["bytes_read"] + traffic["bytes_written"],
                    flops=traffic["flops"], seconds=seconds, floor=floor(traffic, card, dtype),
                    sdpa=rival and seconds_of(rival)))
            del inputs, rival
            torch.cuda.empty_cache()
    return found


def sdpa(shape, inputs: dict):
    """Torch's own attention on the same inputs as a call without arguments, or None where it
    does not compute the same thing. What it must have side by side is laid so before."""
    from torch.nn.attention.bias import causal_lower_right

    if inputs.get("window") or inputs.get("lengths") is not None:
        return None
    scale = inputs.get("scale")
    if set(inputs) == {"query_BTHD", "key_BSKD", "value_BSKD", "window", "lengths"}:
        query, key, value = (inputs[name].transpose(1, 2)
                             for name in ("query_BTHD", "key_BSKD", "value_BSKD"))
    elif "latent_BSC" in inputs:  # one kv head whose value is the first part of its key
        query = torch.cat([inputs["query_BTHC"], inputs["rope_query_BTHR"]], 3).transpose(1, 2)
        key = torch.cat([inputs["latent_BSC"], inputs["rope_BSR"]], 2)[:, None]
        value = inputs["latent_BSC"][:, None]
    else:
        return None
    mask = causal_lower_right(query.shape[2], key.shape[2]) if query.shape[2] > 1 else None

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale,
            enable_gqa=query.shape[1] != key.shape[1])

    return attend


def record(card: Card, found: list[Timed], folder: Path = RESULTS) -> Path:
    """Write what was measured, with date, card and versions; returns the file."""
    today = datetime.date.today().isoformat()
    content = {
        "date": today, "card": asdict(card), **versions(),
        "kernels": [{**asdict(one), "of_floor": one.of_floor} for one in found],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{today}-{slug(card.name)}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def versions() -> dict[str, str | None]:
    """What a figure depends on besides the card."""
    return {"torch": torch.__version__, "triton": backend.current().triton_version,
            "cuda": torch.version.cuda, "python": platform.python_version()}


def slug(name: str) -> str:
    """A card's name as part of a file's."""
    return "-".join(name.lower().split())


def show(card: Card, found: list[Timed]) -> str:
    """The table that `python -m kernels bench` prints."""
    rates = ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in card.matmul_rate.items())
    heads = ["kernel", "shape", "dtype", "microseconds", "floor", "of floor", "GB/s", "TFLOP/s",
             "torch SDPA"]
    rows = [[one.kernel, one.shape, one.dtype, one.seconds * 1e6, one.floor * 1e6,
             f"{one.of_floor:.0%}", round(one.bytes_moved / one.seconds / 1e9),
             one.flops / one.seconds / 1e12,
             "-" if one.sdpa is None else f"{one.sdpa * 1e6:.3g}"] for one in found]
    return (f"{card.name}: copies {card.copy_bandwidth / 1e9:.0f} GB/s; "
            f"matrix products in TFLOP/s: {rates}\n{gates.table(heads, rows)}")
