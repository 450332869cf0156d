"""A limit on the time that work may take in the main thread."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class TimeLimit(BaseException):
    """Time is up. No Exception: libraries that try one way after another swallow those."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimit inside the block after `seconds` of wall time, again each second should it be swallowed.

    Python code and what it waits for is stopped; one long call into C is stopped when it returns.
    """

    def expired(*_: Any) -> None:
        raise TimeLimit(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
