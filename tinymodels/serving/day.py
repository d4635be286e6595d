"""A day's requests as a trace, and how many of its tokens are found again within a budget.

A line of a trace is a JSON object, as in the open traces of Mooncake (arXiv 2407.00079, section 4;
github.com/kvcache-ai/Mooncake, FAST25-release/traces):

    {"timestamp": 500, "input_length": 1300, "output_length": 52, "hash_ids": [0, 1, 7]}

timestamp in milliseconds; one id for each 512 tokens of the prompt, the last piece perhaps not
full. An id stands for its piece and all before it, as the names in `chain.py` do: so equal ids
mean an equal text up to there. Only whole pieces are kept, and one token is always run.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .chain import usable
from .lru import Lru

BLOCK = 512


@dataclass(frozen=True)
class Request:
    """timestamp: milliseconds. Lengths in tokens. hash_ids: a name for each piece of the prompt."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True)
class Day:
    """Tokens of a whole trace: found, read, written; and the most bytes that were held."""

    hit: int
    miss: int
    output: int
    most_held: int

    @property
    def hit_rate(self) -> float:
        return self.hit / (self.hit + self.miss)


def replay(trace: Sequence[Request], token_bytes: float, budget: int) -> Day:
    """Send a trace to a server that keeps `token_bytes` for each token it has read, within
    `budget` bytes, and lets go of what was not asked for the longest.

    Answers count when they come back as a part of a later prompt. Errors: ValueError for bytes
    that are not above 0, a budget below 0, an empty trace, and an id that is held
    already though what stands before it is not.
    """
    if not 0 < token_bytes < float("inf"):
        raise ValueError(f"token_bytes is {token_bytes!r}; it must be a number above 0")
    if not 0 <= budget < float("inf"):
        raise ValueError(f"budget is {budget!r}; it must be a number of bytes >= 0")
    if not trace:
        raise ValueError("the trace is empty; load one, or make one with agents_day()")
    size = int(np.ceil(BLOCK * token_bytes))
    lru, hit, miss, output, most = Lru(int(budget)), 0, 0, 0, 0
    for request in trace:
        chain = list(request.hash_ids[: request.input_length // BLOCK])
        held = lru.held(chain)
        found = usable(request.input_length, held * BLOCK, BLOCK)
        hit, miss = hit + found, miss + request.input_length - found
        output += request.output_length
        lru.touch(chain[:held])
        kept = set(chain[:held])  # one set that grows: a chain may have thousands of pieces
        for name in chain[held:]:
            leaving = lru.room(size, keep=kept)
            if leaving is None:
                break
            for old in leaving:
                lru.drop(old)
            if name in lru:
                raise ValueError(
                    f"id {name!r} comes after different beginnings; it must stand for its piece "
                    "and for all before it"
                )
            lru.add(name, size)
            kept.add(name)
        lru.touch(chain[: lru.held(chain)])
        most = max(most, lru.used)
    return Day(hit, miss, output, most)


def agents_day(agents: int = 40, hours: float = 8.0, seed: int = 0) -> list[Request]:
    """A made-up day: agents that work on tasks, turn by turn, and send everything each time.

    All share one system prompt. A task brings some files; each turn adds an answer and what a
    tool said. Between turns lie seconds, now and then half an hour. A text that has grown too
    long is given up, and the agent begins another task. Errors: ValueError for no agents or hours.
    """
    whole = isinstance(agents, int) and not isinstance(agents, bool)
    if not whole or agents < 1 or not 0 < hours < float("inf"):
        raise ValueError(
            f"agents is {agents!r} and hours {hours!r}; a day has at least one agent, and some time"
        )
    draw = np.random.default_rng(seed)
    ids = iter(range(10**9))
    system = [next(ids) for _ in range(16)]  # 8,192 tokens
    found = []
    for _ in range(agents):
        at = float(draw.uniform(0, 0.5 * hours * 3600))
        while at < hours * 3600:
            length, known = BLOCK * len(system) + int(draw.integers(2_000, 30_000)), list(system)
            for _ in range(int(draw.geometric(0.04))):
                while len(known) < -(-length // BLOCK):
                    known.append(next(ids))
                answer = int(draw.lognormal(5.0, 0.8)) + 1
                found.append(Request(int(at * 1000), length, answer, tuple(known)))
                if length % BLOCK:
                    known.pop()  # the piece that is not full will be another one when it is
                length += answer + int(draw.lognormal(6.3, 1.0))
                at += float(draw.lognormal(2.7, 0.9))
                if draw.random() < 0.03:
                    at += float(draw.exponential(1800))
                if length > 120_000 or at > hours * 3600:
                    break
            at += float(draw.exponential(900))
    return sorted(found, key=lambda request: request.timestamp)


def load(path: str | Path) -> list[Request]:
    """A trace from JSON lines, in the order of time.

    Errors: ValueError for a file that cannot be read; with file and line for what is no such
    object, and for ids that are not one for each piece of the prompt (the last may have none).
    """
    found = []
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # Windows may put a mark before the text
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a trace: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):  # an id may hold other ends of lines
        if line.strip():
            found.append(_request(line, f"{path}, line {number}"))
    if not found:
        raise ValueError(f"{path} holds no request")
    return sorted(found, key=lambda request: request.timestamp)


def _request(line: str, where: str) -> Request:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON ({getattr(error, 'msg', error)})") from None
    if not isinstance(said, dict):
        raise ValueError(f"{where}: {type(said).__name__} instead of an object")
    for name, whole in (("timestamp", False), ("input_length", True), ("output_length", True)):
        value = said.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < float("inf") or (whole and value != value // 1):
            raise ValueError(
                f"{where}: {name} is {value!r}; it must be a {'whole ' * whole}number >= 0"
            )
    length, ids = int(said["input_length"]), said.get("hash_ids")
    if length < 1:
        raise ValueError(f"{where}: input_length is 0; a prompt has one token or more")
    if not isinstance(ids, list) or not all(type(i) in (int, str) for i in ids):
        raise ValueError(f"{where}: hash_ids is {ids!r}; it must be a list of ids")
    full, all_of_it = length // BLOCK, -(-length // BLOCK)
    if not full <= len(ids) <= all_of_it or len(set(ids)) < len(ids):
        raise ValueError(
            f"{where}: {len(ids)} ids ({len(set(ids))} different) for {length} tokens; "
            f"each {BLOCK} tokens need one of their own (cut a trace with other pieces anew)"
        )
    return Request(said["timestamp"], length, int(said["output_length"]), tuple(ids))


def save(trace: Iterable[Request], path: str | Path) -> None:
    """Write a trace as JSON lines, whole or not at all. Errors: OSError."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.tmp")
    lines = (
        json.dumps(
            {
                "timestamp": r.timestamp,
                "input_length": r.input_length,
                "output_length": r.output_length,
                "hash_ids": list(r.hash_ids),
            }
        )
        for r in trace
    )
    try:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
