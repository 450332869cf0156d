"""Tensors without elements: nothing computes them.

torch-mlir divides by their sizes where it lowers views of them, which ends the process, and no rows make no pipeline.
Nor does it know writes of no elements, after which a tensor is as before.
"""

from __future__ import annotations

import torch

from .moved_dimensions import open_size

aten = torch.ops.aten

_WRITES = {
    aten.index_add, aten.index_copy, aten.index_put, aten.index_reduce, aten._unsafe_index_put, aten.scatter,
    aten.scatter_add, aten.scatter_reduce,
}  # fmt: skip


def fill(graph: torch.fx.Graph) -> None:
    """Puts a tensor made from nothing in the place of every operator's result that is known to have no elements, and
    what an operator writes into in the place of its result, where it is known to write none."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if _writes_nothing(node):
            with graph.inserting_before(node):
                same = graph.call_function(aten.clone.default, (node.args[0],))
            same.meta.update(node.meta)
            node.replace_all_uses_with(same)
            graph.erase_node(node)
            continue
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or 0 not in value.shape:
            continue
        with graph.inserting_before(node):
            given = node.all_input_nodes
            sizes = [size if isinstance(size, int) else open_size(size, *given) for size in value.shape]
            if None in sizes:
                continue
            kind = {"dtype": value.dtype, "device": torch.device("cpu"), "pin_memory": False}
            empty = graph.call_function(torch.ops.aten.full.default, (sizes, 0), kind)
        empty.meta.update(node.meta)
        node.replace_all_uses_with(empty)
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _writes_nothing(node: torch.fx.Node) -> bool:
    """Whether it is an operator that writes by number, one of whose tensors of numbers has no elements."""
    if getattr(node.target, "overloadpacket", None) not in _WRITES:
        return False
    given = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[2]]
    return any(isinstance(one, torch.fx.Node) and 0 in one.meta["val"].shape for one in given)
