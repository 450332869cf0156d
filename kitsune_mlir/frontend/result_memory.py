"""Which results of a graph torch returns in one memory: as views of one tensor, or of an input.

torch returns `x[:, :3]`, `x.t()` or the parts of `y.chunk(2)` without computing anything: tensors in the memory of x or
y. A target may do the same, and must not share memory where torch does not: who changes one result would change
another.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import torch
from torch.fx import Node

from kitsune_mlir.mlir import ir
from kitsune_mlir.program import CHANGED, MEMORY, OWN_MEMORY


def memory_of(returned: Sequence[Node], inputs: Mapping[Node, int], arguments: int) -> list[int]:
    """For each result the number of its memory: equal where torch returns views of one tensor. Below `arguments`, the
    number of arguments, it is that of an argument of @main, among `inputs`, which are those whose memory may be given
    away; OWN_MEMORY for a result that is all of a tensor that no other result shows."""
    roots = [_root(node) for node in returned]
    counts = Counter(roots)
    numbers: dict[Node, int] = {}
    found = []
    for node, root in zip(returned, roots, strict=True):
        if root in inputs:
            found.append(inputs[root])
        elif root.op == "placeholder" or (node is root and counts[root] == 1):
            found.append(OWN_MEMORY)
        else:
            found.append(numbers.setdefault(root, arguments + len(numbers)))
    return found


def give(module: ir.Module, memory: Sequence[int], changed: Collection[int]) -> None:
    """Writes the numbers of the results' memories, and those of the arguments that are changed, to @main."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and op.attributes["sym_name"].value == "main":
            op.attributes[MEMORY] = ir.DenseI64ArrayAttr.get(memory, module.context)
            if changed:
                op.attributes[CHANGED] = ir.DenseI64ArrayAttr.get(sorted(changed), module.context)


def _root(node: Node) -> Node:
    """The tensor that a node is a view of, or the node itself."""
    while _is_view(node):
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    aliases = [result.alias_info for result in node.target._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
