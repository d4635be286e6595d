"""What a kernel may touch, and what it did touch.

On a GPU a load outside its tensor reads whatever lies there; in triton's interpreter it
kills the process. With the checks of this file, which are always on in the interpreter,
it is an IndexError that names the kernel, the tensor argument and the program.

The same place sees every load and store, so it also counts them:

    with bounds.counting() as counts:
        decode_attention(query, key, value)
    print(counts)                       # bytes by kernel and argument
    counts.bytes_read, counts.bytes_written

Counted is what the kernel asks for: each unmasked element of each load and store, as
often as it is asked for. This file knows addresses and numbers only; `kernels.interpreter`
hooks it into triton.
"""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import dataclass, field

import numpy as np

_counting = contextvars.ContextVar("counting", default=())
_checking_overflow = contextvars.ContextVar("checking_overflow", default=False)


@dataclass(frozen=True)
class Argument:
    """The memory of one tensor argument: from its first element to its last."""

    name: str
    start: int  # address of element 0, in bytes
    nbytes: int  # from element 0 to the end of the last element, strides included
    itemsize: int

    @classmethod
    def of(cls, name, tensor) -> Argument:
        """The span of a torch tensor; of a view, only what the view can reach."""
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        elements = last + 1 if tensor.numel() else 0
        return cls(name, tensor.data_ptr(), elements * tensor.element_size(),
                   tensor.element_size())


@dataclass
class Count:
    """Elements and bytes that went one way or the other."""

    loads: int = 0  # elements
    bytes_loaded: int = 0
    stores: int = 0  # elements
    bytes_stored: int = 0

    def add(self, other: Count) -> None:
        self.loads += other.loads
        self.bytes_loaded += other.bytes_loaded
        self.stores += other.stores
        self.bytes_stored += other.bytes_stored


@dataclass
class Counts:
    """What the kernels launched inside `counting()` loaded and stored."""

    rows: dict[tuple[str, str], Count] = field(default_factory=dict)  # (kernel, argument)
    launches: int = 0
    programs: int = 0

    def __getitem__(self, argument: str) -> Count:
        """One argument's count over all kernels. KeyError if none touched it."""
        found = [count for (_, name), count in self.rows.items() if name == argument]
        if not found:
            touched = ", ".join(sorted({name for _, name in self.rows})) or "nothing"
            raise KeyError(f"no kernel touched {argument!r}; touched: {touched}")
        total = Count()
        for count in found:
            total.add(count)
        return total

    @property
    def bytes_read(self) -> int:
        return sum(count.bytes_loaded for count in self.rows.values())

    @property
    def bytes_written(self) -> int:
        return sum(count.bytes_stored for count in self.rows.values())

    def note(self, kernel, argument, what, elements, nbytes) -> None:
        count = self.rows.setdefault((kernel, argument), Count())
        if what == "load":
            count.add(Count(loads=elements, bytes_loaded=nbytes))
        else:
            count.add(Count(stores=elements, bytes_stored=nbytes))

    def __str__(self) -> str:
        lines = [f"{'kernel':<20} {'argument':<14} {'bytes read':>14} {'bytes written':>14}"]
        for (kernel, argument), count in sorted(self.rows.items()):
            lines.append(f"{kernel:<20} {argument:<14} {count.bytes_loaded:>14,}"
                         f" {count.bytes_stored:>14,}")
        lines.append(f"{'all':<35} {self.bytes_read:>14,} {self.bytes_written:>14,}")
        return "\n".join(lines)


@contextlib.contextmanager
def counting():
    """Count loads and stores of the kernels launched inside; nests.

    Raises TritonUnavailable where kernels do not run in the interpreter: only there can
    an access be seen.
    """
    _need_interpreter("counting")
    counts = Counts()
    token = _counting.set((*_counting.get(), counts))
    try:
        yield counts
    finally:
        _counting.reset(token)


@contextlib.contextmanager
def checking_overflow():
    """Inside, integer arithmetic of a kernel that passes its type's range raises
    OverflowError; otherwise it wraps around, as it does on a GPU. Slower."""
    _need_interpreter("checking_overflow")
    token = _checking_overflow.set(True)
    try:
        yield
    finally:
        _checking_overflow.reset(token)


def _need_interpreter(what: str) -> None:
    from kernels import backend

    choice = backend.current()
    if choice.name != "interpret":
        raise backend.TritonUnavailable(
            f"bounds.{what}() sees kernels in the interpreter only; the backend here is "
            f"{choice.name} ({choice.reason})")


def listeners() -> tuple[Counts, ...]:
    """The counts that are being taken now, outermost first."""
    return _counting.get()


def overflow_is_checked() -> bool:
    return _checking_overflow.get()


def outside(addresses: np.ndarray, mask: np.ndarray, argument: Argument, size: int) -> np.ndarray:
    """True where an unmasked access of `size` bytes does not lie wholly in the argument.

    Addresses are uint64: one below the start wraps to a huge offset, so a single
    comparison catches both sides.
    """
    if argument.nbytes < size:
        return mask.copy()
    offset = addresses - np.uint64(argument.start)
    return (offset > np.uint64(argument.nbytes - size)) & mask


def owner(addresses: np.ndarray, mask: np.ndarray, arguments, size: int) -> Argument | None:
    """The argument that holds all unmasked addresses, for a pointer of unknown origin."""
    for argument in arguments:
        if not outside(addresses, mask, argument, size).any():
            return argument
    return None


def complaint(what, kernel, program, addresses, mask, argument, arguments) -> str:
    """The sentence of the IndexError."""
    asked = int(np.count_nonzero(mask))
    where = f"kernel {kernel}, program {tuple(int(i) for i in program)}: tl.{what}"
    if argument is None:
        names = ", ".join(a.name for a in arguments) or "none"
        return (f"{where} asks for {asked} elements that do not all lie in one tensor argument"
                f" ({names}). Is an offset or a mask wrong?")
    bad = outside(addresses, mask, argument, argument.itemsize)
    first = (int(addresses[bad].flat[0]) - argument.start) // argument.itemsize
    last = argument.nbytes // argument.itemsize - 1
    holds = f"has elements 0 to {last}" if last >= 0 else "is empty"
    return (f"{where} is out of bounds: {int(np.count_nonzero(bad))} of {asked} elements lie"
            f" outside {argument.name}, the first at offset {first}; {argument.name} {holds}."
            " Is a mask missing, or an offset wrong?")
