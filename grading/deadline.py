"""A time limit for code that runs in this process, where the system offers a timer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooLate(BaseException):
    """Raised inside the learner's code; no Exception, so that `except Exception` lets it by."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TooLate in the block after `seconds`, and every second from then on.

    Where there is no timer (Windows, threads other than the main one) nothing happens:
    the learner interrupts by hand, the grader's runner has its own clock.
    """
    if not _can_set_a_timer():
        yield
        return

    def ring(signum: int, frame: object) -> None:
        raise TooLate

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _can_set_a_timer() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer") and hasattr(signal, "SIGALRM")
