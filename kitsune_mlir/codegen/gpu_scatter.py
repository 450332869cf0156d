"""tm_tensor.scatter on memrefs -> a kernel.

    tm_tensor.scatter {dimension_map = [0]} ins(%updates : memref<n x 1 x c>, %rows : memref<n x 1 x i64>)
        outs(%table : memref<r x c>) { ^bb0(%update, %old): ... yield %update + %old }

does, for each element of %updates, table[rows[n], c] = update + old. Sums, maxima and the like become
atomics, one thread an update, so repeated rows are right; many are first put into the order of where they go, where
that pays (gpu_runs.py). A body that no atomic does, of updates that may meet, runs one update after the other, in
parallel over the other dimensions only, or, of many updates, over the places that they go to, too (gpu_in_order.py).
Sums of f32 are added four columns, or two, at a time where these are neighbours (PTX ISA, red.v4.f32, from sm_90 on):
memory does as many additions a second whatever they add. The largest and the least of f32 are those of their bits.
Where L2 would not hold the table beside the updates, blocks of columns take their turns. In a module that is to be
deterministic (determinism.py) each row takes its updates in their order (gpu_in_order.py). A row that the table does
not have is left out, and reported (index_checks.py).
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod

from kitsune_mlir.example_sizes import known_shape
from kitsune_mlir.mlir import arith, func, gpu, ir, memref, scf, walk
from kitsune_mlir.planning.target import Target

from .gpu_in_order import InOrder
from .gpu_kernel import (
    THREADS,
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    delinearize,
    extent,
    of_points,
    on_host,
    only_if,
    product,
    thread_of,
)
from .gpu_runs import Part, Runs
from .gpu_sorted_updates import Orders, mapped
from .gpu_updates import Updates, applied
from .gpu_word_access import keeps_words
from .pipeline import device

TURNS = 4  # updates of a thread, or words of them, that are on their way together
FEW_SERIAL = 256  # updates that a thread does one after another before a sort of them, by where they go, is done
FEW = 1 << 18  # of these: fewer are a thread's each
MOST_TABLE, LEAST_PART = 1 << 25, 128  # bytes of a table that are added to together, and of a row of it
_IN_ORDER = ("addf",)  # whose result depends on the order
_CMP = arith.CmpFPredicate
_CHANGES = {"maximumf": _CMP.ULT, "minimumf": _CMP.UGT}  # an element that is no NaN: a value that is one, too
# The largest and the least of floats by their bits, and the NaN that is beyond all: of numbers from zero on as signed
# integers, of others, the larger the less, as unsigned ones. Either way all that were joined before are in order.
_BY_BITS = {"maximumf": ("max.s", "min.u", (1 << 31) - 1), "minimumf": ("min.s", "max.u", -1)}
_ATOMIC = {
    "arith.addf": "addf",
    "arith.addi": "addi",
    "arith.andi": "andi",
    "arith.maximumf": "maximumf",
    "arith.maxnumf": "maxnumf",
    "arith.maxsi": "maxs",
    "arith.minimumf": "minimumf",
    "arith.minnumf": "minnumf",
    "arith.minsi": "mins",
    "arith.ori": "ori",
}


def lower_scatters(main: func.FuncOp, kernels: Kernels, target: Target) -> None:
    """Puts kernels' launches in the place of all."""
    scatters = [op for op in walk(main, "tm_tensor.scatter") if op.block == main.body.blocks[0]]
    orders = Orders(kernels)
    in_turn, runs = InOrder(kernels, orders), Runs(kernels, orders, target)
    several = [] if kernels.deterministic else runs.choose([op for op in scatters if _atomic(op) is not None])
    others = [op for op in scatters if not any(op in group for group in several)]
    for group in several:
        parts = [Part(op, Updates.of(op), partial(_join_all, _atomic(op), _added(op, kernels))) for op in group]
        runs.lower(parts, min(map(_neighbours, group)))
        for part in parts:
            part.op.erase()
            part.source.erase()
    for op in others:
        _lower(op, kernels, in_turn)


def _lower(op: ir.Operation, kernels: Kernels, in_turn: InOrder) -> None:
    """The same of one; `in_turn` is for those whose updates come in their order."""
    block = op.regions[0].blocks[0]
    overwrites = not list(block.arguments[1].uses)  # what then wins where rows repeat is open in torch too
    unique = ir.BoolAttr(op.attributes["unique_indices"]).value
    atomic = None if overwrites else _atomic(op)
    in_order = overwrites or (not unique and (atomic is None or atomic in _IN_ORDER))  # unique: so torch-mlir says
    serial = atomic is None and not (overwrites or unique) and known_shape(op.operands[1])[0] not in range(FEW_SERIAL)
    if (serial or (kernels.deterministic and in_order)) and in_turn.lower(op):
        return
    if kernels.deterministic and in_order:
        atomic, unique, overwrites = None, False, False  # one after another, in parallel over other dimensions
    source = Updates.of(op)
    if atomic is not None:
        _lower_atomic(op, kernels, source, atomic)
    else:
        _lower_plain(op, kernels, source, overwrites or unique)
    op.erase()
    source.erase()


def _lower_atomic(op: ir.Operation, kernels: Kernels, source: Updates, atomic: str) -> None:
    """The launch of a kernel whose threads have TURNS updates each, or words of them, that are loaded together."""
    rank = ir.MemRefType(op.operands[0].type).rank
    together = _added(op, kernels)
    parts = _parts(op, together)

    def sizes_of(see: See) -> list[Size]:
        *outer, last = (_size(op, d, see) for d in range(rank))
        inner = [*outer, last // (together * parts) if together > 1 else last]
        return inner if parts == 1 else [parts, *inner]

    with op.context, op.location, ir.InsertionPoint(op):
        count = product(sizes_of(on_host))
    turns = 1 if source.takes_long or (isinstance(count, int) and count < FEW) else TURNS
    kernel = Kernel(kernels, op, "scatter")
    with kernel.body():
        sizes = sizes_of(kernel.inside)
        table, total = kernel.inside(op.operands[2]), as_value(product(sizes))
        first = thread_of(gpu.block_id(gpu.Dimension.x), THREADS * turns)
        with only_if(first, total), kernels.checks.behind():
            numbers = [arith.addi(first, as_value(THREADS * turn)) for turn in range(turns)]
            last = arith.subi(total, as_value(1))
            positions = [delinearize(arith.minui(number, last) if turns > 1 else number, sizes) for number in numbers]
            for position in positions:
                if parts > 1:
                    position[-1] = arith.addi(arith.muli(position.pop(0), as_value(sizes[-1])), position[-1])
                if together > 1:
                    position[-1] = arith.muli(position[-1], as_value(together))
            targets = [_target(op, kernel.inside(op.operands[1]), position) for position in positions]
            updates = [source.load(kernel, position, together) for position in positions]
            for number, target, values in zip(numbers, targets, updates):
                inside = _inside(op, kernel, table, target)
                if turns > 1:
                    inside = arith.andi(inside, device.below(number, total))
                with device.when(inside):
                    if together > 1:
                        _add_word(values, table, target)
                    else:
                        _join(atomic, values[0], table, target)
    kernel.launch(lambda: ceildiv(count, THREADS * turns))


def _join_all(atomic: str, together: int, values: list[ir.Value], table: ir.Value, target: list[ir.Value]) -> None:
    """Joins neighbouring values to elements of a table from a place on, `together` of them at once where they are
    sums."""
    if together == len(values) > 1:
        _add_word(values, table, target)
        return
    for number, value in enumerate(values):
        _join(atomic, value, table, [*target[:-1], arith.addi(target[-1], as_value(number))])


def _join(atomic: str, value: ir.Value, table: ir.Value, target: list[ir.Value]) -> None:
    """Joins a value to an element of a table. Of the largest and the least of floats the many are spared that would
    change nothing: elements grow, or fall, only, so what a load sees, however old, tells it. No instruction knows those
    of 16 and 64 bits, but a loop of loads and exchanges does them."""
    kind = getattr(arith.AtomicRMWKind, atomic)
    if atomic in _CHANGES:
        before = memref.load(table, target)
        changes = arith.andi(arith.cmpf(_CHANGES[atomic], before, value), arith.cmpf(_CMP.ORD, before, before))
    elif atomic == "addf":
        changes = _is_some([value])
    else:
        memref.atomic_rmw(kind, value, table, target)
        return
    with device.when(changes):
        if atomic in _BY_BITS and isinstance(value.type, ir.F32Type):
            _join_bits(atomic, value, table, target)
        else:
            memref.atomic_rmw(kind, value, table, target)


def _join_bits(atomic: str, value: ir.Value, table: ir.Value, target: list[ir.Value]) -> None:
    """The largest, or the least, of an f32 and an element of a table, by one operation on integers (PTX ISA, red)."""
    above, below, nan = _BY_BITS[atomic]
    is_nan = arith.cmpf(_CMP.UNO, value, value)
    bits = arith.select(is_nan, device.value(nan), arith.bitcast(device.i32(), value))
    names = [f"red.relaxed.gpu.global.{name}32 [$0], $1;" for name in (above, below)]
    text = f"{{\n.reg .pred p;\nsetp.ge.s32 p, $1, 0;\n@p {names[0]}\n@!p {names[1]}\n}}"
    device.assembly(text, _address(table, target), bits)


def _is_some(values: list[ir.Value]) -> ir.Value:
    """Whether any of floats is not zero. Zeros are not added: those of edges that a mask leaves out all go to one row,
    where 150,000 of 200,000 took 850 us (H100)."""
    zero = arith.ConstantOp(values[0].type, 0.0).result
    return reduce(arith.ori, [arith.cmpf(_CMP.UNE, value, zero) for value in values])


def _lower_plain(op: ir.Operation, kernels: Kernels, source: Updates, apart: bool) -> None:
    """The launch of a kernel whose threads have an update each, where they are `apart`, or else all to an element."""
    rank = ir.MemRefType(op.operands[0].type).rank
    spread = range(rank) if apart else range(1, rank)
    with of_points(kernels, op, "scatter", lambda see: [_size(op, d, see) for d in spread]) as (kernel, position):
        if apart:
            _update(op, kernel, source, position)
            return
        loop = scf.ForOp(as_value(0), as_value(_size(op, 0, kernel.inside)), as_value(1))
        with ir.InsertionPoint(loop.body):
            _update(op, kernel, source, [loop.induction_variable, *position])
            scf.yield_([])


def _size(op: ir.Operation, dimension: int, see: See) -> Size:
    """A size of the updates, which `see` does not bring to where it is needed if row numbers have it too."""
    updates, numbers = list(op.operands)[:2]
    return extent(see(numbers), 0) if dimension == 0 else _static(updates, dimension) or extent(see(updates), dimension)


def _static(buffer: ir.Value, dimension: int) -> int | None:
    kind = ir.MemRefType(buffer.type)
    return None if kind.is_dynamic_dim(dimension) else kind.shape[dimension]


def _atomic(op: ir.Operation) -> str | None:
    """The atomic that does what a scatter's body does: joins its two arguments by one operation."""
    block = op.regions[0].blocks[0]
    first, *rest = block.operations
    operation = first.operation
    if len(rest) != 1 or operation.name not in _ATOMIC or rest[0].operands[0] != operation.results[0]:
        return None
    return _ATOMIC[operation.name] if set(operation.operands) == set(block.arguments) else None


def _added(op: ir.Operation, kernels: Kernels) -> int:
    """How many neighbouring columns an atomic operation takes: of sums of f32 a word, where the chip has that."""
    of_words = isinstance(ir.MemRefType(op.operands[2].type).element_type, ir.F32Type) and _atomic(op) == "addf"
    return _neighbours(op) if of_words and kernels.adds_words else 1


def _neighbours(op: ir.Operation) -> int:
    """How many neighbouring columns of a row that no row number names a word of the table may have."""
    updates, table = (ir.MemRefType(op.operands[i].type) for i in (0, 2))
    if updates.rank < 2 or table.rank - 1 in mapped(op):
        return 1
    size, (_, offset) = _static(op.operands[0], updates.rank - 1), table.get_strides_and_offset()
    if size is None or offset != 0:
        return 1
    return next((count for count in (4, 2) if size % count == 0 and keeps_words(op.operands[2], count)), 1)


def _parts(op: ir.Operation, together: int) -> int:
    """How many blocks of columns are added one after another, all rows of one before the next: so many that the part of
    the table that takes them stays in L2, while updates pass through."""
    table = ir.MemRefType(op.operands[2].type)
    if together == 1 or not table.has_static_shape:
        return 1
    nbytes, columns, parts = 4 * prod(table.shape), table.shape[-1], 1
    while (
        nbytes > parts * MOST_TABLE and 4 * columns >= 2 * parts * LEAST_PART and columns % (2 * parts * together) == 0
    ):
        parts *= 2
    return parts


def _add_word(values: list[ir.Value], table: ir.Value, target: list[ir.Value]) -> None:
    """Adds neighbouring f32 to those of a table from a place on."""
    names = ", ".join(f"${i}" for i in range(1, len(values) + 1))
    text = f"red.relaxed.gpu.global.add.v{len(values)}.f32 [$0], {{{names}}};"
    address = _address(table, target)
    with device.when(_is_some(values)):
        device.assembly(text, address, *values)


def _address(table: ir.Value, target: list[ir.Value]) -> ir.Value:
    """That of an element of a table of f32, as an i64."""
    place = memref.extract_aligned_pointer_as_index(table)
    for index, nbytes in zip(target, _bytes_between(table), strict=True):
        place = arith.addi(place, arith.muli(index, as_value(nbytes)))
    return arith.index_cast(ir.IntegerType.get_signless(64), place)


def _bytes_between(table: ir.Value) -> list[Size]:
    """The bytes from one f32 to the next along each dimension, those too that a size behind it leaves open."""
    kind = ir.MemRefType(table.type)
    strides, _ = kind.get_strides_and_offset()
    if kind.get_dynamic_stride_or_offset() not in strides:
        return [4 * stride for stride in strides]
    found = list(memref.extract_strided_metadata(table))[-kind.rank :]
    return [arith.muli(stride, as_value(4)) for stride in found]


def _inside(op: ir.Operation, kernel: Kernel, table: ir.Value, target: list[ir.Value]) -> ir.Value:
    """Whether the table has a place. It is reported where it does not."""
    return reduce(arith.andi, [kernel.check_row(target[dim], extent(table, dim)) for dim in sorted(set(mapped(op)))])


def _update(op: ir.Operation, kernel: Kernel, source: Updates, position: list[ir.Value]) -> None:
    """Applies the update at `position`."""
    rows, table = (kernel.inside(operand) for operand in list(op.operands)[1:])
    target = _target(op, rows, position)
    with device.when(_inside(op, kernel, table, target)):
        (update,) = source.load(kernel, position, 1)
        asks = list(op.regions[0].blocks[0].arguments[1].uses)
        before = memref.load(table, target) if asks else None
        memref.store(applied(op, kernel, update, before), table, target)


def _target(op: ir.Operation, rows: ir.Value, position: list[ir.Value]) -> list[ir.Value]:
    """Where in the table the update at `position` goes: the last dimensions are those of the updates, and
    each column of the row indices is added to the dimension that `dimension_map` gives it."""
    rank = ir.MemRefType(op.operands[2].type).rank
    inner = position[1:]
    target: list[ir.Value | None] = [None] * (rank - len(inner)) + inner
    for column, dim in enumerate(mapped(op)):
        row = memref.load(rows, [position[0], as_value(column)])
        row = arith.index_cast(ir.IndexType.get(), row)
        start = target[dim]
        target[dim] = row if start is None else arith.addi(row, start)
    return [as_value(0) if index is None else index for index in target]
