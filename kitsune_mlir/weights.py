"""What is the same in every call of a program: a model's own tensors, and what is computed of them alone.

The attribute `kitsune.weights` of @main numbers the arguments that are a model's own and stay as they are. What depends
on those alone is computed once, when the program is loaded (runtime/weight_steps.py): a compiler may spend time and
memory on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import made_by
from kitsune_mlir.program import Argument, Output
from kitsune_mlir.runtime.weight_steps import GROWTH, SMALL
from kitsune_mlir.traffic import tensor_bytes

ATTRIBUTE = "kitsune.weights"
_EMPTY = ("tensor.empty", "arith.constant")
_SHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice", "tensor.concat", "tensor.cast")


def give(module: ir.Module, arguments: Sequence[Argument], outputs: Sequence[Output]) -> None:
    """Says in the module which arguments of @main are weights."""
    changed = {output.mutates for output in outputs}
    own = [i for i, argument in enumerate(arguments) if argument.value is not None and i not in changed]
    for op in module.body.operations if own else ():
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            op.attributes[ATTRIBUTE] = ir.DenseI64ArrayAttr.get(own, module.context)


def numbers(main: ir.Operation) -> list[int]:
    """The numbers of the arguments of @main that are a model's own."""
    return list(ir.DenseI64ArrayAttr(main.attributes[ATTRIBUTE])) if ATTRIBUTE in main.attributes else []


def is_weight(value: ir.Value) -> bool:
    """Whether a tensor is a weight of the program, or computed of such alone."""
    return _origins(value) is not None


def is_kept(value: ir.Value) -> bool:
    """Whether a tensor is computed once, when the program is loaded: of weights, of a size that is known then and not
    much larger than theirs."""
    origins = _origins(value) if ir.RankedTensorType(value.type).has_static_shape else None
    return origins is not None and tensor_bytes(value) <= max(SMALL, GROWTH * sum(map(tensor_bytes, origins)))


def _origins(value: ir.Value) -> list[ir.Value] | None:
    """The weights and constants that a tensor is computed of; None where it is also of something else. Goes from tensor
    to tensor in a loop, for what it is computed of may be a whole deep network, the nearest first: a step of a
    recurrence has an input of its own near it, and the other steps behind the first of its operands."""
    waiting, seen, found = deque([value]), {value}, list[ir.Value]()
    while waiting:
        last = waiting.popleft()
        sources = _sources(last)
        if sources is None:
            return None
        if not sources:
            found.append(last)
        new = [source for source in dict.fromkeys(sources) if source not in seen]
        waiting += new
        seen.update(new)
    return [origin for origin in found if made_by(origin, "tensor.empty") is None]


def _sources(value: ir.Value) -> list[ir.Value] | None:
    """The tensors that must be weights for this one to be; None where it is not computed of tensors alone."""
    if isinstance(value.owner, ir.Block):
        function = value.owner.owner.operation
        own = function.name == "func.func" and ir.BlockArgument(value).arg_number in numbers(function)
        return [] if own else None
    op = value.owner.operation
    name = op.name
    if name in _EMPTY:
        return []
    if name not in _SHAPES and not name.startswith("linalg."):
        return None
    read = [inner.operands[0] for inner in walk(op, "tensor.extract")] if name == "linalg.generic" else []
    return [operand for operand in (*op.operands, *read) if isinstance(operand.type, ir.RankedTensorType)]
