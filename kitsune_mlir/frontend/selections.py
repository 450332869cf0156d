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
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

aten = torch.ops.aten

_SUMS = {aten.scatter_add.default, aten.scatter_add_.default, aten.index_add.default, aten.index_add_.default}
_PUTS = {aten.index_put.default, aten.index_put_.default}
_REDUCES = {aten.scatter_reduce.two, aten.scatter_reduce_.two}
_CHECKS = {
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
}
# What treats rows one by one, beside pointwise operators; dimensions are those of the rows' elements.
_ALONG = {
    aten.select.int,
    aten.slice.Tensor,
    aten.unbind.int,
    aten.chunk.default,
    aten.split.Tensor,
    aten._softmax.default,
    aten.softmax.int,
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.amax.default,
}
_KEEPING = {
    aten.view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.expand.default,
    aten.expand_as.default,
    aten.detach.default,
    aten.detach_.default,
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.dropout.default,
    aten.to.dtype,
    aten._to_copy.default,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.layer_norm.default,
    aten.sym_size.int,
}
# Activations that not every version of torch, or none, has tagged as pointwise.
_ACTIVATIONS = {
    aten.leaky_relu.default,
    aten.leaky_relu_.default,
    aten.elu.default,
    aten.gelu.default,
    aten.hardswish.default,
    aten.hardtanh.default,
    aten.log_sigmoid.default,
    aten.relu6.default,
    aten.silu.default,
    aten.softplus.default,
}
_TAKES = {aten.index.Tensor, aten.index_select.default, aten.embedding.default}


class _Refused(Exception):
    pass


def without_selections(exported: ExportedProgram) -> ExportedProgram:
    """The program without selections; the given one where it has none, or does with them what is not known here."""
    if not any(_mask_of(node) is not None for node in exported.graph.nodes):
        return exported
    changed = copy.deepcopy(exported)
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
                sizes = list(_selected_sizes(node).values())
                if len(sizes) != 1 or _is_selected(found):
                    raise _Refused
                (size,) = sizes
                if self.counts.setdefault(size, (found, found.name))[1] != found.name or _is_selected(node.args[0]):
                    raise _Refused
            else:
                self._visit(node)
        for node, mask in selections:
            node.replace_all_uses_with(self._all(node, mask))
        for node in nodes:
            if node.op == "call_function" and node.target in _CHECKS and _is_unbacked(node.args[0]):
                self.graph.erase_node(node)
        self.graph.eliminate_dead_code()

    def _all(self, selection: Node, mask: Node) -> Node:
        """All rows. Integers that are left out may be no row numbers; 0 is one."""
        source = selection.args[0]
        value = source.meta["val"]
        if value.dtype.is_floating_point or value.dtype == torch.bool:
            return source
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
        elif len({self._masks(size) for source in sources for size in _selected_sizes(source).values()}) > 1:
            raise _Refused
        elif target in _SUMS or target in _REDUCES or target in _PUTS:
            self._leave_out(node)
        elif target in _TAKES:
            if _is_selected(node.args[0]):
                raise _Refused
        elif target in _ALONG:
            dims = node.args[1] if len(node.args) > 1 and target not in (aten.chunk.default, aten.split.Tensor) else 0
            if target in (aten.chunk.default, aten.split.Tensor):
                dims = node.args[2] if len(node.args) > 2 else 0
            rank, selected = node.args[0].meta["val"].dim(), _selected_sizes(node.args[0])
            if dims is None or any(dim % rank in selected for dim in (dims if isinstance(dims, list) else [dims])):
                raise _Refused
        elif target is aten.linear.default:
            if any(_is_selected(source) for source in sources[1:]) or sources[0].meta[
                "val"
            ].dim() - 1 in _selected_sizes(sources[0]):
                raise _Refused
        elif target not in _KEEPING | _ACTIVATIONS and torch.Tag.pointwise not in getattr(target, "tags", ()):
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
            if dims != [0] or where[0].meta["val"].dtype == torch.bool:
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
