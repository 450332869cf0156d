"""Complex tensors as two real ones, for neither linalg's kernels nor torch-mlir's rules know complex elements.

Every node of a complex type becomes two nodes, its real and its imaginary parts:

    %c = aten.view_as_complex(%x)         %re, %im = aten.select(%x, -1, 0), aten.select(%x, -1, 1)
    %y = aten.mul.Tensor(%c, %d)          %y_re = %re * %d_re - %im * %d_im; %y_im = %re * %d_im + %im * %d_re
    %z = aten.view_as_real(%y)            %z = aten.cat([%y_re[..., None], %y_im[..., None]], -1)

A weight of a complex type is an argument with both parts as a last dimension, which is its memory. Discrete Fourier
transforms are in `fourier`. Inputs and results of a complex type are refused where they are met.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from kitsune_mlir.errors import UnsupportedError

from .fourier import is_transform, transform
from .graph_values import call, convert
from .real_pairs import Calls, Pair

aten = torch.ops.aten

# Operators whose parts are the same operator of the parts, as they move elements, choose some or add them up.
_LINEAR = frozenset(
    getattr(aten, name)
    for name in (
        "_unsafe_index_put _unsafe_view alias cat clone constant_pad_nd detach diagonal expand flip gather index "
        "index_add index_put index_select lift_fresh_copy mean neg permute repeat roll scatter scatter_add select "
        "select_scatter slice slice_scatter squeeze stack sum t transpose tril triu unfold unsqueeze view where"
    ).split()
) | {torch.ops.kitsune.rolled}

# What asks how elements lie, which those of parts do in their own way.
_VIEWS = frozenset((aten.view.default, aten._unsafe_view.default))

_LISTS = frozenset((aten.split, aten.split_with_sizes, aten.unbind))


def part_complex_numbers(graph: Graph, name: str, line: Callable[[Node], str]) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place.

    `name` is the model's and `line` says where in it a node stands, for errors. Raises UnsupportedError for an operator
    of complex numbers that has no rule.
    """
    if any(_is_complex(node) or _is_transform(node) for node in graph.nodes):
        _take_pieces(graph)
        _Parting(graph, name, line).run()


def view_weights_as_real(graph: Graph, inputs: set[str]) -> None:
    """Makes placeholders of complex weights, which `inputs` does not name, real, with a last dimension of size 2."""
    placeholders = graph.find_nodes(op="placeholder")
    for node in placeholders:
        if node.name in inputs or not _is_complex(node):
            continue
        value = node.meta["val"]
        with graph.inserting_after(placeholders[-1]):
            whole = graph.call_function(aten.view_as_complex.default, (node,))
        node.replace_all_uses_with(whole, lambda user, whole=whole: user is not whole)
        whole.meta["val"] = value
        node.meta.pop("tensor_meta", None)  # it says what the value was, and torch-mlir asks it first
        with detect_fake_mode((value,)) or contextlib.nullcontext():
            node.meta["val"] = aten.view_as_real.default(value.resolve_conj())


def _take_pieces(graph: Graph) -> None:
    """Makes what `split` and `unbind` give of complex numbers, which are lists, slices and selections of their own."""
    for node in list(graph.nodes):
        if getattr(node.target, "overloadpacket", None) not in _LISTS or not _is_complex(node.args[0]):
            continue
        whole, pieces = node.args[0], node.meta["val"]
        dim = node.args[1 if node.target is aten.unbind.int else 2 :]
        dim = (dim[0] if dim else node.kwargs.get("dim", 0)) % whole.meta["val"].dim()
        starts = [0, *itertools.accumulate(1 if node.target is aten.unbind.int else x.shape[dim] for x in pieces)]
        for taken in list(node.users):
            at = taken.args[1]
            with graph.inserting_before(taken):
                if node.target is aten.unbind.int:
                    piece = call(graph, aten.select.int, (whole, dim, at), node)
                else:
                    piece = call(graph, aten.slice.Tensor, (whole, dim, starts[at], starts[at + 1]), node)
            taken.replace_all_uses_with(piece)
            graph.erase_node(taken)
        graph.erase_node(node)


def _is_complex(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.is_complex()


def _is_transform(node: Node) -> bool:
    """Whether a node is a Fourier transform, which may be one of real numbers to real ones."""
    return is_transform(getattr(node.target, "overloadpacket", None))


def _of_angle(size: Node, angle: Node, to: Calls) -> Pair:
    """The number of this size and angle."""
    cos, sin = to.call(aten.cos.default, angle), to.call(aten.sin.default, angle)
    return to.multiply(size, cos), to.multiply(size, sin)


class _Parting:
    """One walk over the nodes in order. `parts` holds the two that a complex one has become."""

    def __init__(self, graph: Graph, name: str, line: Callable[[Node], str]):
        self.graph, self.name, self.line = graph, name, line
        self.parts: dict[Node, Pair] = {}

    def run(self) -> None:
        whole = []
        for node in list(self.graph.nodes):
            operands = node.all_input_nodes
            complex_numbers = _is_complex(node) or any(map(_is_complex, operands)) or _is_transform(node)
            if node.op != "call_function" or not complex_numbers:
                continue
            if any(_is_complex(operand) and operand not in self.parts for operand in operands):
                continue  # of an input, which is refused behind this
            if node.target is aten._assert_tensor_metadata.default:
                whole.append(node)  # it says the type that the model had
                continue
            with self.graph.inserting_before(node):
                made = self._rule(node)(node, Calls(self.graph, node))
            if isinstance(made, Node):
                node.replace_all_uses_with(made)
            else:
                self.parts[node] = made
            whole.append(node)
        returned = self.graph.output_node().all_input_nodes
        for node in reversed(whole):
            if node not in returned:
                self.graph.erase_node(node)

    def _rule(self, node: Node) -> Callable[[Node, Calls], Pair | Node]:
        packet = getattr(node.target, "overloadpacket", None)
        if packet in _LINEAR:
            return self._part_by_part
        if is_transform(packet):
            return self._transform
        rule = getattr(self, "_" + str(getattr(node.target, "_opname", "")).strip("_"), None)
        return self._refused if rule is None else rule

    def _refused(self, node: Node, to: Calls) -> Pair:
        if node.target is getitem:  # one of the results of what is not known
            node = node.args[0]
        raise UnsupportedError(
            f"{self.name}: {node.target}{self.line(node)} computes with complex numbers; "
            "write it with real numbers: the real and the imaginary parts as tensors of their own"
        )

    def _of(self, operand: Any, to: Calls) -> Pair:
        """An operand's parts: nodes or numbers, in the element type of the node's parts; None for no imaginary part."""
        if isinstance(operand, complex):
            return operand.real, operand.imag
        if not isinstance(operand, Node):
            return operand, None
        pair = self.parts.get(operand, (operand, None))
        re, im = (to.typed(part) for part in pair)
        return re, im

    def _part_by_part(self, node: Node, to: Calls) -> Pair:
        def of_part(index: int) -> Node:
            def choose(operand: Node) -> Any:
                value = operand.meta["val"]
                if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
                    return operand
                part = self._of(operand, to)[index]
                if node.target in _VIEWS and part is not None and not part.meta["val"].is_contiguous():
                    return to.call(aten.clone.default, part, memory_format=torch.contiguous_format)
                return to.call(aten.zeros_like.default, self._of(operand, to)[0]) if part is None else part

            args, kwargs = map_arg((node.args, node.kwargs), choose)
            if node.target is aten.constant_pad_nd.default and len(args) > 2:
                value = complex(args[2])
                args = (*args[:2], (value.real, value.imag)[index])
            kwargs = {key: to.dtype if key == "dtype" and leaf is not None else leaf for key, leaf in kwargs.items()}
            return to.call(node.target, *args, **kwargs)

        return of_part(0), of_part(1)

    def _transform(self, node: Node, to: Calls) -> Pair | Node:
        made = transform(node, self._of(node.args[0], to), to)
        if made is None:
            raise UnsupportedError(
                f"{self.name}: {node.target}{self.line(node)} transforms as many numbers as are open until the call; "
                "fix that size, or give the transform one (n=, s=) that is no less"
            )
        return made

    def _view_as_complex(self, node: Node, to: Calls) -> Pair:
        x = node.args[0]
        return to.call(aten.select.int, x, -1, 0), to.call(aten.select.int, x, -1, 1)

    def _view_as_real(self, node: Node, to: Calls) -> Node:
        re, im = self._of(node.args[0], to)
        last = len(node.meta["val"].shape) - 1
        columns = [to.call(aten.unsqueeze.default, part, last) for part in (re, im)]
        return to.call(aten.cat.default, columns, last)

    def _complex(self, node: Node, to: Calls) -> Pair:
        re, im = (to.expanded(operand) for operand in node.args)
        return re, im

    def _polar(self, node: Node, to: Calls) -> Pair:
        return _of_angle(*node.args, to)

    def _real(self, node: Node, to: Calls) -> Node:
        return self._of(node.args[0], to)[0]

    def _imag(self, node: Node, to: Calls) -> Node:
        return self._of(node.args[0], to)[1]

    def _conj(self, node: Node, to: Calls) -> Pair:
        re, im = self._of(node.args[0], to)
        return re, to.negate(im)

    _conj_physical = _conj

    def _resolve_conj(self, node: Node, to: Calls) -> Pair:
        return self.parts[node.args[0]]

    def _abs(self, node: Node, to: Calls) -> Node:
        re, im = self._of(node.args[0], to)
        return to.call(aten.sqrt.default, to.add(to.multiply(re, re), to.multiply(im, im)))

    def _angle(self, node: Node, to: Calls) -> Node:
        re, im = self._of(node.args[0], to)
        return to.call(aten.atan2.default, im, re)

    def _exp(self, node: Node, to: Calls) -> Pair:
        re, im = self._of(node.args[0], to)
        return _of_angle(to.call(aten.exp.default, re), im, to)

    def _to_copy(self, node: Node, to: Calls) -> Pair | Node:
        re, im = self._of(node.args[0], to)
        if not _is_complex(node):
            return convert(self.graph, re, node.meta["val"].dtype, node)
        return re, im if im is not None else to.zeros()

    _convert_element_type = _to_copy

    def _log(self, node: Node, to: Calls) -> Pair:
        return to.call(aten.log.default, self._abs(node, to)), self._angle(node, to)

    def _sqrt(self, node: Node, to: Calls) -> Pair:
        half = to.multiply(self._angle(node, to), 0.5)
        return _of_angle(to.call(aten.sqrt.default, self._abs(node, to)), half, to)

    def _sin(self, node: Node, to: Calls) -> Pair:
        re, im = self._of(node.args[0], to)
        sin, cos = to.call(aten.sin.default, re), to.call(aten.cos.default, re)
        return to.multiply(sin, to.call(aten.cosh.default, im)), to.multiply(cos, to.call(aten.sinh.default, im))

    def _cos(self, node: Node, to: Calls) -> Pair:
        re, im = self._of(node.args[0], to)
        sin, cos = to.call(aten.sin.default, re), to.call(aten.cos.default, re)
        down = to.negate(to.multiply(sin, to.call(aten.sinh.default, im)))
        return to.multiply(cos, to.call(aten.cosh.default, im)), down

    def _tanh(self, node: Node, to: Calls) -> Pair:
        """(t + i u) / (1 + i t u), where t is tanh of the real part and u is tan of the imaginary one."""
        re, im = self._of(node.args[0], to)
        t, u = to.call(aten.tanh.default, re), to.call(aten.tan.default, im)
        tt, uu = to.multiply(t, t), to.multiply(u, u)
        size = to.add(to.multiply(tt, uu), 1.0)
        return (
            to.divide(to.multiply(t, to.add(uu, 1.0)), size),
            to.divide(to.multiply(u, to.add(to.negate(tt), 1.0)), size),
        )

    def _reciprocal(self, node: Node, to: Calls) -> Pair:
        re, im = self._of(node.args[0], to)
        size = to.add(to.multiply(re, re), to.multiply(im, im))
        return to.divide(re, size), to.divide(to.negate(im), size)

    def _linalg_vector_norm(self, node: Node, to: Calls) -> Node:
        return to.call(node.target, self._abs(node, to), *node.args[1:], **node.kwargs)

    def _eq(self, node: Node, to: Calls) -> Node:
        (a, b), (c, d) = self._operands(node, to)
        same = [to.call(aten.eq.Tensor, to.expanded(x), to.expanded(y)) for x, y in ((a, c), (b, d))]
        return to.call(aten.logical_and.default, *same)

    def _ne(self, node: Node, to: Calls) -> Node:
        return to.call(aten.logical_not.default, self._eq(node, to))

    def _eye(self, node: Node, to: Calls) -> Pair:
        return to.call(node.target, *node.args, dtype=to.dtype), to.zeros()

    def _full(self, node: Node, to: Calls) -> Pair | Node:
        value = complex(node.args[1])
        if not _is_complex(node):
            return convert(self.graph, to.full(value.real), node.meta["val"].dtype, node)
        return to.full(value.real), to.full(value.imag)

    _full_like = _full

    def _scalar_tensor(self, node: Node, to: Calls) -> Pair:
        value = complex(node.args[0])
        return to.full(value.real), to.full(value.imag)

    def _zeros(self, node: Node, to: Calls) -> Pair:
        return to.zeros(), to.zeros()

    _zeros_like = _new_zeros = _empty = _empty_like = _empty_strided = _new_empty = _zeros

    def _squeeze(self, node: Node, to: Calls) -> Pair:
        """That of torch's primitives, which torch takes `unbind` apart into."""
        re, im = (to.call(aten.view.default, part, list(node.meta["val"].shape)) for part in self._of(node.args[0], to))
        return re, im

    def _copy(self, node: Node, to: Calls) -> Pair | Node:
        re, im = self._of(node.args[1], to)
        return (to.expanded(re), to.expanded(im)) if _is_complex(node) else to.expanded(re)

    def _add(self, node: Node, to: Calls, sign: int = 1) -> Pair:
        (a, b), (c, d) = self._operands(node, to)
        scale = sign * node.kwargs.get("alpha", 1)
        c, d = to.multiply(c, scale), to.multiply(d, scale)
        return to.expanded(to.add(a, c)), to.expanded(to.add(b, d))

    def _sub(self, node: Node, to: Calls) -> Pair:
        return self._add(node, to, -1)

    def _mul(self, node: Node, to: Calls) -> Pair:
        (a, b), (c, d) = self._operands(node, to)
        re = to.add(to.multiply(a, c), to.negate(to.multiply(b, d)))
        return to.expanded(re), to.expanded(to.add(to.multiply(a, d), to.multiply(b, c)))

    def _mm(self, node: Node, to: Calls) -> Pair:
        return self._product(node.target, *node.args, node, to)

    _bmm = _mm

    def _addmm(self, node: Node, to: Calls) -> Pair:
        if node.kwargs:
            return self._refused(node, to)
        added, *operands = node.args
        product = aten.mm.default if node.target is aten.addmm.default else aten.bmm.default
        (a, b), (c, d) = self._of(added, to), self._product(product, *operands, node, to)
        return to.add(a, c), to.add(b, d)

    _baddbmm = _addmm

    def _product(self, target: Any, left: Node, right: Node, node: Node, to: Calls) -> Pair:
        """One product of both parts side by side: [a | b] @ [[c, d], [-d, c]]. Of a row, or a column, sums of products
        of numbers, for which nothing is copied."""
        (a, b), (c, d) = self._of(left, to), self._of(right, to)
        columns, last = node.meta["val"].shape[-1], node.meta["val"].dim() - 1
        if node.meta["val"].shape[-2] == 1 or columns == 1:
            across = last - 1 if columns != 1 else last  # the dimension along which sums go
            turn = [*range(last - 1), last, last - 1]
            if across == last:
                c, d = (to.call(aten.permute.default, part, turn) for part in (c, d))
            else:
                a, b = (to.call(aten.permute.default, part, turn) for part in (a, b))
            re = to.add(to.multiply(a, c), to.negate(to.multiply(b, d)))
            im = to.add(to.multiply(a, d), to.multiply(b, c))
            re, im = (to.call(aten.sum.dim_IntList, part, [across], True) for part in (re, im))
            return re, im
        whole = to.call(aten.cat.default, [a, b], last)
        rows = [to.call(aten.cat.default, row, last) for row in ([c, d], [to.negate(d), c])]
        both = to.call(target, whole, to.call(aten.cat.default, rows, last - 1))
        re, im = (to.call(aten.slice.Tensor, both, last, i * columns, (i + 1) * columns) for i in range(2))
        return re, im

    def _div(self, node: Node, to: Calls) -> Pair:
        (a, b), (c, d) = self._operands(node, to)
        if d is None:
            return to.divide(a, c), to.divide(b, c) if b is not None else to.zeros()
        size = to.add(to.multiply(c, c), to.multiply(d, d))
        re = to.add(to.multiply(a, c), to.multiply(b, d))
        im = to.add(to.multiply(b, c), to.negate(to.multiply(a, d)))
        return to.divide(re, size), to.divide(im, size)

    def _operands(self, node: Node, to: Calls) -> tuple[Pair, Pair]:
        left, right = node.args[:2]
        return self._of(left, to), self._of(right, to)
