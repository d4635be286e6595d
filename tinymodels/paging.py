"""Who gets which rows of the memory, and what is lost on the way: counted on a trace.

A server has room for so many rows (one row: all a model keeps for one token) and a queue of
requests. Nobody knows in advance how long an answer gets.

    Contiguous   one piece a request, as long as it might ever get; first hole that is large enough
    Pages        pages of P rows, taken one by one as the request grows; a table lists them

What is lost inside is given away and not (yet) filled; what is lost between is free, but in no
piece that the next request could take. Pages: PagedAttention, arXiv 2309.06180.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Request:
    """prompt: tokens to read. total: tokens with the answer; the server does not know it."""

    number: int
    prompt: int
    total: int


def trace(count: int, longest: int = 2048, seed: int = 0) -> list[Request]:
    """Requests with prompts and answers of very different lengths, most of them short."""
    draw = np.random.default_rng(seed)
    lengths = np.exp(draw.normal(np.log(180), 0.9, size=(count, 2))).astype(int) + 1
    lengths = np.minimum(lengths, longest // 2)
    return [Request(i, int(p), int(p + a)) for i, (p, a) in enumerate(lengths)]


@dataclass
class Contiguous:
    """Every request gets one piece of `size(request)` rows, and keeps it until it leaves."""

    rows: int
    size: Callable[[Request], int]
    pieces: dict[int, tuple[int, int]] = field(default_factory=dict)  # request: start, end

    def take(self, request: Request, length: int) -> bool:
        """Room for a request that comes with `length` rows; False if there is none."""
        at = 0
        for start, end in [*sorted(self.pieces.values()), (self.rows, self.rows)]:
            if start - at >= self.size(request):
                self.pieces[request.number] = (at, at + self.size(request))
                return True
            at = end
        return False

    def grow(self, request: Request, length: int) -> bool:
        return length <= self.size(request)

    def leave(self, request: Request) -> None:
        del self.pieces[request.number]

    def held(self) -> int:
        return sum(end - start for start, end in self.pieces.values())


@dataclass
class Pages:
    """`rows // page` pages, and for each request a table of those it has."""

    rows: int
    page: int
    free: list[int] = field(init=False)
    tables: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self):
        self.free = list(range(self.rows // self.page))

    def take(self, request: Request, length: int) -> bool:
        self.tables[request.number] = []
        if self.grow(request, length):
            return True
        del self.tables[request.number]
        return False

    def grow(self, request: Request, length: int) -> bool:
        """Pages for `length` rows: as many more as are missing, wherever they lie."""
        table = self.tables[request.number]
        missing = -(-length // self.page) - len(table)
        if missing > len(self.free):
            return False
        table += [self.free.pop() for _ in range(missing)]
        return True

    def leave(self, request: Request) -> None:
        self.free += self.tables.pop(request.number)

    def held(self) -> int:
        return self.page * sum(map(len, self.tables.values()))


@dataclass(frozen=True)
class Usage:
    """Means over the counted steps: requests at once, and shares of the memory."""

    requests: float
    filled: float  # rows that hold a token
    inside: float  # given away, empty
    between: float  # free
    sent_back: int  # requests that had to leave and begin again, as there was no page to grow


def serve(memory: Contiguous | Pages, requests: list[Request], steps: int) -> Usage:
    """Let the requests come in order, each as soon as it fits; each writes one token a step.

    The first half of the steps fills the memory and is not counted. Raises ValueError when the
    queue runs dry, as what is counted then would be the lack of requests.
    """
    queue, running, counted, sent_back = deque(requests), {}, [], 0
    for step in range(steps):
        while queue and memory.take(queue[0], queue[0].prompt + 1):
            request = queue.popleft()
            running[request] = request.prompt + 1
        if not queue:
            raise ValueError(f"{len(requests)} requests are too few for {steps} steps")
        if step >= steps // 2:
            filled, held = sum(running.values()), memory.held()
            counted.append((len(running), filled, held - filled, memory.rows - held))
        for request in list(running):
            if request not in running:
                continue  # sent back a moment ago
            if running[request] == request.total:
                memory.leave(request)
                del running[request]
                continue
            while not memory.grow(request, running[request] + 1):
                newest = list(running)[-1]  # who came last has least to lose
                memory.leave(newest)
                del running[newest]
                queue.appendleft(newest)
                sent_back += 1
                if newest is request:
                    break
            if request in running:
                running[request] += 1
    at_once, *rows = (float(n) for n in np.mean(counted, axis=0))
    shares = [n / memory.rows for n in rows]
    return Usage(at_once, shares[0], shares[1], shares[2], sent_back)
