"""What torch.export does for each operator and each module of a model, in less time and with the same result.

Torch notes for each operator the lines of the model that led to it. It reads the whole stack of calls, of which it
keeps the functions called `forward`: here no others are read. And it has all modules ask the trace for each of their
attributes, as it must where a module is in a model twice; elsewhere the trace gives them back as they are.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.fx import Node, _symbolic_trace, proxy
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import uninteresting_files

_TRACER = getattr(proxy_tensor, "_ModuleStackTracer", None)
_ANCHORS = getattr(proxy, "_STACK_TRACE_ANCHORS", frozenset())  # functions that torch keeps beside these
_KNOWN = (
    hasattr(proxy.TracerBase, "_filter_traceback_frames")
    and all(hasattr(_TRACER, name) for name in ("trace", "create_node", "_record_forward_stack_traces_only"))
    and hasattr(_symbolic_trace, "_Patcher")
)


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Within the `with`, torch.export goes on so, if it is a torch that has these functions. For one thread at a time,
    as all tracing."""
    if not _KNOWN:
        yield
        return
    tracer, patcher = _TRACER, _symbolic_trace._Patcher
    trace, create_node, patch = tracer.trace, tracer.create_node, patcher.patch_method
    watched = True

    def trace_leanly(self: Any, *given: Any) -> Any:
        nonlocal watched
        before, watched = watched, getattr(self, "enable_attr_proxy", True)
        try:
            return trace(self, *given)
        finally:
            watched = before

    def create_with_lines(self: Any, *args: Any, **kwargs: Any) -> Node:
        if not (self.record_stack_traces and self._record_forward_stack_traces_only):
            return create_node(self, *args, **kwargs)
        self.record_stack_traces = False
        try:
            node = create_node(self, *args, **kwargs)
        finally:
            self.record_stack_traces = True
        if not node.stack_trace and (lines := _lines(sys._getframe(1))):
            node.stack_trace = lines
        return node

    def patch_watched(self: Any, kind: type, name: str, *rest: Any, **options: Any) -> None:
        if watched or kind is not torch.nn.Module or name != "__getattr__":
            patch(self, kind, name, *rest, **options)

    tracer.trace, tracer.create_node, patcher.patch_method = trace_leanly, create_with_lines, patch_watched
    try:
        yield
    finally:
        tracer.trace, tracer.create_node, patcher.patch_method = trace, create_node, patch


def _lines(frame: FrameType | None) -> str:
    """The model's lines that led to a call, as torch writes them (`TracerBase._filter_traceback_frames`)."""
    found = []
    while frame is not None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        if name == "forward" or file.endswith("torch/__init__.py") or (file, name) in _ANCHORS:
            if file not in uninteresting_files():
                found.append(traceback.FrameSummary(file, frame.f_lineno, name))
        frame = frame.f_back
    return "".join(traceback.StackSummary.from_list(found[::-1]).format()).strip()
