"""Operators of an exported graph that become others before it is taken apart: views that torch's primitives make
(`prims.view_of`, `prims.split_dim`, ...) become aten's, which alone torch makes functional; and nearest upsampling with
its sizes as the model's own call has it becomes what `interpolate` is exported as, for torch-mlir has the rows of the
former wrong where sizes do not divide. Layers that mix heads become sums (mixed_heads.py), softmaxes with a column that
is left out again weights without one (sinks.py), layers of columns that many rows have alike sums of layers
(spread_columns.py), sorts of which the first elements are read find these alone (sorted_starts.py), those of the places
of a sort invert them (orders_of_orders.py), long sorts of few different numbers have one digit (known_ranges.py),
and counts of numbers of which the program says how many there are, `bincount` with a `minlength` of these, sums by
index. Numbers of rows that are repeated over the elements of rows are expanded, what is read by strides of memory is
read by number (strides.py), quotients of sizes that are rounded are those of integers, and what a dropout that drops
nothing gives, and something writes to, is what it is given."""

from __future__ import annotations

import contextlib
import copy
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import known_ranges, mixed_heads, orders_of_orders, sinks, sorted_starts, spread_columns, strides
from .chosen_elements import choose_elements
from .graph_values import convert, is_written
from .open_views import are_cut_alike
from .rows_of_slices import compute_whole_rows

aten, prims = torch.ops.aten, torch.ops.prims

_RESHAPES = {prims.view_of.default, prims.squeeze.default, prims.split_dim.default, prims.collapse_view.default}
_REWRITTEN = {
    *_RESHAPES,
    prims.transpose.default,
    prims.broadcast_in_dim.default,
    aten.upsample_nearest2d.default,
}
_BY_INDEX = {
    aten.gather.default,
    aten.scatter_add.default,
    aten.scatter_add_.default,
    aten.scatter_reduce.two,
    aten.scatter_reduce_.two,
}
_CASTS = {prims.convert_element_type.default, aten._to_copy.default}
_DROPOUTS = {aten.dropout.default, aten.alpha_dropout.default, aten.feature_dropout.default}
_ROUNDINGS = {math.ceil, math.floor, math.trunc}
_EXTREMA = {torch.sym_max: torch.ops.prim.max.int, torch.sym_min: torch.ops.prim.min.int}
_INDEX = 2  # which of their arguments says where


def rewritten(exported: ExportedProgram) -> ExportedProgram:
    """The program with other operators in their place; the given one when it has none of them."""
    if not any(_is_ours(node) for node in exported.graph.nodes):
        return exported
    exported = copy.deepcopy(exported)
    for node in list(exported.graph.nodes):
        if _is_ours(node):
            _replace(node)
    exported.graph_module.recompile()
    return exported


@contextlib.contextmanager
def views_that_copy(exported: ExportedProgram) -> Iterator[ExportedProgram]:
    """The program, whose views are `reshape` while it is taken apart: where a rule's result lies otherwise than torch's
    own there may be no view. Attention of torch 2.11 gives heads that lie beside one another, so that a trace of
    `nn.MultiheadAttention` has no `contiguous` in front of its view."""
    views = [node for node in exported.graph.nodes if node.op == "call_function" and node.target is aten.view.default]
    try:
        for node in views:
            node.target = aten.reshape.default
        exported.graph_module.recompile()
        yield exported
    finally:
        for node in views:
            node.target = aten.view.default
        exported.graph_module.recompile()


def settle(graph: torch.fx.Graph) -> None:
    """What decompositions could not say of a graph that they took apart. `_unsafe_index_put` is what became of
    `index_put` when its row numbers were counted from the start. Numbers of rows that were expanded over the elements
    of rows, and of which one column is taken again (`rows_of_index` in sums_by_index.py), are taken from what was
    expanded. Powers of open sizes, such as of rows that are paired with each other, are products, and what is left of
    such a size that is divided, as of one that is padded, is a difference, and a sum of several sizes, as of what is
    joined, one of two after another, for torch-mlir has no rule for these; the larger and the smaller of two sizes it
    knows by other names. Views of views are one. What is joined and then rounded is rounded first, by what makes it.
    One element of each row is chosen rather than written, and rows of most of a tensor are computed of all of it."""
    choose_elements(graph)
    compute_whole_rows(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _CASTS:
            _round_parts(node)
    for node in graph.nodes:
        if node.target is operator.pow and isinstance(node.args[1], int) and node.args[1] > 0:
            _multiply(node)
        if node.target is operator.mod and isinstance(node.meta["val"], torch.SymInt):
            _divide(node)
        if node.target is torch.sym_sum:
            _add_up(node)
        if node.op == "call_function" and node.target is aten.view.default:
            _join_views(node)
        node.target = _EXTREMA.get(node.target, node.target)
        if node.op == "call_function" and node.target is aten._unsafe_index_put.default:
            node.target = aten.index_put.default
        source = node
        while source.op == "call_function" and source.target is aten.select.int and source.args[2] == 0:
            source = source.args[0]
        if source is node or source.target is not aten.expand.default or node.meta["val"].dim() != 1:
            continue
        source = source.args[0]
        value = source.meta["val"]
        if sum(not isinstance(size, int) or size != 1 for size in value.shape) > 1:
            continue
        if value.numel() is not node.meta["val"].shape[0] and value.numel() != node.meta["val"].shape[0]:
            continue
        with graph.inserting_before(node):
            taken = graph.call_function(aten.view.default, (source, [-1]))
        taken.meta |= {"stack_trace": node.stack_trace, "val": value.view(-1)}
        node.replace_all_uses_with(taken)
    graph.eliminate_dead_code()


def _round_parts(cast: Node) -> None:
    """Joins what is rounded, where nothing else reads the tensor that is rounded and was joined before."""
    joined, value = cast.args[0], cast.meta["val"]
    if joined.op != "call_function" or joined.target is not aten.cat.default or len(joined.users) > 1:
        return
    parts = joined.args[0]
    if {part.meta["val"].dtype for part in parts} != {joined.meta["val"].dtype}:
        return
    if not value.is_floating_point() or value.dtype.itemsize >= joined.meta["val"].dtype.itemsize:
        return
    with cast.graph.inserting_before(cast):
        rounded = {part: convert(cast.graph, part, value.dtype, cast) for part in dict.fromkeys(parts)}
        made = cast.graph.call_function(aten.cat.default, ([rounded[part] for part in parts], *joined.args[1:]))
    made.meta = dict(cast.meta)
    cast.replace_all_uses_with(made)


def _join_views(node: Node) -> None:
    """A view of a view is one of what that shows: of known sizes torch-mlir finds which dimensions stay as they are,
    and so what joined columns of windows and another cut of them have in common. Of open ones symbols tell."""
    source = node.args[0]
    while source.op == "call_function" and source.target is aten.view.default and _are_known(source.args[0], source):
        source = source.args[0]
    if source is not node.args[0] and _are_known(node):
        node.args = (source, list(node.meta["val"].shape))
        return
    source, shape = node.args[0], node.meta["val"].shape
    while source.op == "call_function" and source.target is aten.view.default and not _are_known(source):
        source = source.args[0]
        if are_cut_alike(source.meta["val"].shape, shape):
            node.args = (source, node.args[1])


def _are_known(*nodes: Node) -> bool:
    return all(isinstance(size, int) for node in nodes for size in node.meta["val"].shape)


def _add_up(sum_: Node) -> None:
    total, *others = sum_.args[0]
    with sum_.graph.inserting_before(sum_):
        for other in others:
            total = _number(sum_, operator.add, total, other)
    sum_.replace_all_uses_with(total)


def _multiply(power: Node) -> None:
    size, exponent = power.args
    product = size
    with power.graph.inserting_before(power):
        for _ in range(exponent - 1):
            product = _number(power, operator.mul, product, size)
    power.replace_all_uses_with(product)


def _divide(rest: Node) -> None:
    size, divisor = rest.args
    with rest.graph.inserting_before(rest):
        product = _number(rest, operator.mul, _number(rest, operator.floordiv, size, divisor), divisor)
        rest.replace_all_uses_with(_number(rest, operator.sub, size, product))


def _rounded(node: Node) -> tuple[Any, Any] | None:
    """The size and its divisor, where a node rounds their quotient."""
    quotient = node.args[0] if node.target in _ROUNDINGS else None
    if not isinstance(quotient, Node) or quotient.target is not operator.truediv:
        return None
    return quotient.args if all(map(_is_size, quotient.args)) else None


def _round(rounded: Node, size: Any, divisor: Any) -> None:
    """ceil(n / k) is (n + k - 1) // k, floor(n / k) is n // k."""
    with rounded.graph.inserting_before(rounded):
        if rounded.target is math.ceil:
            more = _number(rounded, operator.sub, divisor, 1) if isinstance(divisor, Node) else divisor - 1
            size = _number(rounded, operator.add, size, more)
        rounded.replace_all_uses_with(_number(rounded, operator.floordiv, size, divisor))


def _is_size(number: Any) -> bool:
    value = number.meta["val"] if isinstance(number, Node) else number
    return isinstance(value, int | torch.SymInt) and statically_known_true(value >= 0)


def _number(origin: Node, function: Callable[[Any, Any], Any], *operands: Any) -> Node:
    """What a function of two numbers gives, at the line of `origin`."""
    made = origin.graph.call_function(function, operands)
    value = function(*torch.fx.node.map_arg(operands, lambda operand: operand.meta["val"]))
    made.meta |= {"stack_trace": origin.stack_trace, "val": value}
    return made


def _is_ours(node: Node) -> bool:
    if node.op != "call_function":
        return False
    ours = node.target in _REWRITTEN or mixed_heads.place(node) is not None
    ours = (
        ours
        or sinks.parts(node) is not None
        or spread_columns.parts(node) is not None
        or sorted_starts.taken(node) is not None
        or orders_of_orders.is_of_order(node)
        or _rounded(node) is not None
        or strides.asks_stride(node)
        or strides.reads_by_strides(node)
        or _is_written_source(node)
    )
    return ours or known_ranges.is_counted(node) or _counted(node) is not None or bool(_told_by(node))


def _is_written_source(node: Node) -> bool:
    """Whether torch gives a tensor itself, nothing of which is dropped, and something writes to it."""
    return node.target in _DROPOUTS and (not node.args[2] or node.args[1] == 0) and is_written([node], node)


def _told_by(node: Node) -> list[Node]:
    """What a tensor, repeated along dimensions of one element alone, tells where to read or to write."""
    if node.target is not aten.repeat.default:
        return []
    source, counts = node.args
    shape = source.meta["val"].shape
    shape = [1] * (len(counts) - len(shape)) + list(shape)
    if any(not isinstance(size, int) or size != 1 for size, count in zip(shape, counts) if count != 1):
        return []
    readers = [user for user in node.users if user.target in _BY_INDEX and user.args[_INDEX : _INDEX + 1] == (node,)]
    return [] if readers and is_written([source, node], node, max(readers)) else readers


def _expand(node: Node, readers: list[Node]) -> None:
    """Has them read the tensor expanded, which sums_by_index.py knows; others its copy, a memory of its own."""
    source, counts = node.args
    kept = len(counts) - source.meta["val"].dim()
    sizes = [-1 if count == 1 and d >= kept else count for d, count in enumerate(counts)]
    with node.graph.inserting_before(node):
        expanded = node.graph.call_function(aten.expand.default, (source, sizes))
    val = source.meta["val"].expand(node.meta["val"].shape)
    expanded.meta |= {"stack_trace": node.stack_trace, "val": val}
    for reader in readers:
        reader.args = (*reader.args[:_INDEX], expanded, *reader.args[_INDEX + 1 :])


def _counted(node: Node) -> int | None:
    """How many numbers are counted, where that does not depend on the data."""
    if node.target is not aten.bincount.default or len(node.args) < 3 or node.args[1] is not None:
        return None
    size = node.meta["val"].shape[0]
    known = isinstance(size, int) or size.node.expr.is_number
    return int(size) if known else None


def _count(node: Node, size: int) -> None:
    """A number that is not counted is an error, as it would have made the result longer."""
    numbers = node.args[0]
    device = {"device": numbers.meta["val"].device}
    with node.graph.inserting_before(node):
        none = node.graph.call_function(aten.zeros.default, ([size],), {"dtype": torch.int64, **device})
        ones = node.graph.call_function(aten.ones_like.default, (numbers,), {"dtype": torch.int64})
    node.target, node.args, node.kwargs = aten.index_add.default, (none, 0, numbers, ones), {}


def _replace(node: Node) -> None:
    if (at := mixed_heads.place(node)) is not None:
        mixed_heads.mix(node, at)
        return
    if (found := sinks.parts(node)) is not None:
        sinks.weigh(node, *found)
        return
    if (columns := spread_columns.parts(node)) is not None:
        spread_columns.apart(node, columns)
        return
    if (count := sorted_starts.taken(node)) is not None:
        sorted_starts.take(node, count)
        return
    if orders_of_orders.is_of_order(node):
        orders_of_orders.invert(node)
        return
    if strides.asks_stride(node):
        node.replace_all_uses_with(strides.by_sizes(node))
        node.graph.erase_node(node)
        return
    if strides.reads_by_strides(node):
        node.replace_all_uses_with(strides.by_index(node))
        node.graph.erase_node(node)
        return
    if _is_written_source(node):
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)
        return
    if known_ranges.is_counted(node):
        known_ranges.count(node)
        return
    if (size := _counted(node)) is not None:
        _count(node, size)
        return
    if rounded := _rounded(node):
        _round(node, *rounded)
        return
    if readers := _told_by(node):
        _expand(node, readers)
        return
    source, shape = node.args[0], list(node.meta["val"].shape)
    if node.target is aten.upsample_nearest2d.default:
        size, *scales = node.args[1:]
        given = None not in (scales or [None])
        node.args = (source, None if given else size, scales if given else None)
        node.target = aten.upsample_nearest2d.vec
        return
    if node.target is prims.transpose.default:
        node.target = aten.permute.default
        return
    if node.target is prims.broadcast_in_dim.default:
        kept = node.args[2]
        ones = [node.args[0].meta["val"].shape[kept.index(d)] if d in kept else 1 for d in range(len(shape))]
        with node.graph.inserting_before(node):
            source = node.graph.call_function(aten.view.default, (source, ones))
            source.meta |= {"stack_trace": node.stack_trace, "val": node.args[0].meta["val"].view(ones)}
        node.target, node.args = aten.expand.default, (source, shape)
        return
    node.target, node.args = aten.view.default, (source, shape)
