"""Arithmetic on the parts of complex numbers, as nodes of a graph."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from .graph_values import call, convert

aten = torch.ops.aten

Part = Any  # a node of a real type, a number, or None for zero
Pair = tuple[Part, Part]  # the real and the imaginary part


class Calls:
    """Makes nodes at the insertion point in place of `origin`, whose line and sizes they have."""

    def __init__(self, graph: Graph, origin: Node):
        self.graph, self.origin = graph, origin
        values = [node.meta["val"] for node in (origin, *origin.all_input_nodes)]
        values = [value for value in values if isinstance(value, torch.Tensor)]
        own = next((value.dtype for value in values if value.is_complex()), values[0].dtype)
        self.dtype: torch.dtype = own.to_real()

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call(self.graph, target, args, self.origin, **kwargs)

    def typed(self, part: Part) -> Part:
        """The part in the element type of the origin's parts; an open size as a tensor of it."""
        if isinstance(part, Node) and isinstance(part.meta["val"], torch.SymInt):
            return self.call(aten.full.default, [], part, dtype=self.dtype)
        return convert(self.graph, part, self.dtype, self.origin) if isinstance(part, Node) else part

    def full(self, value: float) -> Node:
        """A number, in all places of the origin's result."""
        return self.call(aten.full.default, list(self.origin.meta["val"].shape), value, dtype=self.dtype)

    def zeros(self) -> Node:
        return self.full(0.0)

    def expanded(self, part: Part) -> Node:
        """The part in the sizes of the origin's result."""
        shape = self.origin.meta["val"].shape
        if not isinstance(part, Node):
            return self.full(part or 0.0)
        return part if part.meta["val"].shape == shape else self.call(aten.expand.default, part, list(shape))

    def multiply(self, a: Part, b: Part) -> Part:
        if a is None or b is None:
            return None
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(a, Node):
            return a * b
        if isinstance(b, Node):
            return self.call(aten.mul.Tensor, a, b)
        return None if b == 0 else a if b == 1 else self.call(aten.mul.Scalar, a, b)

    def divide(self, a: Part, b: Part) -> Part:
        if a is None:
            return self.zeros()
        if not isinstance(b, Node):
            return self.multiply(a, 1 / b if b else math.copysign(math.inf, b))
        a = a if isinstance(a, Node) else self.call(aten.full_like.default, b, a)
        return self.call(aten.div.Tensor, a, b)

    def add(self, a: Part, b: Part) -> Part:
        if a is None or b is None:
            return b if a is None else a
        if not isinstance(a, Node):
            a, b = b, a
        if not isinstance(a, Node):
            return a + b
        return self.call(aten.add.Tensor if isinstance(b, Node) else aten.add.Scalar, a, b)

    def negate(self, a: Part) -> Part:
        return self.call(aten.neg.default, a) if isinstance(a, Node) else None if a is None else -a
