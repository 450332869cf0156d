"""What the simulator finds in a kernel. Each is a bug of the compiler: a GPU may answer it with anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kitsune_mlir.errors import InternalError, UnsupportedError

TOLD = 6  # of those that wait, in a message


class KernelFault(InternalError):
    """Base of what is found. The message is one sentence that names the kernel, and where in the model if known."""

    located = False  # whether the message says where in the model
    named = False  # whether it says in which kernel


class MemoryFault(KernelFault):
    """A race, an access out of bounds, misaligned or of what nobody wrote, or an instruction used against its rules."""


class Deadlock(KernelFault):
    """Everything that is left of a launch waits, or a wait used up its budget. `waiting` has a sentence for each."""

    def __init__(self, waiting: Sequence[str]):
        self.waiting = tuple(waiting)
        more = f"; and {len(waiting) - TOLD} more" if len(waiting) > TOLD else ""
        super().__init__("; ".join(waiting[:TOLD]) + more)


@contextlib.contextmanager
def named(kernel: str) -> Iterator[None]:
    """Puts the kernel's name before what is found inside."""
    try:
        yield
    except KernelFault as fault:
        if not fault.named:
            what = "deadlocks" if isinstance(fault, Deadlock) else "is faulty"
            fault.args, fault.named = (f"kernel {kernel} {what}: {fault}",), True
        raise


def unknown(what: str) -> UnsupportedError:
    """For an operation or instruction that the simulator was not taught."""
    return UnsupportedError(f"the simulator does not know {what}: this kernel runs on a GPU only")
