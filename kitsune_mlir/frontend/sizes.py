"""Sizes of computed tensors, and numbers in tensors that are sizes, computed of those of a graph's inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node, Proxy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_SIZE = torch.ops.aten.sym_size.int
_NUMBERS = {torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default}
_CHECK = torch.ops.aten._assert_scalar.default


def sizes_of_inputs(graph: Graph) -> None:
    """Replaces sizes that are read off tensors by what torch knows them to be, in place, where that is made of inputs'
    sizes and of numbers among the inputs:

        %size = aten.sym_size.int(%convolution, 2)      %size = (%s0 - 1) // 2 + 1
    """
    readers = [node for node in graph.nodes if node.target is _SIZE and node.args[0].op != "placeholder"]
    _replace(graph, {node: node.meta["val"].node.expr for node in readers if _is_open(node)})


def numbers_that_are_sizes(exported: ExportedProgram) -> ExportedProgram:
    """The program with inputs' sizes, and what is computed of them, in place of numbers that are read from tensors and
    that have to be these for the model to fit together; the given one where there are none.

        %longest = aten.item(%most)                     %longest = aten.sym_size.int(%x, 1)
        %mask = aten.arange(%longest) < %lengths        %mask = aten.arange(%longest) < %lengths
        ... %mask beside what is made of %x             ...
    """
    if not _sizes_of_numbers(exported.graph):
        return exported
    exported = copy.deepcopy(exported)
    found = _sizes_of_numbers(exported.graph)
    for node in found:
        _erase_checks(node)
    _replace(exported.graph, found)
    exported.graph_module.recompile()
    return exported


def _sizes_of_numbers(graph: Graph) -> dict[Node, sympy.Expr]:
    """The numbers that are read from tensors and are such sizes, each with what it is: as torch knows it, or as is
    checked."""
    checked = [node.args[0].meta.get("val") for node in graph.nodes if node.target is _CHECK]
    equal = [each.node.expr for each in checked if isinstance(each, torch.SymBool)]
    same = {side: other for one in equal if isinstance(one, sympy.Eq) for side, other in (one.args, one.args[::-1])}
    sizes = {name for node in graph.find_nodes(op="placeholder") for name in _symbols(node.meta.get("val"))}
    readers = [node for node in graph.nodes if node.target in _NUMBERS and _is_open(node)]
    known = {node: node.meta["val"].node.expr for node in readers}
    known = {node: same.get(one, one) for node, one in known.items()}
    return {node: one for node, one in known.items() if one.free_symbols and one.free_symbols <= sizes}


def _symbols(value: Any) -> list[sympy.Symbol]:
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    return [size.node.expr for size in shape if isinstance(size, torch.SymInt) and size.node.expr.is_symbol]


def _is_open(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def _erase_checks(number: Node) -> None:
    """Erases what is asked of a number, and what that alone takes."""
    for user in list(number.users):
        is_left = user in number.users  # and not yet erased with another
        if is_left and (user.target is _CHECK or not isinstance(user.target, torch._ops.OpOverload | str)):
            _erase_checks(user)
    if not number.users and number.target not in _NUMBERS:
        number.graph.erase_node(number)


def _replace(graph: Graph, readers: Mapping[Node, sympy.Expr]) -> None:
    """Computes these of the inputs' sizes and of numbers among the inputs, where they are made so."""
    known = _known(graph) if readers else {}
    for node, expression in readers.items():
        if not expression.free_symbols <= known.keys():
            continue
        with graph.inserting_before(node):
            found = sympy_interp(PythonReferenceAnalysis, known, expression)
        if isinstance(found, Proxy):
            found.node.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(found.node)
            graph.erase_node(node)


def _known(graph: Graph) -> dict[sympy.Symbol, Any]:
    """The symbols that an input, or a size of one, is."""
    known: dict[sympy.Symbol, Any] = {}
    placeholders = graph.find_nodes(op="placeholder")
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in placeholders:
            value = node.meta["val"]
            sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
            for axis, size in sizes:
                if not isinstance(size, torch.SymInt) or not isinstance(size.node.expr, sympy.Symbol):
                    continue
                if size.node.expr not in known:
                    read = node if axis is None else graph.call_function(_SIZE, (node, axis))
                    read.meta["val"] = size
                    known[size.node.expr] = Proxy(read)
    return known
