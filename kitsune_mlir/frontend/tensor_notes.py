"""What torch notes of each tensor of a graph, beside a tensor of the same form, without the order it lies in.

To say that order, torch asks each tensor whether it is contiguous in one way or another, with symbols where sizes are
open: a fourteenth of what the import of a model takes. Nobody reads the answer of graphs that are on their way to MLIR.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator

from torch.fx.experimental import proxy_tensor
from torch.fx.passes import shape_prop

_note = shape_prop._extract_tensor_metadata
_KNOWN = "include_contiguity" in inspect.signature(_note).parameters and hasattr(
    proxy_tensor, "_extract_tensor_metadata"
)


@contextlib.contextmanager
def without_orders() -> Iterator[None]:
    """Within the `with`, tensors of traces are noted so, if it is a torch that can. For one thread at a time, as all
    tracing."""
    if not _KNOWN:
        yield
        return
    proxy_tensor._extract_tensor_metadata = functools.partial(_note, include_contiguity=False)
    try:
        yield
    finally:
        proxy_tensor._extract_tensor_metadata = _note
