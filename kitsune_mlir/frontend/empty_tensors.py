"""Tensors without elements: nothing computes them.

torch-mlir divides by their sizes where it lowers views of them, which ends the process, and no rows make no pipeline.
"""

from __future__ import annotations

import torch

from .moved_dimensions import open_size


def fill(graph: torch.fx.Graph) -> None:
    """Puts a tensor made from nothing in the place of every operator's result that is known to have no elements."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
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
