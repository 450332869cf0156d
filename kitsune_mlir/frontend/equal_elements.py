"""Whether computed numbers are equal is asked in the forward pass, and the answer is kept for the backward pass:

    highest = amax(x, 1, keepdim=True)             found = eq(x, highest)          asked beside the maximum
    gradient * eq(x, highest)                  =>  gradient * found

One of the two is often kept, and the other computed again, in a kernel that may round otherwise: then no element would
be the largest, and the gradient of a maximum divides by how many are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils.checkpoint import CheckpointPolicy

from .graph_values import call

aten = torch.ops.aten

_QUESTIONS = {aten.eq.Tensor, aten.ne.Tensor}


def ask_before(graph: Graph, backward: Collection[Node], results: int) -> None:
    """Has what a graph of both passes asks of no gradients asked by its forward pass, of which the first `results` are:
    one of these stands for the answers, too, until `forget`. `backward` is what gradients are computed by."""
    asked = [node for node in graph.nodes if node.target in _QUESTIONS and node not in backward and _is_computed(node)]
    output = graph.output_node()
    found = output.args[0]
    held = next((i for i in range(results) if _is_tensor(found[i])), None)
    if not asked or held is None:
        return
    for node in asked:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    with graph.inserting_before(output):
        both = call(graph, _beside, (found[held], asked), found[held])
    output.args = ((*found[:held], both, *found[held + 1 :]),)


def forget(graph: Graph) -> None:
    """Takes what stands for answers out of a pass that was cut off."""
    for node in graph.find_nodes(op="call_function", target=_beside):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _beside(result: Tensor, answers: Sequence[Tensor]) -> Tensor:
    return result


def _is_computed(question: Node) -> bool:
    """Whether it is about two tensors of real or complex numbers, which both passes could round otherwise."""
    one, other = question.args
    return one is not other and all(_is_tensor(value) and _is_rounded(value) for value in (one, other))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), Tensor)


def _is_rounded(value: Node) -> bool:
    """Whether something was computed for a tensor's numbers."""
    kind = value.meta["val"].dtype
    return (kind.is_floating_point or kind.is_complex) and bool(value.all_input_nodes or value.op == "placeholder")
