"""What an operator reads of a concatenation, or of a part of one, it reads of what that is made of, where that lies.

    %a = tensor.extract_slice %x[0, 1] [4096, 1023] [1, 1]
    %b = tensor.extract_slice %x[0, 1023] [4096, 1] [1, 1]
    %c = tensor.concat dim(1) %a, %b : (tensor<4096x1023xf32>, tensor<4096x1xf32>) -> tensor<4096x1024xf32>
    %y = linalg.generic ins(%c, %x) { %c - %x } ...                        // differences, the last one of which is 0
  =>
    %c = linalg.generic { %d = linalg.index 1;  tensor.extract %x[.., %d < 1023 ? %d + 1 : %d - 1023 + 1023] } ...

which is fused with what reads it. So it is with steps of time that see the one before, and with distances between
samples. A tensor with numbers before or behind its elements along an open dimension is a concatenation, too. Of what
has more of itself around it, as reflected images do (self_padding.py), parts are read where they lie. Where the
parts' rows are whole vectors, and one operator alone reads them, it computes part by part (concatenation_readers.py).

Of an open size a part may have no elements. Then an element is taken elsewhere of what the part is a slice of, if that
is as long as what is read, and what is computed of such slices is computed here; else the concatenation stays a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.generics import cloned, constant_index, generic, sizes_of
from kitsune_mlir.mlir import arith, attr_int, clone_on, ir, linalg, tensor, walk
from kitsune_mlir.operations import end_of, operations_of, padding_of, slice_of

from .elements_taken import is_place
from .padded_slices import offsets_of
from .product_follows import is_reduced
from .rolled_reads import is_read_elementwise
from .sliced_elements import takes_little
from .tensor_sizes import TensorSizes

_MOST = 4  # parts of which each reader asks which one has its element

Size = int | ir.Value
Places = list[ir.Value]


@dataclass(frozen=True)
class _Elements:
    """Those of a tensor from these on."""

    table: ir.Value
    offsets: Sequence[Size]


@dataclass(frozen=True)
class _Computed:
    """What an elementwise operator makes of elements; of each input how it is read, and what it is."""

    op: ir.Operation
    inputs: Sequence[tuple[ir.AffineMap, _Source]]


_Source = _Elements | _Computed | ir.Value  # a scalar stands everywhere


@dataclass(frozen=True)
class _Part:
    """So many elements of what something is, along the dimension of a concatenation."""

    size: int | ir.Value  # a tensor is as long as that is
    source: _Source


@dataclass(frozen=True)
class _Read:
    """A concatenation, or a slice of it, from these elements on, that elementwise operators read. `value` has as many
    elements as are read."""

    value: ir.Value
    offsets: Sequence[Size]
    uses: Sequence[ir.OpOperand]


def read_joined(main: ir.Operation) -> None:
    """Rewrites such concatenations of @main that elementwise operators alone read. They are left without readers."""
    sizes = None
    for op in reversed(walk(main, "tensor.concat", "tensor.pad")):
        found = list(_reads_of(op.results[0]))
        if not found or any(read is None for read in found) or (joined := _joined(op)) is None:
            continue
        reads = [read for read in found if read is not None]
        if any(_is_repeated(read) or is_reduced(use.owner.results[0]) for read in reads for use in read.uses):
            continue
        sizes = sizes or TensorSizes(main.regions[0].blocks[0])
        dim, lengths, values = joined
        made = [[_source(value, read.value, dim, sizes) for value in values] for read in reads]
        if any(source is None for sources in made for source in sources):
            continue
        for read, sources in zip(reads, made, strict=True):
            parts = [_Part(n, source) for n, source in zip(lengths, sources, strict=True) if source is not None]
            for use in read.uses:
                with op.location, ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = _elements(
                        read, dim, parts, op.results[0].type.element_type
                    )
                    _read_at_loops(use)


def _is_repeated(read: _Read) -> bool:
    """Whether a reader has more elements than it reads: it would ask for each of them which part has it."""
    points = prod(example_sizes.shape_of(read.value))
    return any(prod(example_sizes.shape_of(use.owner.results[0])) > points for use in read.uses)


def read_moved(main: ir.Operation) -> None:
    """Has elementwise operators of @main that read parts of what an operator takes elsewhere take these there."""
    for op in reversed(walk(main, "linalg.generic")):
        s = rows.Structured(op)
        if s.inputs or len(op.results) != 1 or not s.tables() or not s.is_elementwise():
            continue
        reads = list(_reads_of(op.results[0]))
        if not any(read is not None and read.value != op.results[0] for read in reads):
            continue
        for read in reads:
            for use in read.uses if read is not None and read.value != op.results[0] else []:
                with op.location, ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = _moved(op, read)
                    _read_at_loops(use)


def _moved(op: ir.Operation, read: _Read) -> ir.Value:
    """A part of what an operator without operands gives, at the insertion point."""
    rank, element_type = len(read.offsets), op.results[0].type.element_type

    def element(_: ir.Value) -> ir.Value:
        values = dict[ir.Value, ir.Value | None]()
        *inner, end = operations_of(op.regions[0].blocks[0])
        for one in inner:
            if one.name == "linalg.index":
                d = attr_int(one, "dim")
                values[one.results[0]] = _sum(linalg.IndexOp(d).result, read.offsets[d])
            else:
                clone_on(one, values)
        found = end.operands[0]
        return values.get(found) or found

    start = tensor.empty(_shape(read, 0, constant_index(0)), element_type)
    return generic([], [start], [ir.AffineMap.get_identity(rank)], ["parallel"] * rank, element).results[0]


def _joined(op: ir.Operation) -> tuple[int, Sequence[int | ir.Value], Sequence[ir.Value]] | None:
    """The dimension of a concatenation, how long each part is, and what it is; None for what is none."""
    if op.name == "tensor.concat":
        dim = attr_int(op, "dim")
        parts, sizes = list(op.operands), [rows.shape_of(part)[dim] for part in op.operands]
        lengths = [part if size == rows.DYNAMIC else size for part, size in zip(parts, sizes, strict=True)]
        return (dim, lengths, parts) if 1 < len(parts) <= _MOST else None
    low, high = padding_of(op)
    dims = [d for d in range(len(low)) if low[d] or high[d]]
    number = end_of(op.regions[0].blocks[0]).operands[0]
    source, shape = op.operands[0], rows.shape_of(op.operands[0])
    alone = len(op.operands) == 1 and len(dims) == 1 and shape[dims[0]] == rows.DYNAMIC
    if not alone or min(low[dims[0]], high[dims[0]]) < 0 or number.owner == op.regions[0].blocks[0]:
        return None
    (dim,) = dims
    parts = [(low[dim], number), (source, source), (high[dim], number)]
    parts = [(size, value) for size, value in parts if not isinstance(size, int) or size]
    return dim, [size for size, _ in parts], [value for _, value in parts]


def _reads_of(value: ir.Value) -> Iterator[_Read | None]:
    """What elementwise operators read of a tensor; None for each other reader."""
    uses = [use for use in value.uses if use.owner.name != "tensor.dim" and not _is_unread(use.owner.operation)]
    own = [use for use in uses if is_read_elementwise(use) and not _shifts(use)]
    if own:
        yield _Read(value, [0] * len(rows.shape_of(value)), own)
    for use in uses:
        op = use.owner.operation
        if is_read_elementwise(use):
            if shifts := _shifts(use):
                yield _Read(op.results[0], shifts, [use])
            continue
        offsets = offsets_of(op) if op.name == "tensor.extract_slice" else None
        readers = [further for further in op.results[0].uses if further.owner.name != "tensor.dim"] if offsets else []
        elementwise = bool(readers) and all(is_read_elementwise(reader) and not _shifts(reader) for reader in readers)
        yield _Read(op.results[0], offsets, readers) if offsets and elementwise else None


def _shifts(use: ir.OpOperand) -> list[int]:
    """By how much an operator reads each dimension of an operand behind its own loops, which are as many; none where
    it reads it in another way, or in its own places."""
    map_ = rows.Structured(use.owner.operation).maps[use.operand_number]
    rank = map_.n_dims
    found = [linear(expr, rank) for expr in map_.results]
    shifts = [one[0] for d, one in enumerate(found) if one is not None and one[1] == [int(d == e) for e in range(rank)]]
    return shifts if len(shifts) == len(found) == rank and any(shifts) else []


def _read_at_loops(use: ir.OpOperand) -> None:
    """Has an operator read an operand in its own places that it has read behind them."""
    if _shifts(use):
        maps = rows.Structured(use.owner.operation).maps
        maps[use.operand_number] = ir.AffineMap.get_identity(maps[use.operand_number].n_dims)
        use.owner.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])


def _is_unread(op: ir.Operation) -> bool:
    """Whether an operation is left over from what has been rewritten."""
    return op.name in ("tensor.extract_slice", "tensor.concat", "tensor.pad") and not list(op.results[0].uses)


def _source(value: ir.Value, read: ir.Value, dim: int, sizes: TensorSizes) -> _Source | None:
    """What a part of a concatenation is; None where it may have no elements and nothing else has any."""
    return _source_along(value, [dim], sizes, sizes.shape(read)[dim])


def _source_along(value: ir.Value, dims: Sequence[int], sizes: TensorSizes, length: int) -> _Source | None:
    """The same of a tensor along several dimensions, of which elements are read that are so many."""
    if not rows.is_tensor(value):
        return value
    if (scalar := rows.init_of(value).scalar) is not None:
        return scalar
    op = rows.producer(value)
    table, offsets = value, [0] * len(rows.shape_of(value))
    if op is not None and op.name == "tensor.extract_slice" and (begins := offsets_of(op)) is not None:
        table, offsets = op.operands[0], begins
    if all(_has_elements(table, d, sizes, length) for d in dims):
        return _Elements(table, offsets)
    return _computed(op, dims, sizes, length) if op is not None and op.name == "linalg.generic" else None


def _has_elements(table: ir.Value, dim: int, sizes: TensorSizes, length: int) -> bool:
    """Whether a tensor has elements along a dimension where there is one to be read."""
    size = rows.shape_of(table)[dim]
    return size > 0 if size != rows.DYNAMIC else sizes.shape(table)[dim] == length


def _computed(op: ir.Operation, dims: Sequence[int], sizes: TensorSizes, length: int) -> _Computed | None:
    """What little an elementwise operator makes for one reader."""
    s = rows.Structured(op)
    alone = len(op.results) == 1 and sum(use.owner.name != "tensor.dim" for use in op.results[0].uses) == 1
    if not (takes_little(op) and alone and all(map(is_place, s.maps)) and s.is_of_elements()):
        return None
    inputs = list[tuple[ir.AffineMap, _Source]]()
    for value, map_ in zip(s.given, s.maps):
        along = [axis for axis, expr in enumerate(map_.results) if rows.dim_of(expr) in dims]
        source = _source_along(value, along, sizes, length)
        if source is None:
            return None
        inputs.append((map_, source))
    return _Computed(op, inputs)


def _elements(read: _Read, dim: int, parts: Sequence[_Part], element_type: ir.Type) -> ir.Value:
    """What is read, at the insertion point."""
    kind = ir.RankedTensorType(read.value.type)
    firsts: list[ir.Value] = [constant_index(0)]
    for part in parts:
        (size,) = sizes_of(part.size, [dim]) if isinstance(part.size, ir.Value) else (part.size,)
        firsts.append(_sum(firsts[-1], size))

    def element(_: ir.Value) -> ir.Value:
        places = [_sum(linalg.IndexOp(d).result, offset) for d, offset in enumerate(read.offsets)]
        behind = [arith.cmpi(arith.CmpIPredicate.uge, places[dim], first) for first in firsts[1:-1]]
        own = [[*places[:dim], arith.subi(places[dim], first), *places[dim + 1 :]] for first in firsts[:-1]]
        tables = dict[ir.Value, ir.Value]()
        for part in parts:
            if isinstance(part.source, _Elements) and part.source.table not in tables:
                tables[part.source.table] = _taken(part.source.table, parts, own, behind, dim)
        found = [
            tables[part.source.table]
            if isinstance(part.source, _Elements)
            else _element(part.source, at, [dim], _inside(behind, number))
            for number, (part, at) in enumerate(zip(parts, own, strict=True))
        ]
        return _last(found, behind)

    identity = [ir.AffineMap.get_identity(kind.rank)]
    start = tensor.empty(_shape(read, dim, firsts[-1]), element_type)
    return generic([], [start], identity, ["parallel"] * kind.rank, element).results[0]


def _shape(read: _Read, dim: int, length: ir.Value) -> list[Size]:
    """The sizes of what is read, of a concatenation of so many elements."""
    kind, op = ir.RankedTensorType(read.value.type), rows.producer(read.value)
    assert op is not None
    if op.name == "tensor.extract_slice":
        counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        given = iter(list(op.operands)[1 + counts[1] :])
        return [next(given) if size == rows.DYNAMIC else size for size in slice_of(op).sizes]
    if op.name == "linalg.generic":
        return sizes_of(op.operands[rows.Structured(op).inputs])
    sizes = sizes_of(op.operands[0], [d for d in range(kind.rank) if d != dim])
    return [*sizes[:dim], length if kind.is_dynamic_dim(dim) else kind.shape[dim], *sizes[dim:]]


def _taken(
    table: ir.Value, parts: Sequence[_Part], own: Sequence[Places], behind: Sequence[ir.Value], dim: int
) -> ir.Value:
    """The element of a table that a part of it has, and any where another one has the place."""
    known = [
        _offset(at, part.source.offsets) if isinstance(part.source, _Elements) and part.source.table == table else None
        for part, at in zip(parts, own, strict=True)
    ]
    some = next(at for at in known if at is not None)
    outside = [constant_index(0) if d == dim else place for d, place in enumerate(some)]
    places = zip(*(at or outside for at in known), strict=True)
    return tensor.extract(table, [_last(list(one), behind) for one in places])


def _element(source: _Source, at: Places, dims: Sequence[int], inside: ir.Value) -> ir.Value:
    """An element of what is no table alone; any where a place is not `inside` along these dimensions."""
    if isinstance(source, _Elements):
        places = _offset(at, source.offsets)
        within = [
            arith.select(inside, place, constant_index(0)) if d in dims else place for d, place in enumerate(places)
        ]
        return tensor.extract(source.table, within)
    if not isinstance(source, _Computed):
        return source
    given = list[ir.Value | None]()
    for map_, operand in source.inputs:
        axes = [rows.dim_of(expr) for expr in map_.results]
        places = [constant_index(0) if d is None else at[d] for d in axes]
        given.append(_element(operand, places, [axis for axis, d in enumerate(axes) if d in dims], inside))
    body = source.op.regions[0].blocks[0]
    (found,) = cloned(body, [*given, *[None] * (len(body.arguments) - len(given))])
    return found


def _inside(behind: Sequence[ir.Value], number: int) -> ir.Value:
    """Whether a part of this number has a place."""
    true = arith.constant(ir.IntegerType.get_signless(1), True)
    begins = behind[number - 1] if number else true
    return arith.andi(begins, arith.xori(behind[number], true)) if number < len(behind) else begins


def _last(values: Sequence[ir.Value], behind: Sequence[ir.Value]) -> ir.Value:
    """The one of the last part that begins at a place or before it."""
    found = values[0]
    for value, condition in zip(values[1:], behind, strict=True):
        found = found if value == found else arith.select(condition, value, found)
    return found


def _offset(places: Places, offsets: Sequence[Size]) -> Places:
    return [_sum(place, offset) for place, offset in zip(places, offsets, strict=True)]


def _sum(place: ir.Value, offset: Size) -> ir.Value:
    if isinstance(offset, int):
        return arith.addi(place, constant_index(offset)) if offset else place
    return arith.addi(place, offset)
