"""Traces of torch, one at a time: what torch keeps of one, and what is changed for it, is the whole process's."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from . import late_code, pooling, tensor_notes
from .recurrent_cells import states_of_layers

_turn = threading.RLock()


def _forget_turn() -> None:
    global _turn
    _turn = threading.RLock()  # a forked process may have copied one that is held for ever


os.register_at_fork(after_in_child=_forget_turn)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Within the `with`, torch traces for this thread only, as the modules named here have it."""
    with _turn, late_code.made_when_called(), tensor_notes.without_orders(), states_of_layers(), pooling.open_sizes():
        yield
