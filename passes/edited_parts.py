"""A part of what is computed element by element that is changed in place, as the border of a grid or a source in it, is
changed where it is computed.

    %x = linalg.generic ...                                                        // a step on a grid
    %s = tensor.extract_slice %x[0, 20, 10] [4, 1, 1] [1, 1, 1]
    %v = linalg.generic ins(%s) { arith.addf %in, %force }
    %y = tensor.insert_slice %v into %x[0, 20, 10] [4, 1, 1] [1, 1, 1]
  =>
    %y = linalg.generic ins(%x) { select(index 1 == 20 & index 2 == 10, %in + %force, %in) }

which is fused with what computes %x. A kernel of its own would be a launch for a few elements, behind the others. A
part may be one number, too, and slices of slices in fewer dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kitsune_mlir import rows
from kitsune_mlir.generics import all_hold, cloned, constant_index, generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, made_by, slice_of, users_of

from .row_groups import root, scalar_of

_VIEWS = ("tensor.extract_slice", "tensor.dim", *rows.RESHAPES)


def edit_where_computed(main: ir.Operation) -> None:
    """Rewrites such parts of @main."""
    for op in walk(main, "tensor.insert_slice"):
        whole = op.operands[1]
        maker = made_by(whole, "linalg.generic")
        if maker is None or not rows.Structured(maker).is_elementwise():
            continue
        edit = _edit_of(op, whole)
        if edit is not None and _is_read_by_edits(whole, op):
            with op.location, ir.InsertionPoint(op):
                replace_op(op, _edited(whole, edit))


@dataclass(frozen=True)
class _Box:
    """A part of a tensor: where it begins along each dimension, and how long it is, None where it is all of that. A
    view of the part has such dimensions of it, None for one of a single element."""

    dims: tuple[int | None, ...]
    begins: tuple[int, ...]
    sizes: tuple[int | None, ...]

    def cut(self, op: ir.Operation, view: ir.Value) -> _Box | None:
        """What a slice takes of a view, or is put into. An open size is all of a dimension, or not known."""
        taken = slice_of(op)
        if {*taken.strides, 1} != {1} or len(taken.offsets) != len(self.dims) or rows.DYNAMIC in taken.offsets:
            return None
        begins, sizes = list(self.begins), list(self.sizes)
        given = iter(list(op.operands)[len(op.operands) - taken.sizes.count(rows.DYNAMIC) :])
        whole = rows.known_sizes(view)
        for number, (d, begin, size) in enumerate(zip(self.dims, taken.offsets, taken.sizes)):
            if size == rows.DYNAMIC:
                if begin or whole[number] is not None or not rows.is_size_of(next(given), view, number):
                    return None
            elif d is not None:
                begins[d], sizes[d] = begins[d] + begin, size
        return replace(self, begins=tuple(begins), sizes=tuple(sizes))

    def is_part(self, other: _Box) -> bool:
        return (self.begins, self.sizes) == (other.begins, other.sizes)


@dataclass(frozen=True)
class _Edit:
    """What a part becomes: a constant, a tensor's one number, or what an operator makes of each of its elements."""

    box: _Box
    value: ir.Attribute | ir.Value | ir.Operation


def _box_of(value: ir.Value, whole: ir.Value) -> _Box | None:
    """The part of a tensor that a value is a view of."""
    if value == whole:
        sizes = rows.known_sizes(whole)
        return _Box(tuple(range(len(sizes))), (0,) * len(sizes), tuple(sizes))
    op = made_by(value, "tensor.extract_slice", *rows.RESHAPES)
    if op is None:
        return None
    box = _box_of(op.operands[0], whole)
    if box is None:
        return None
    if op.name == "tensor.extract_slice":
        same = len(rows.shape_of(value)) == len(box.dims)
        return box.cut(op, op.operands[0]) if same else None
    longer = rows.shape_of(op.operands[0] if op.name == "tensor.collapse_shape" else value)
    dims = list[int | None]()
    for number, group in enumerate(rows.groups_of(op)):
        long = [d for d in group if longer[d] != 1]
        if len(long) > 1:
            return None
        if op.name == "tensor.collapse_shape":
            dims.append(
                box.dims[long[0]] if long else next((box.dims[d] for d in group if box.dims[d] is not None), None)
            )
        else:
            dims += [box.dims[number] if d == (long or group)[0] else None for d in group]
    return replace(box, dims=tuple(dims))


def _edit_of(op: ir.Operation, whole: ir.Value) -> _Edit | None:
    """What an insertion changes of a tensor, of which what it is put into is a view."""
    into = _box_of(op.operands[1], whole)
    box = None if into is None else into.cut(op, op.operands[1])
    if box is None:
        return None
    value = root(op.operands[0])
    number = scalar_of(value)
    constant = None if number is None else rows.producer(number)
    if constant is not None and constant.name == "arith.constant":
        return _Edit(box, constant.attributes["value"])
    made = rows.producer(value)
    if made is not None and made.name == "tensor.insert_slice":
        around = _box_of(made.operands[1], whole)
        return _edit_of(made, whole) if around is not None and around.is_part(box) else None
    if made is not None and (alone := _repeated(made)) is not None:
        return _Edit(box, alone)
    if made is None or made.name != "linalg.generic" or not (s := rows.Structured(made)).is_of_elements():
        return None
    read = _box_of(made.operands[0], whole) if s.inputs == 1 and s.maps[0] == s.maps[1] else None
    kinds = {str(element_type(v)) for v in (made.results[0], whole)}
    return _Edit(box, made) if read is not None and read.is_part(box) and len(kinds) == 1 else None


def _repeated(op: ir.Operation) -> ir.Value | None:
    """The tensor of one number, which an operator has everywhere."""
    if op.name != "linalg.generic" or not rows.is_tensor(op.operands[0]) or rows.shape_of(op.operands[0]):
        return None
    (end, *others), argument = reversed(list(op.regions[0].blocks[0].operations)), op.regions[0].blocks[0].arguments[0]
    return op.operands[0] if not others and end.operation.operands[0] == argument else None


def _is_read_by_edits(whole: ir.Value, op: ir.Operation) -> bool:
    """Whether nothing reads a tensor but its change: else both would be in memory."""
    waiting, seen = users_of(whole), set[ir.Operation]()
    while waiting:
        one = waiting.pop()
        if one == op or one in seen or one.name == "tensor.dim":
            continue
        seen.add(one)
        if one.name not in _VIEWS and one.name not in ("linalg.generic", "tensor.insert_slice") or not one.results:
            return False
        waiting += users_of(one.results[0])
        if len(seen) > _MOST_SEEN:
            return False
    return True


_MOST_SEEN = 16  # operations between a tensor and its change


def _edited(whole: ir.Value, edit: _Edit) -> ir.Value:
    kind, box = ir.RankedTensorType(whole.type), edit.box
    numbers = [edit.value] if isinstance(edit.value, ir.Value) else []

    def element(x: ir.Value, *given: ir.Value) -> ir.Value:
        inside = None
        for d, (begin, size) in enumerate(zip(box.begins, box.sizes)):
            if size is None or size == kind.shape[d]:
                continue
            place = linalg.IndexOp(d).result
            place = arith.subi(place, constant_index(begin)) if begin else place
            here = arith.cmpi(arith.CmpIPredicate.ult, place, constant_index(size))
            inside = all_hold(inside, here)
        if isinstance(edit.value, ir.Value):
            value = given[0]
        elif isinstance(edit.value, ir.Attribute):
            value = arith.constant(kind.element_type, edit.value)
        else:
            (value,) = cloned(edit.value.regions[0].blocks[0], [x, x])
        return value if inside is None else arith.select(inside, value, x)

    same = ir.AffineMap.get_identity(kind.rank)
    maps = [same, *[map_of(kind.rank, [])] * len(numbers), same]
    start = tensor.empty(sizes_of(whole), kind.element_type)
    return generic([whole, *numbers], [start], maps, ["parallel"] * kind.rank, element).results[0]
