"""Of what is computed one by one, and read a few columns at a time, such as the sizes of boxes, each reader computes
its own (by prepare-linalg).

    %c = linalg.generic ins(%a, %b : tensor<?x2xf32>, ...) { arith.maximumf }        // width and height
    %w = tensor.extract_slice %c[0, 0] [%n, 1] [1, 1]
    %h = tensor.extract_slice %c[0, 1] [%n, 1] [1, 1]
  =>
    %w = linalg.generic ins(%a0, %b0 : tensor<?x1xf32>, ...) { arith.maximumf }      // of slices of %a and %b
    %h = linalg.generic ins(%a1, %b1 : tensor<?x1xf32>, ...) { arith.maximumf }

So a loss of boxes reads these alone. What a product makes is sliced as it is: its kernel may make the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, replace_op, slice_of, tensor, walk

from .schedule_build import generic

_FEW = 16  # columns


def compute_slices(module: ir.Module) -> None:
    """Rewrites such operators of a module."""
    for op in walk(module, "tensor.expand_shape"):
        _expand_sooner(op)
    for op in reversed(walk(module, "linalg.generic")):
        uses = list(op.results[0].uses) if len(op.results) == 1 else []
        if uses and _is_taken(op) and _are_apart([use.owner.operation for use in uses]):
            for use in uses:
                _compute(use.owner.operation, op)
            op.erase()


def _expand_sooner(op: ir.Operation) -> None:
    """Has what is computed one by one in one shape, to be sliced in another one, computed in that."""
    made = rows.producer(op.operands[0])
    if made is None or made.name != "linalg.generic" or len(made.results) != 1 or len(list(made.results[0].uses)) != 1:
        return
    s, users = rows.Structured(made), [use.owner.operation for use in op.results[0].uses]
    identity = ir.AffineMap.get_identity(len(s.iterators))
    inputs = list(made.operands)[: s.inputs]
    alike = s.is_of_elements() and all(map_ == identity for map_ in s.maps) and all(map(rows.is_tensor, inputs))
    alike = alike and all(map(_is_given, inputs))
    if not alike or not users or any(user.name != "tensor.extract_slice" for user in users):
        return
    kind = ir.RankedTensorType(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        expanded = []
        for value in (*inputs, made.operands[s.inputs]):
            element = ir.RankedTensorType(value.type).element_type
            one = op.clone()
            one.operands[0] = value
            one.results[0].set_type(ir.RankedTensorType.get(kind.shape, element))
            expanded.append(one.results[0])
        maps = [ir.AffineMap.get_identity(kind.rank)] * len(expanded)
        found = generic(expanded[:-1], expanded[-1:], maps, ["parallel"] * kind.rank, s.body)
    replace_op(op, found.results[0])
    made.erase()


def _is_taken(op: ir.Operation) -> bool:
    """Whether an operator computes each element of few columns of tensors of the same form that are given, or computed
    so, and of numbers."""
    s, shape = rows.Structured(op), rows.shape_of(op.results[0])
    if not shape or not 1 < shape[-1] <= _FEW or not s.is_of_elements():
        return False
    identity = ir.AffineMap.get_identity(len(s.iterators))
    inputs = list(zip(list(op.operands)[: s.inputs], s.maps))
    whole = [value for value, map_ in inputs if map_ == identity]
    numbers = all(map_ == identity or map_.results == [] or not rows.is_tensor(value) for value, map_ in inputs)
    return bool(whole) and numbers and all(map(_is_given, whole))


def _is_given(value: ir.Value) -> bool:
    op = rows.producer(value)
    if op is None:
        return True
    if op.name == "tensor.extract_slice" or op.name in rows.RESHAPES:
        return _is_given(op.operands[0])
    return op.name == "linalg.generic" and len(op.results) == 1 and _is_taken(op)


def _are_apart(slices: Sequence[ir.Operation]) -> bool:
    """Whether operations take columns of a tensor, one after the other, none twice."""
    taken = list[int]()
    for op in slices:
        if op.name != "tensor.extract_slice":
            return False
        offsets, sizes, steps = slice_of(op)
        whole = rows.shape_of(op.operands[0])[:-1]
        if (
            any(offsets[:-1])
            or sizes[:-1] != whole
            or {*steps} != {1}
            or len(rows.shape_of(op.results[0])) != len(sizes)
        ):
            return False
        taken += range(offsets[-1], offsets[-1] + sizes[-1])
    return len({*taken}) == len(taken)


def _compute(part: ir.Operation, op: ir.Operation) -> None:
    """Computes a slice of what an operator gives."""
    s, kind = rows.Structured(op), ir.RankedTensorType(part.results[0].type)
    identity = ir.AffineMap.get_identity(len(s.iterators))
    offsets, sizes, steps = slice_of(part)
    with part.location, ir.InsertionPoint(part):
        inputs, own = list[ir.Value](), list(part.operands)[1:]
        for value, map_ in zip(list(op.operands)[: s.inputs], s.maps):
            if map_ == identity and rows.is_tensor(value):
                type_ = ir.RankedTensorType.get(kind.shape, ir.RankedTensorType(value.type).element_type)
                value = tensor.ExtractSliceOp(type_, value, [], own, [], offsets, sizes, steps).result
            inputs.append(value)
        open_ = iter(own)
        shape = [next(open_) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        start = tensor.empty(shape, kind.element_type)
        made = generic(inputs, [start], s.maps, s.iterators, s.body)
    replace_op(part, made.results[0])
