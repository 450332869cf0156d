"""Arithmetic on 8-bit integers, written as arithmetic on 32-bit ones.

torch-mlir makes no 8-bit number of a constant (it dies of a null value instead) and takes uint8 for signed in
most operators. So a tensor of uint8 is declared int8, which has the same bits and the same type in linalg, and
an operator that computes gets its operands in int32 and its result cut to 8 bits, which is to wrap around:

    %y = aten.mul.Scalar(%x, 2)         %w = to int32(%x) & 255; %v = aten.mul.Scalar(%w, 2); %y = to int8(%v)

Operators that only move elements stay as they are, so that 8-bit weights are read as 8 bits, unless they put elements
beside those of another type.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate, map_arg

aten, prims = torch.ops.aten, torch.ops.prims

_NARROW = (torch.int8, torch.uint8)

# Operators that move elements only, and one that multiplies int8 into int32.
_KEPT = frozenset(
    getattr(aten, name)
    for name in (
        "_int_mm _unsafe_view alias as_strided broadcast_to cat clone contiguous copy detach embedding expand flip "
        "gather index index_select lift_fresh_copy narrow permute repeat reshape roll select select_scatter slice "
        "slice_scatter split split_with_sizes squeeze stack sym_size t transpose unbind unfold unsqueeze view"
    ).split()
)
_JOINS = (aten.cat, aten.stack)
_CONVERSIONS = (aten._to_copy, aten.to, prims.convert_element_type)


def widen_narrow_integers(graph: Graph) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place."""
    types = {node: _dtypes(node) for node in graph.nodes}
    if any(dtype in _NARROW for dtypes in types.values() for dtype in dtypes):
        _Widening(types).run()


class _Widening:
    """One walk over the nodes in order. `types` holds what a node's results are in the model."""

    def __init__(self, types: dict[Node, list[torch.dtype]]):
        self.types = types

    def run(self) -> None:
        for node in list(self.types):
            operands = [dtype for operand in node.all_input_nodes for dtype in self.types[operand]]
            results = self.types[node]
            if not any(dtype in _NARROW for dtype in operands + results):
                continue
            if node.op == "placeholder":
                _set_value(node, node.meta["val"].to(torch.int8))
            elif _packet(node) is aten._assert_tensor_metadata:
                node.graph.erase_node(node)  # it says the type that the model had
            elif node.target is operator.getitem:
                self._finish(node, results)
            elif isinstance(node.target, torch._ops.OpOverload):
                self._rewrite(node, operands)
                self._finish(node, results)

    def _rewrite(self, node: Node, operands: list[torch.dtype]) -> None:
        if _packet(node) is aten._int_mm and torch.uint8 in operands:
            node.target = aten.mm.default
        if _packet(node) in _CONVERSIONS:
            # A float beyond 8 bits would have no defined value; by way of int32 it wraps around, as in torch.
            if operands[0] is torch.uint8 or operands[0].is_floating_point:
                self._widen(node, node.args[0])
            _replace_dtypes(node, torch.int8)
        elif _packet(node) not in _KEPT or (_packet(node) in _JOINS and set(operands) != set(self.types[node])):
            if len(set(operands)) == 1 and operands[0] in _NARROW:
                _wrap_numbers(node, operands[0])
            for operand in node.all_input_nodes:
                if _is_narrow(operand):
                    self._widen(node, operand)
            _replace_dtypes(node, torch.int32)

    def _widen(self, node: Node, operand: Node) -> None:
        with node.graph.inserting_before(node):
            wide = _call(node, prims.convert_element_type.default, operand, torch.int32)
            if self.types[operand] == [torch.uint8]:
                wide = _call(node, aten.bitwise_and.Scalar, wide, 255)
        node.replace_input_with(operand, wide)

    def _finish(self, node: Node, results: list[torch.dtype]) -> None:
        """Gives the node its new value, and its users that value in the type that the model has."""
        _set_value(node, _evaluate(node))
        wanted = [torch.int8 if dtype in _NARROW else dtype for dtype in results]
        if len(results) != 1 or _dtypes(node) == wanted:
            return
        users = list(node.users)
        with node.graph.inserting_after(node):
            narrow = _call(node, prims.convert_element_type.default, node, wanted[0])
        for user in users:
            user.replace_input_with(node, narrow)
        self.types[narrow] = results


def _replace_dtypes(node: Node, dtype: torch.dtype) -> None:
    node.args, node.kwargs = map_aggregate((node.args, node.kwargs), lambda leaf: dtype if leaf in _NARROW else leaf)


def _wrap_numbers(node: Node, dtype: torch.dtype) -> None:
    """Wraps the numbers among the operands around, as torch does: x // 300 is x // 44 in 8 bits."""
    kinds = [str(argument.type) for argument in node.target._schema.arguments]
    node.args = tuple(
        torch.tensor(value).to(dtype).item() if type(value) is int and kind in ("Tensor", "number") else value
        for value, kind in zip(node.args, kinds, strict=False)
    )


def _call(place: Node, target: Any, *args: Any) -> Node:
    """A new node, in the model's line that `place` is in."""
    made = place.graph.call_function(target, args)
    made.meta = {key: place.meta[key] for key in ("stack_trace", "nn_module_stack") if key in place.meta}
    made.meta["val"] = _evaluate(made)
    return made


def _evaluate(node: Node) -> Any:
    """The node's fake value, from those of its operands."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    with detect_fake_mode((args, node.meta.get("val"))):
        return node.target(*args, **kwargs)


def _set_value(node: Node, value: Any) -> None:
    node.meta["val"] = value
    node.meta.pop("tensor_meta", None)  # what the value was before, which the importer would read first


def _packet(node: Node) -> Any:
    return getattr(node.target, "_overloadpacket", None)


def _is_narrow(node: Node) -> bool:
    dtypes = _dtypes(node)
    return len(dtypes) == 1 and dtypes[0] in _NARROW


def _dtypes(node: Node) -> list[torch.dtype]:
    value = node.meta.get("val")
    return [leaf.dtype for leaf in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(leaf, Tensor)]
