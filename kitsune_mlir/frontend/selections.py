"""Rows that a mask selects, `x[mask]`: nobody knows before the call how many, so all rows stay, and those that the mask
leaves out are kept out of sums.

Graph networks select edges so before they add self loops (`remove_self_loops`, `add_remaining_self_loops` of PyG):

    kept = edges[:, mask]                            all = where(mask, edges, 0)
    ends = cat([kept, loops], 1)             =>      ends = cat([all, loops], 1)
                                                     some = cat([mask, ones])
    y = zeros.scatter_add(0, ends[1], f(ends))       y = zeros.scatter_add(0, ends[1], where(some, f(ends), 0))

torch.export has such sizes as symbols of their own. A dimension whose size has one in it holds selected rows: what is
done to such rows one by one is done to all, and a sum or maximum by index over them gets its neutral number for those
that are left out. A graph with any other operator on selected rows is left as it is, and refused.
"""

from __future__ import annotations

import copy
import math
import sys
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from .row_wise import ALONG, DIM, is_row_wise

aten = torch.ops.aten

_SUMS = {aten.scatter_add.default, aten.scatter_add_.default, aten.index_add.default, aten.index_add_.default}
_PUTS = {aten.index_put.default, aten.index_put_.default}
_REDUCES = {aten.scatter_reduce.two, aten.scatter_reduce_.two}
_CHECKS = {
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
}
# What makes one of all, with what leaves it as it is.
_WHOLE = {aten.sum.default: 0.0, aten.max.default: -math.inf, aten.min.default: math.inf}
_TAKES = {aten.index.Tensor, aten.index_select.default, aten.embedding.default}


class _Refused(Exception):
    pass


def without_selections(exported: ExportedProgram) -> ExportedProgram:
    """The program without selections; the given one where it has none, or does with them what is not known here."""
    if not any(_mask_of(node) is not None or _takes_all(node) for node in exported.graph.nodes):
        return exported
    changed = copy.deepcopy(exported)
    for node in filter(_takes_all, list(changed.graph.nodes)):
        _flatten(node)
    try:
        _Rewriting(changed.graph).run()
    except _Refused:
        return exported
    changed.graph_module.recompile()
    return changed


class _Rewriting:
    """`counts` says, by size, which rows of such a dimension are selected, and by what masks: rows that other masks
    select are other rows, be they as many."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.counts: dict[str, tuple[Node, Any]] = {}

    def run(self) -> None:
        nodes = list(self.graph.nodes)
        selections = []
        for node in nodes:
            if node.op == "output" and any(_is_selected(source) for source in node.all_input_nodes):
                raise _Refused
            if node.op != "call_function" or not any(_is_selected(n) for n in (node, *node.all_input_nodes)):
                continue
            if (found := _mask_of(node)) is not None:
                selections.append((node, found))
                sizes, before = list(_selected_sizes(node).values()), list(_selected_sizes(found).values())
                if len(sizes) != 1 or list(_selected_sizes(node.args[0]).values()) != before:
                    raise _Refused
                (size,) = sizes
                if size not in self.counts:
                    self.counts[size] = self._both(found, before), found.name
                elif self.counts[size][1] != found.name:
                    raise _Refused
            else:
                self._visit(node)
        for node, mask in selections:
            node.replace_all_uses_with(self._all(node, mask))
        for node in nodes:
            if node.op == "call_function" and node.target in _CHECKS and _is_unbacked(node.args[0]):
                self.graph.erase_node(node)
        self.graph.eliminate_dead_code()

    def _both(self, mask: Node, before: list[str]) -> Node:
        """The rows of a mask that are selected, of rows that were selected before, too."""
        if not before:
            return mask
        if before[0] not in self.counts:
            raise _Refused
        with self.graph.inserting_after(mask):
            return self.graph.call_function(aten.logical_and.default, (mask, self.counts[before[0]][0]))

    def _all(self, selection: Node, mask: Node) -> Node:
        """All rows, which may be changed in place as what was selected may. Integers that are left out may be no row
        numbers; 0 is one."""
        source = selection.args[0]
        value = source.meta["val"]
        if value.dtype.is_floating_point or value.dtype == torch.bool:
            with self.graph.inserting_before(selection):
                return self.graph.call_function(aten.clone.default, (source,))
        (dim,) = (d for d, index in enumerate(selection.args[1]) if index is not None)
        with self.graph.inserting_before(selection):
            missing = self.graph.call_function(aten.logical_not.default, (mask,))
            missing = self.graph.call_function(aten.view.default, (missing, [-1] + [1] * (value.dim() - dim - 1)))
            return self.graph.call_function(aten.masked_fill.Scalar, (source, missing, 0))

    def _visit(self, node: Node) -> None:
        target = node.target
        sources = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), torch.Tensor)]
        if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):
            return  # a size, which follows from what it is the size of
        if target is aten.cat.default:
            self._join(node)
        elif target in _PUTS and _is_mask(node.args[1]):
            self._write_where(node)
        elif len({self._masks(size) for source in sources for size in _selected_sizes(source).values()}) > 1:
            raise _Refused
        elif target in _SUMS or target in _REDUCES or target in _PUTS:
            self._leave_out(node)
        elif target in _TAKES:
            if _is_selected(node.args[0]):
                raise _Refused
        elif target in ALONG and not _is_whole(node):
            place = DIM.get(target, 1)
            dims = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
            rank, selected = node.args[0].meta["val"].dim(), _selected_sizes(node.args[0])
            if dims is None or any(dim % rank in selected for dim in (dims if isinstance(dims, list) else [dims])):
                raise _Refused
        elif target in _WHOLE:
            self._join_all(node, _WHOLE[target])
        elif target is aten.batch_norm.default:
            if node.args[5] or any(_is_selected(source) for source in sources[1:]) or 1 in _selected_sizes(sources[0]):
                raise _Refused
        elif target is aten.matmul.default:
            left, right = (source.meta["val"].dim() for source in node.args)
            rows, others = (_selected_sizes(source) for source in node.args)
            if left - 1 in rows or any(dim >= right - 2 for dim in others):  # a batch of products may be selected
                raise _Refused
        elif target is aten.linear.default:
            if any(_is_selected(source) for source in sources[1:]) or sources[0].meta[
                "val"
            ].dim() - 1 in _selected_sizes(sources[0]):
                raise _Refused
        elif target not in ALONG and not is_row_wise(target):
            raise _Refused
        made = node.meta["val"]
        for value in [made] if isinstance(made, torch.Tensor) else made:
            sizes = list(_sizes(value).values())
            if len(sizes) > 1 or any(self._masks(size) is None for size in sizes):
                raise _Refused

    def _masks(self, size: str) -> Any:
        return self.counts[size][1] if size in self.counts else None

    def _join(self, node: Node) -> None:
        """A concatenation along selected rows counts what its parts count."""
        parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        dim %= node.meta["val"].dim()
        own_sizes = [_selected_sizes(part).get(dim) for part in parts]
        if (size := _selected_sizes(node).get(dim)) is None:
            if len({self._masks(one) for part in parts for one in _selected_sizes(part).values()}) > 1:
                raise _Refused
            return
        masks = tuple(own and self._masks(own) for own in own_sizes)
        if size in self.counts:
            if self.counts[size][1] != masks:
                raise _Refused
            return
        pieces = []
        for part, own in zip(parts, own_sizes, strict=True):
            if own:
                pieces.append(self.counts[own][0])
                continue
            with self.graph.inserting_before(node):
                count = self.graph.call_function(aten.sym_size.int, (part, dim))
                kinds = {"dtype": torch.bool, "device": part.meta["val"].device}
                pieces.append(self.graph.call_function(aten.full.default, ([count], True), kinds))
        with self.graph.inserting_before(node):
            self.counts[size] = self.graph.call_function(aten.cat.default, (pieces,)), masks

    def _leave_out(self, node: Node) -> None:
        """The rows that are not selected change nothing."""
        into, *rest = node.args
        if _is_selected(into):
            raise _Refused
        if node.target in _PUTS:
            where, source, *accumulate = rest
            dims = [dim for dim, index in enumerate(where) if index is not None]
            if dims != [0]:
                raise _Refused
            if accumulate != [True]:
                self._write_beside(node)
                return
            dim, index, place = 0, where[0], 2
        else:
            dim, index, source, *_ = rest
            dim, place = dim % into.meta["val"].dim(), 3
        value = source.meta["val"]
        size = _selected_sizes(index).get(dim if index.meta["val"].dim() > 1 else 0)
        if size is None or list(_selected_sizes(source).items()) != [(dim, size)]:
            raise _Refused
        neutral: float = 0
        if node.target in _REDUCES:
            neutral = self._neutral(node.args[4], value.dtype)
        shape = [1] * value.dim()
        shape[dim] = -1
        with self.graph.inserting_before(node):
            missing = self.graph.call_function(aten.logical_not.default, (self.counts[size][0],))
            missing = self.graph.call_function(aten.view.default, (missing, shape))
            kept = self.graph.call_function(aten.masked_fill.Scalar, (source, missing, neutral))
        arguments = list(node.args)
        arguments[place] = kept
        node.args = tuple(arguments)
        includes = node.kwargs.get("include_self", node.args[5] if len(node.args) > 5 else True)
        if node.target in _REDUCES and not includes:
            self._keep_untouched(node, dim, missing)

    def _neutral(self, reduce: str, dtype: torch.dtype) -> float:
        if reduce == "sum":
            return 0
        if reduce not in ("amax", "amin"):
            raise _Refused
        if dtype.is_floating_point:
            return -math.inf if reduce == "amax" else math.inf
        limits = torch.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max

    def _keep_untouched(self, node: Node, dim: int, missing: Node) -> None:
        """What no selected row goes to stays what it was."""
        into, _, index, source = node.args[:4]
        with self.graph.inserting_before(node):
            before = self.graph.call_function(aten.clone.default, (into,))
            here = self.graph.call_function(aten.logical_not.default, (missing,))
            ones = self.graph.call_function(aten.ones_like.default, (source,), {"dtype": torch.int32})
            ones = self.graph.call_function(aten.mul.Tensor, (ones, here))
            none = self.graph.call_function(aten.zeros_like.default, (into,), {"dtype": torch.int32})
            hits = self.graph.call_function(aten.scatter_add.default, (none, dim, index, ones))
            hit = self.graph.call_function(aten.gt.Scalar, (hits, 0))
        with self.graph.inserting_after(node):
            result = self.graph.call_function(aten.where.self, (hit, node, before))
        self._replace(node, result)

    def _join_all(self, node: Node, neutral: float) -> None:
        """One of all rows is one of those that are selected."""
        (source,) = node.args
        value, ((dim, size),) = source.meta["val"], _selected_sizes(source).items()
        if not value.dtype.is_floating_point:
            raise _Refused
        with self.graph.inserting_before(node):
            missing = self.graph.call_function(aten.logical_not.default, (self.counts[size][0],))
            missing = self.graph.call_function(aten.view.default, (missing, [-1] + [1] * (value.dim() - dim - 1)))
            node.args = (self.graph.call_function(aten.masked_fill.Scalar, (source, missing, neutral)),)

    def _write_where(self, node: Node) -> None:
        """`x[mask] = y`, of the rows of y that the same mask selects, or of one row: a choice."""
        into, (mask,), source, *accumulate = node.args
        value, given = into.meta["val"], source.meta["val"]
        own = _selected_sizes(source)
        rows = list(own) == [0] and given.dim() == value.dim() and self._masks(own[0]) == mask.name
        if accumulate == [True] or not (rows or (not own and given.dim() < value.dim()) or given.numel() == 1):
            raise _Refused
        with self.graph.inserting_before(node):
            shaped = self.graph.call_function(aten.view.default, (mask, [-1] + [1] * (value.dim() - 1)))
            result = self.graph.call_function(aten.where.self, (shaped, source, into))
        self._replace(node, result)
        self.graph.erase_node(node)

    def _write_beside(self, node: Node) -> None:
        """Rows that are not selected are written to one row more, which is cut off."""
        into, (index,), source = node.args[:3]
        (size,) = _selected_sizes(index).values() or (None,)
        if size is None or any(dim for dim in _selected_sizes(source)) or index.meta["val"].dim() != 1:
            raise _Refused
        with self.graph.inserting_before(node):
            rows = self.graph.call_function(aten.sym_size.int, (into, 0))
            spare = self.graph.call_function(aten.new_zeros.default, (into, [1, *into.meta["val"].shape[1:]]))
            larger = self.graph.call_function(aten.cat.default, ([into, spare],))
            missing = self.graph.call_function(aten.logical_not.default, (self.counts[size][0],))
            beside = self.graph.call_function(aten.mul.Tensor, (missing, rows))
            kept = self.graph.call_function(aten.masked_fill.Scalar, (index, missing, 0))
            index = self.graph.call_function(aten.add.Tensor, (kept, beside))
            put = self.graph.call_function(aten.index_put.default, (larger, [index], source))
            result = self.graph.call_function(aten.slice.Tensor, (put, 0, 0, rows))
        self._replace(node, result)

    def _replace(self, node: Node, result: Node) -> None:
        """What changes a tensor in place changes it still, for those who read that."""
        result.meta |= node.meta
        if node.target._schema.is_mutable:
            with self.graph.inserting_after(max(node, result, key=list(self.graph.nodes).index)):
                result = self.graph.call_function(aten.copy_.default, (node.args[0], result))
            result.meta |= node.meta
        order = {one: number for number, one in enumerate(self.graph.nodes)}
        node.replace_all_uses_with(result, delete_user_cb=lambda user: order[user] > order[result])


def _takes_all(node: Node) -> bool:
    """Whether a mask of a tensor's first dimensions selects all, for what was selected is as many."""
    if node.op != "call_function" or node.target is not aten.index.Tensor:
        return False
    where, value = node.args[1], node.args[0].meta["val"]
    if len([index for index in where if index is not None]) != 1 or where[0] is None:
        return False
    mask = where[0].meta["val"]
    if mask.dtype != torch.bool or mask.shape != value.shape[: mask.dim()]:
        return False
    return bool(statically_known_true(node.meta["val"].shape[0] == mask.numel()))


def _flatten(node: Node) -> None:
    """Puts all rows in the place of a selection of all."""
    value = node.args[0].meta["val"]
    with node.graph.inserting_before(node):
        result = node.graph.call_function(
            aten.reshape.default, (node.args[0], [-1, *value.shape[node.args[1][0].meta["val"].dim() :]])
        )
    result.meta |= node.meta
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _is_whole(node: Node) -> bool:
    """Whether an operator takes a slice of all that there is."""
    if node.target is not aten.slice.Tensor:
        return False
    start, end, step = (*node.args[2:], *(None, None, None)[len(node.args) - 2 :])
    return start in (None, 0) and end in (None, sys.maxsize) and step in (None, 1)


def _is_mask(where: Any) -> bool:
    """Whether an index of the first dimension is a mask of its rows."""
    given = [index for index in where if index is not None]
    return len(given) == 1 and where[0] is not None and given[0].meta["val"].dtype == torch.bool


def _mask_of(node: Node) -> Node | None:
    """The mask by which an operator selects rows, where it does."""
    if node.op != "call_function" or node.target is not aten.index.Tensor:
        return None
    given = [index for index in node.args[1] if index is not None]
    if len(given) != 1 or given[0].meta["val"].dtype != torch.bool or given[0].meta["val"].dim() != 1:
        return None
    return given[0]


def _is_unbacked(size: Any) -> bool:
    value = size.meta.get("val") if isinstance(size, Node) else size
    return isinstance(value, torch.SymInt | torch.SymBool) and bool(free_unbacked_symbols(value))


def _selected_sizes(node: Node) -> dict[int, str]:
    """The dimensions of a tensor that hold selected rows, and their sizes."""
    return _sizes(node.meta.get("val"))


def _sizes(value: Any) -> dict[int, str]:
    if not isinstance(value, torch.Tensor):
        return {}
    return {dim: str(size.node.expr) for dim, size in enumerate(value.shape) if _is_unbacked(size)}


def _is_selected(node: Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return any(_sizes(one) for one in value)
    return bool(_sizes(value)) or _is_unbacked(node)
