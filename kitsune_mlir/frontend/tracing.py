"""Traces of torch, one at a time: what torch keeps of one, and what is changed for it, is the whole process's."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import torch
from torch.autograd import forward_ad

from . import checks, late_code, open_transforms, pooling, tensor_notes
from .recurrent_cells import states_of_layers

_turn = threading.RLock()


def _forget_turn() -> None:
    global _turn
    _turn = threading.RLock()  # a forked process may have copied one that is held for ever


os.register_at_fork(after_in_child=_forget_turn)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Within the `with`, torch traces for this thread only, as the modules named here have it."""
    with (
        _turn,
        transforms_ended(),
        checks.unordered(),
        late_code.made_when_called(),
        tensor_notes.without_orders(),
        states_of_layers(),
        pooling.open_sizes(),
        open_transforms.open_sizes(),
    ):
        yield


@contextlib.contextmanager
def transforms_ended() -> Iterator[Callable[[], None]]:
    """What ends torch.func's transforms that a failed trace within the `with` has left; at the end all such are. They
    would wrap anybody's tensors otherwise, and no derivative could be taken forwards any more."""
    functorch = torch._C._functorch
    depth, level = functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level

    def end() -> None:
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)

    try:
        yield end
    finally:
        end()
