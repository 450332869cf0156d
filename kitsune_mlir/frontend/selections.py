"""Rows that a mask selects, `x[mask]`: nobody knows before the call how many, so all rows stay, and those that the mask
leaves out are kept out of sums.

Graph networks select edges so before they add self loops (`remove_self_loops`, `add_remaining_self_loops` of PyG):

    kept = edges[:, mask]                            all = where(mask, edges, 0)
    ends = cat([kept, loops], 1)             =>      ends = cat([all, loops], 1)
                                                     some = cat([mask, ones])
    y = zeros.scatter_add(0, ends[1], f(ends))       y = zeros.scatter_add(0, ends[1], where(some, f(ends), 0))

torch.export has such sizes as symbols of their own. A dimension whose size has one in it holds selected rows: what is
done to such rows one by one is done to all, and a sum, a mean or a maximum, by index or of all of them, gets its
neutral number for those that are left out. What is computed with the number of selected rows is given how many the mask
has. A graph with any other operator on selected rows is left as it is, and refused. selection_forms.py brings masks of
several dimensions, and losses of what is selected, to this form before.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from .row_wise import ALONG, REDUCED, is_row_wise
from .selected_reductions import SPREADS, dims_of, neutral_of, neutral_of_scatter, spread
from .selection_forms import (
    ELEMENTWISE_LOSSES,
    NUMBERS,
    PUTS,
    has_selections,
    in_one_form,
    is_count,
    is_selected,
    is_whole,
    mask_of,
    mask_of_rows,
    selected_sizes,
)

aten = torch.ops.aten

_SUMS = {aten.scatter_add.default, aten.scatter_add_.default, aten.index_add.default, aten.index_add_.default}
_REDUCES = {aten.scatter_reduce.two, aten.scatter_reduce_.two}
_CHECKS = {
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
}
_MEANS = {aten.mean.default, aten.mean.dim}
_CLASSES = {aten.cross_entropy_loss.default, aten.nll_loss_nd.default}
_TAKES = {aten.index.Tensor, aten.index_select.default, aten.embedding.default}


class _Refused(Exception):
    pass


def without_selections(exported: ExportedProgram) -> ExportedProgram:
    """The program without selections; the given one where it has none, or does with them what is not known here."""
    if not has_selections(exported.graph):
        return exported
    changed = copy.deepcopy(exported)
    in_one_form(changed.graph)
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
            if node.op == "output" and any(is_selected(source) for source in node.all_input_nodes):
                raise _Refused
            if node.op != "call_function" or not any(is_selected(n) for n in (node, *node.all_input_nodes)):
                continue
            if (found := mask_of_rows(node)) is not None:
                selections.append((node, found))
                sizes, before = list(selected_sizes(node).values()), list(selected_sizes(found).values())
                if len(sizes) != 1 or list(selected_sizes(node.args[0]).values()) != before:
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
            if node.op == "call_function" and node.target in _CHECKS and is_selected(node.args[0]):
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
            missing = self._missing(mask, value.dim() - dim - 1)
            return self.graph.call_function(aten.masked_fill.Scalar, (source, missing, 0))

    def _visit(self, node: Node) -> None:
        target = node.target
        sources = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), torch.Tensor)]
        if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):
            return  # a size, which follows from what it is the size of
        if any(is_count(one) for one in node.args):
            self._count(node)
        if target is aten.cat.default:
            self._join(node)
        elif target in PUTS and mask_of(node) is not None:
            self._write_where(node)
        elif len({self._masks(size) for source in sources for size in selected_sizes(source).values()}) > 1:
            raise _Refused
        elif target in _SUMS or target in _REDUCES or target in PUTS:
            self._leave_out(node)
        elif target in _TAKES:
            if is_selected(node.args[0]):
                raise _Refused
        elif target in ALONG and not is_whole(node):
            dims, selected = dims_of(node), selected_sizes(node.args[0])
            if dims is None or any(dim in selected for dim in dims):
                self._join_along(node, dims)
        elif target in REDUCED:
            self._join_all(node, REDUCED[target])
        elif target in _CLASSES:
            self._ignore(node)
        elif target is aten.batch_norm.default:
            if node.args[5] or any(is_selected(source) for source in sources[1:]) or 1 in selected_sizes(sources[0]):
                raise _Refused
        elif target is aten.matmul.default:
            left, right = (source.meta["val"].dim() for source in node.args)
            rows, others = (selected_sizes(source) for source in node.args)
            if left - 1 in rows and right > 1 and list(others.items()) == [(right - 2, rows[left - 1])]:
                self._sum_products(node)
            elif left - 1 in rows or any(dim >= right - 2 for dim in others):  # a batch of products may be selected
                raise _Refused
        elif target is aten.linear.default:
            if any(is_selected(source) for source in sources[1:]) or sources[0].meta["val"].dim() - 1 in selected_sizes(
                sources[0]
            ):
                raise _Refused
        elif target not in ALONG and target not in ELEMENTWISE_LOSSES and not is_row_wise(target):
            raise _Refused
        made = node.meta["val"]
        for value in [made] if isinstance(made, torch.Tensor) else made:
            sizes = list(selected_sizes(value).values())
            if len(sizes) > 1 or any(self._masks(size) is None for size in sizes):
                raise _Refused

    def _count(self, node: Node) -> None:
        """Gives an operator that computes with the number of selected rows, which is not that of all, this number."""
        if torch.Tag.pointwise not in node.target.tags:
            raise _Refused
        with self.graph.inserting_before(node):
            node.args = tuple(map(self._number, node.args))

    def _number(self, number: Any) -> Any:
        """A number, as a tensor where it depends on how many rows are selected."""
        if not is_count(number):
            return number
        if number.target in (aten.sym_size.int, aten.sym_numel.default):
            source = number.args[0]
            ((dim, size),) = selected_sizes(source).items()
            others = [one for d, one in enumerate(source.meta["val"].shape) if d != dim]
            if number.target is aten.sym_size.int:
                others = []
            if size not in self.counts or not all(isinstance(one, int) for one in others):
                raise _Refused
            count = self.graph.call_function(aten.sum.default, (self.counts[size][0],))
            return self.graph.call_function(aten.mul.Tensor, (count, math.prod(others))) if others else count
        if number.target not in NUMBERS:
            raise _Refused
        return self.graph.call_function(NUMBERS[number.target], tuple(map(self._number, number.args)))

    def _masks(self, size: str) -> Any:
        return self.counts[size][1] if size in self.counts else None

    def _join(self, node: Node) -> None:
        """A concatenation along selected rows counts what its parts count."""
        parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        dim %= node.meta["val"].dim()
        own_sizes = [selected_sizes(part).get(dim) for part in parts]
        if (size := selected_sizes(node).get(dim)) is None:
            if len({self._masks(one) for part in parts for one in selected_sizes(part).values()}) > 1:
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
        if is_selected(into):
            raise _Refused
        if node.target in PUTS:
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
        size = selected_sizes(index).get(dim if index.meta["val"].dim() > 1 else 0)
        if size is None or list(selected_sizes(source).items()) != [(dim, size)]:
            raise _Refused
        neutral: float = 0
        if node.target in _REDUCES:
            neutral = neutral_of_scatter(node.args[4], value.dtype)
            if neutral is None:
                raise _Refused
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

    def _join_along(self, node: Node, dims: list[int] | None) -> None:
        """One of all rows along some dimensions is one of those that are selected."""
        sizes = selected_sizes(node.args[0])
        neutral = neutral_of(node)
        if not sizes or (neutral is None and node.target not in SPREADS):
            raise _Refused
        if neutral is not None:
            self._join_all(node, neutral)
            return
        ((dim, size),) = sizes.items()
        with self.graph.inserting_before(node):
            missing = self._missing(self.counts[size][0], node.args[0].meta["val"].dim() - dim - 1)
            result = spread(self.graph, node, dims, missing)
        self._replace(node, result)

    def _sum_products(self, node: Node) -> None:
        """Products that are summed over selected rows: zeros for both factors of those that are left out."""
        (size,) = selected_sizes(node.args[0]).values()
        with self.graph.inserting_before(node):
            filled = []
            for factor, behind in zip(node.args, (0, 1), strict=True):
                missing = self._missing(self.counts[size][0], behind)
                filled.append(self.graph.call_function(aten.masked_fill.Scalar, (factor, missing, 0)))
        node.args = tuple(filled)

    def _join_all(self, node: Node, neutral: float) -> None:
        """One of all rows is one of those that are selected; a mean of all, with zeros for those that are left out, is
        as much smaller as they are fewer."""
        source = node.args[0]
        value, ((dim, size),) = source.meta["val"], selected_sizes(source).items()
        if math.isinf(neutral) and not value.dtype.is_floating_point:
            raise _Refused
        with self.graph.inserting_before(node):
            missing = self._missing(self.counts[size][0], value.dim() - dim - 1)
            kept = self.graph.call_function(aten.masked_fill.Scalar, (source, missing, neutral))
            node.args = (kept, *node.args[1:])
            if node.target not in _MEANS:
                return
            kind = torch.promote_types(node.meta["val"].dtype, torch.float32)
            counted = self.graph.call_function(aten.to.dtype, (self.counts[size][0], kind))
            share = self.graph.call_function(aten.mean.default, (counted,))
            mean = self.graph.call_function(node.target, node.args, node.kwargs | {"dtype": kind})
            mean = self.graph.call_function(aten.div.Tensor, (mean, share))
            result = self.graph.call_function(aten.to.dtype, (mean, node.meta["val"].dtype))
        self._replace(node, result)

    def _missing(self, selected: Node, behind: int) -> Node:
        """The rows that are not selected, with so many dimensions behind them."""
        missing = self.graph.call_function(aten.logical_not.default, (selected,))
        return self.graph.call_function(aten.view.default, (missing, [-1] + [1] * behind))

    def _ignore(self, node: Node) -> None:
        """Rows that are left out are of the class that a loss ignores."""
        logits, classes, *rest = node.args
        value = classes.meta["val"]
        of_both = [list(selected_sizes(one)) for one in (logits, classes)]
        if of_both != [[0], [0]] or value.dtype.is_floating_point or logits.meta["val"].dim() == 1:
            raise _Refused
        ignored = node.kwargs.get("ignore_index", rest[2] if len(rest) > 2 else -100)
        (size,) = selected_sizes(classes).values()
        with self.graph.inserting_before(node):
            missing = self._missing(self.counts[size][0], value.dim() - 1)
            classes = self.graph.call_function(aten.masked_fill.Scalar, (classes, missing, ignored))
        node.args = (logits, classes, *rest)

    def _write_where(self, node: Node) -> None:
        """`x[mask] = y`, of the rows of y that the same mask selects, or of one row: a choice."""
        into, where, source, *accumulate = node.args
        (dim,) = (d for d, index in enumerate(where) if index is not None)
        mask, value, given = where[dim], into.meta["val"], source.meta["val"]
        own = selected_sizes(source)
        rows = list(own) == [dim] and given.dim() == value.dim() and self._masks(own[dim]) == mask.name
        if accumulate == [True] or not (rows or (not own and given.dim() < value.dim() - dim) or given.numel() == 1):
            raise _Refused
        with self.graph.inserting_before(node):
            shaped = self.graph.call_function(aten.view.default, (mask, [-1] + [1] * (value.dim() - dim - 1)))
            result = self.graph.call_function(aten.where.self, (shaped, source, into))
        self._replace(node, result)
        self.graph.erase_node(node)

    def _write_beside(self, node: Node) -> None:
        """Rows that are not selected are written to one row more, which is cut off."""
        into, (index,), source = node.args[:3]
        (size,) = selected_sizes(index).values() or (None,)
        if size is None or any(dim for dim in selected_sizes(source)) or index.meta["val"].dim() != 1:
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
