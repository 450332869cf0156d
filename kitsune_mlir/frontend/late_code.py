"""Python code of torch's graphs, made when one is called or looked at.

torch writes a graph as Python each time that it has changed it, and compiles that: twenty times for a model that is
exported and taken apart, which is a seventh of what its import takes. Hardly any of those graphs is ever called, for
torch interprets them node by node.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

_write = GraphModule.recompile


@contextlib.contextmanager
def made_when_called() -> Iterator[None]:
    """Within the `with`, a graph that is made or changed has code once it is asked for. For one thread at a time, as
    all tracing."""
    GraphModule.recompile = _leave
    try:
        yield
    finally:
        GraphModule.recompile = _write


class _Late:
    """Stands for a graph's `forward` until that is asked for, of the module or of its class: torch reads its signature
    too."""

    def __init__(self, module: GraphModule):
        self._module = weakref.ref(module)

    def __get__(self, module: GraphModule | None, kind: type) -> Any:
        _write(self._module())  # which sets the class's own
        return (kind if module is None else module).forward


def _leave(module: GraphModule) -> None:
    """What torch's own way does besides the code: how arguments and results nest is known."""
    codegen = module.graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        module._in_spec, module._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
    type(module).forward = _Late(module)
