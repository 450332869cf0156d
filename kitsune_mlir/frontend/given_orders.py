"""Inputs whose elements do not lie row by row in the example, as images with channels last: arguments are as they lie.

    %x : f32[8, 64, 56, 56], strides (200704, 1, 3584, 64)          %x : f32[8, 56, 56, 64]
                                                             =>     %1 = aten.permute(%x, [0, 3, 1, 2])
    ... aten.relu(%x)                                               ... aten.relu(%1)

A call gives a view of its input with the dimensions in that order, which copies nothing where it lies as the example
did. Kernels take rows that lie one after another: else each call would copy such an input.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from kitsune_mlir.program import named_symbol

ORDER = "kitsune_order"  # of an input's node: which dimension of the caller's each of its own is


def lie_as_given(graph: torch.fx.Graph, names: Collection[str]) -> dict[str, torch.fx.Node]:
    """Gives the placeholders of these names, which nothing writes, the dimensions in the order in which they lie; gives
    what takes their places, by name."""
    views: dict[str, torch.fx.Node] = {}
    placeholders = graph.find_nodes(op="placeholder")
    for node in placeholders:
        value = node.meta.get("val")
        order = order_of(value) if node.name in names and isinstance(value, torch.Tensor) else None
        if order is None:
            continue
        back = [order.index(d) for d in range(len(order))]
        with graph.inserting_after(placeholders[-1]):
            view = graph.call_function(torch.ops.aten.permute.default, (node, back))
        view.meta["val"] = value
        node.replace_all_uses_with(view, delete_user_cb=lambda user, view=view: user != view)
        node.meta["val"], node.meta[ORDER] = value.permute(order), order
        node.meta.pop("tensor_meta", None)  # what the value was before, which torch-mlir would read first
        views[node.name] = view
    return views


def order_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest, where the tensor's elements lie one after another so; None where
    they do in the order of the dimensions, or not at all."""
    sizes, strides = ([*map(of_example, of)] for of in (value.shape, value.stride()))
    if value.is_complex() or None in sizes or None in strides:
        return None
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d], d))
    expected = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != expected:
            return None
        expected *= sizes[d]
    long = [d for d in order if sizes[d] != 1]
    return None if long == sorted(long) else tuple(order)


def of_example(size: int | torch.SymInt) -> int | None:
    """A size, of one that is open until the call the example's; None where that is not known."""
    if isinstance(size, int):
        return size
    return size.node.hint if size.node.has_hint() else None


def symbol_of(size: torch.SymInt) -> str | None:
    """What an open size is called, with its range; from 2 on is what torch takes for any size. None for one that is
    neither a size of its own nor so many times as much as one, and so much more."""
    expr, env = size.node.expr, size.node.shape_env
    if len(expr.free_symbols) != 1 or not expr.is_polynomial():
        return None
    (own,) = expr.free_symbols
    polynomial = expr.as_poly(own)
    if polynomial.degree() != 1:
        return None
    times, more = polynomial.all_coeffs()
    if not (times.is_Integer and more.is_Integer and times > 0):
        return None
    found = env.bound_sympy(own)
    least, most = (int(times * end + more) if end.is_Integer else None for end in (found.lower, found.upper))
    name = str(own) if expr.is_symbol else f"{times}*{own}+{more}"
    return named_symbol(name, least if found.lower > 2 else None, most)
