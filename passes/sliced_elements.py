"""Of what is computed one by one, and read a few columns at a time, such as the sizes of boxes, each reader computes
its own (by prepare-linalg).

    %c = linalg.generic ins(%a, %b : tensor<?x2xf32>, ...) { arith.maximumf }        // width and height
    %w = tensor.extract_slice %c[0, 0] [%n, 1] [1, 1]
    %h = tensor.extract_slice %c[0, 1] [%n, 1] [1, 1]
  =>
    %w = linalg.generic ins(%a0, %b0 : tensor<?x1xf32>, ...) { arith.maximumf }      // of slices of %a and %b
    %h = linalg.generic ins(%a1, %b1 : tensor<?x1xf32>, ...) { arith.maximumf }

So a loss of boxes reads these alone. What a product makes is sliced as it is: its kernel may make the parts. Once
kernels are scheduled (by convert-linalg-to-gpu) parts of any width are computed by the elementwise operators that read
them, such as the gates of a recurrent cell behind the sum of its two layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, sizes_of
from kitsune_mlir.mlir import in_block_order, ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, is_generic, made_by, permutation_of, slice_of, users_of
from kitsune_mlir.planning.kernel_cost import DEAR

from .reshapes import reshaped, slice_at
from .rolled_reads import is_read_elementwise

_FEW = 16  # columns
_TIMES, _LITTLE = 4, 16  # slices that overlap, and operations of an element of which each may compute its own


def compute_slices(module: ir.Module) -> None:
    """Rewrites such operators of a module."""
    for op in walk(module, "tensor.expand_shape"):
        _expand_sooner(op)
    for op in reversed(walk(module, "linalg.generic")):
        parts = users_of(op.results[0]) if len(op.results) == 1 else []
        sliced = bool(parts) and all(part.name == "tensor.extract_slice" for part in parts)
        if sliced and _is_taken(op) and _are_taken(parts, op):
            for part in _alike(parts):
                _compute(part, op)
            op.erase()


def compute_parts(main: ir.Operation) -> None:
    """Has the elementwise operators of @main that read parts of what another one makes, which have nothing in common,
    compute these."""
    for op in reversed(walk(main, "linalg.generic")):
        parts = users_of(op.results[0]) if len(op.results) == 1 else []
        if len(parts) < 2 or any(part.name != "tensor.extract_slice" for part in parts):
            continue
        s = rows.Structured(op)
        identity = ir.AffineMap.get_identity(len(s.iterators))
        known = all(
            _goes_along(map_) or all(_is_other(expr, map_) for expr in map_.results)
            for value, map_ in zip(s.given, s.maps)
            if rows.is_tensor(value)
        )
        alone = known and s.is_of_elements() and s.maps[-1] == identity and _are_taken(parts, op, again=False)
        if alone and all(is_read_elementwise(use) for part in parts for use in part.results[0].uses):
            for part in parts:
                _compute(part, op)
            op.erase()


def _expand_sooner(op: ir.Operation) -> None:
    """Has what is computed one by one in one shape, to be sliced in another one, computed in that."""
    made = made_by(op.operands[0], "linalg.generic")
    if made is None or len(made.results) != 1 or len(list(made.results[0].uses)) != 1:
        return
    s, users = rows.Structured(made), users_of(op.results[0])
    identity = ir.AffineMap.get_identity(len(s.iterators))
    inputs = s.given
    alike = s.is_of_elements() and all(map_ == identity for map_ in s.maps) and all(map(rows.is_tensor, inputs))
    alike = alike and all(map(_is_given, inputs))
    if not alike or not users or any(user.name != "tensor.extract_slice" for user in users):
        return
    kind = ir.RankedTensorType(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        expanded = []
        for value in (*inputs, made.operands[s.inputs]):
            element = element_type(value)
            one = op.clone()
            one.operands[0] = value
            one.results[0].set_type(ir.RankedTensorType.get(kind.shape, element))
            expanded.append(one.results[0])
        maps = [ir.AffineMap.get_identity(kind.rank)] * len(expanded)
        found = generic(expanded[:-1], expanded[-1:], maps, ["parallel"] * kind.rank, s.body)
    replace_op(op, found.results[0])
    made.erase()


def _is_taken(op: ir.Operation) -> bool:
    """Whether an operator computes each element of few columns of tensors of the same form, or vectors of columns,
    that are given, or computed so, and of what all columns have alike."""
    s, shape = rows.Structured(op), rows.shape_of(op.results[0])
    if not shape or not 1 < shape[-1] <= _FEW or not s.is_of_elements():
        return False
    inputs = [(v, m) for v, m in zip(s.given, s.maps) if rows.is_tensor(v)]
    cut = [value for value, map_ in inputs if _goes_along(map_)]
    known = all(_goes_along(map_) or all(_is_other(expr, map_) for expr in map_.results) for _, map_ in inputs)
    return bool(cut) and known and all(map(_is_given, cut))


def _goes_along(map_: ir.AffineMap) -> bool:
    """Whether an operand has columns as the result does, in its last dimension alone."""
    *rest, last = list(map_.results) or [ir.AffineConstantExpr.get(0, map_.context)]
    columns = ir.AffineDimExpr.get(map_.n_dims - 1, map_.context)
    return last == columns and all(_is_other(expr, map_) for expr in rest)


def _is_other(expr: ir.AffineExpr, map_: ir.AffineMap) -> bool:
    """Whether an index is that of a loop other than the columns', or 0."""
    return rows.dim_of(expr) not in (None, map_.n_dims - 1) or expr == ir.AffineConstantExpr.get(0, map_.context)


def _is_given(value: ir.Value) -> bool:
    op = rows.producer(value)
    if op is None:
        return True
    if op.name == "tensor.extract_slice" or op.name in rows.RESHAPES or _is_moved_last(op):
        return _is_given(op.operands[0])
    return is_generic(op) and _is_taken(op)


def _is_moved_last(op: ir.Operation) -> bool:
    """Whether a transpose makes another dimension the last one, and leaves the others in their order."""
    if op.name != "linalg.transpose":
        return False
    order = permutation_of(op)
    return order[:-1] == sorted(order[:-1])


def _are_taken(slices: Sequence[ir.Operation], op: ir.Operation, again: bool = True) -> bool:
    """Whether operations take columns of a tensor, one after the other: none twice, or, where that may be, `again`, few
    of what takes little to compute, as splines are made of neighbours."""
    taken = list[range]()
    for part in slices:
        offsets, sizes, steps = slice_of(part)
        whole = rows.shape_of(part.operands[0])[:-1]
        if (
            any(offsets[:-1])
            or rows.DYNAMIC in (offsets[-1], sizes[-1])
            or sizes[:-1] != whole
            or not rows.is_all_of(part, len(whole))
            or {*steps} != {1}
            or len(rows.shape_of(part.results[0])) != len(sizes)
        ):
            return False
        taken.append(range(offsets[-1], offsets[-1] + sizes[-1]))
    columns = [column for own in taken for column in own]
    return len({*columns}) == len(columns) or (again and len({*taken}) <= _TIMES and takes_little(op))


def takes_little(op: ir.Operation) -> bool:
    """Whether a linalg.generic takes so little for an element that each of its readers may compute its own."""
    names = [inner.operation.name for inner in rows.Structured(op).body.operations]
    return not any(name.startswith("math.") for name in names) and sum(DEAR.get(n, 1) for n in names) <= _LITTLE


def _alike(slices: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The slices without those that are the same as others, whose results these give."""
    found: dict[str, ir.Operation] = {}
    for part in in_block_order(slices):
        first = found.setdefault(str(slice_of(part)), part)
        if first != part:
            replace_op(part, *first.results)
    return list(found.values())


def _compute(part: ir.Operation, op: ir.Operation) -> None:
    """Computes a slice of what an operator gives."""
    s, kind = rows.Structured(op), ir.RankedTensorType(part.results[0].type)
    offsets, sizes, _ = slice_of(part)
    with part.location, ir.InsertionPoint(part):
        inputs = [
            _columns(value, offsets[-1], sizes[-1]) if rows.is_tensor(value) and _goes_along(map_) else value
            for value, map_ in zip(s.given, s.maps)
        ]
        open_ = iter(list(part.operands)[1:])
        shape = [next(open_) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        start = tensor.empty(shape, kind.element_type)
        made = generic(inputs, [start], s.maps, s.iterators, s.body)
    replace_op(part, made.results[0])


def _columns(value: ir.Value, first: int, count: int) -> ir.Value:
    """So many columns of a tensor, which may be columns of another one."""
    kind = ir.RankedTensorType(value.type)
    sizes, offsets = [*kind.shape[:-1], count], [0] * (kind.rank - 1) + [first]
    open_ = [size for size in sizes_of(value, range(kind.rank - 1)) if isinstance(size, ir.Value)]
    op = rows.producer(value)
    if op is not None and count == 1 and _is_moved_last(op):
        return _moved_column(op, first)
    if op is not None and op.name == "tensor.extract_slice":
        before, _, steps = slice_of(op)
        if len(before) == len(offsets) and rows.DYNAMIC not in before and {*steps} == {1}:
            value, offsets = op.operands[0], [a + b for a, b in zip(before, offsets)]
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.ExtractSliceOp(type_, value, [], open_, [], offsets, sizes, [1] * len(sizes)).result


def _moved_column(transpose: ir.Operation, number: int) -> ir.Value:
    """A column of a transposed tensor, which is a slice of the tensor itself in another shape."""
    dim = permutation_of(transpose)[-1]
    part = slice_at(transpose.operands[0], {dim: number})
    return reshaped(part, [*(size if size != rows.DYNAMIC else None for size in rows.shape_of(part)), 1])
