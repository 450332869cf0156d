"""Code of the loop nests: all threads of a CTA over one row tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import device, products
from .device import Int
from .evaluate import Evaluator
from .memory import Memory, compute_type, element_of, shape_of
from .nests import Nest

THREADS = 32 * products.WARPS
WORD = 16  # bytes of the widest access
# Combiners of reductions that may be done in any order, with what they start from.
IDENTITY = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -inf,
    "arith.maxnumf": -inf,
    "arith.minimumf": inf,
    "arith.minnumf": inf,
}


def unflatten(column: Int, sizes: Sequence[int]) -> list[Int]:
    """Indices of a flattened column in dimensions of the given sizes."""
    found: list[Int] = []
    for d in range(len(sizes)):
        place = device.div(column, prod(sizes[d + 1 :]))
        found.append(place if d == 0 else device.mod(place, sizes[d]))
    return found


def emit_map(value: ir.Value, memories: dict[int, Memory], targets: Sequence[Memory]) -> None:
    """Stores every element of a value; a tile that lies in memory is copied 16 bytes at a time."""
    source = memories.get(hash(value))
    if source is not None and all(_copies_in_words(source, target) for target in targets):
        _emit_copy(source, targets)
        return
    shape = shape_of(value)
    columns = prod(shape[1:])

    def body(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        row, column = device.div(i, columns), device.mod(i, columns)
        x = Evaluator(memories)(value, [row, *unflatten(column, shape[1:])])
        for target in targets:
            target.store(row, column, x)
        return []

    device.loop(device.thread(), shape[0] * columns, THREADS, body)


def _copies_in_words(source: Memory, target: Memory) -> bool:
    """Whether rows of both are whole 16-byte words at 16-byte places, and rows to be dropped do not exist."""
    size = element_bytes(source.element)
    whole = all(count * size % WORD == 0 for count in (source.columns, source.stride, target.stride))
    return whole and target.valid is None and source.element == target.element


def _emit_copy(source: Memory, targets: Sequence[Memory]) -> None:
    count = WORD // element_bytes(source.element)  # elements a word
    words = source.columns // count
    type_ = ir.VectorType.get([WORD // 4], device.i32())

    def body(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        row, column = device.div(i, words), device.mul(device.mod(i, words), count)
        x = device.load(source.place(source.existing(row), column), type_, align=WORD)
        for target in targets:
            device.store(x, target.place(row, column), align=WORD)
        return []

    device.loop(device.thread(), source.shape[0] * words, THREADS, body)


def emit_product(nest: Nest, memories: dict[int, Memory], targets: Sequence[Memory]) -> None:
    """A product and its epilogue."""
    assert nest.op is not None
    op, total = nest.op, nest.op.results[0]
    init = rows.init_of(op.operands[2])
    starts_from_zero = init.scalar is not None and is_zero(init.scalar)

    def epilogue(row: Int, column: Int, x: ir.Value) -> None:
        evaluator = Evaluator(memories)
        if not starts_from_zero:
            x = arith.addf(x, evaluator(op.operands[2], [row, column]))
        evaluator.know(total, [row, column], x)
        y = evaluator(nest.value, [row, column])
        for target in targets:
            target.store(row, column, y)

    weight = products.weight_of(op, memories[hash(op.operands[1])])
    products.product(memories[hash(op.operands[0])], weight, shape_of(total)[0], epilogue)


def is_zero(scalar: ir.Value) -> bool:
    op = rows.producer(scalar)
    return op is not None and op.name == "arith.constant" and ir.FloatAttr(op.attributes["value"]).value == 0.0


def emit_reduction(op: ir.Operation, memories: dict[int, Memory], targets: Sequence[Sequence[Memory]]) -> None:
    """A reduction inside rows: a warp an element of the result, or a thread where the order matters."""
    s = rows.Structured(op)
    extents = loop_extents(s)
    reduced = [loop for loop, kind in enumerate(s.iterators) if kind == "reduction"]
    kept = [ir.AffineDimExpr(expr).position for expr in s.maps[s.inputs].results if isinstance(expr, ir.AffineDimExpr)]
    shape = shape_of(op.results[0])
    columns, count = prod(shape[1:]), prod(extents[loop] for loop in reduced)
    combiner = combiner_of(s)
    step = 1 if combiner is None else 32
    lane = device.mod(device.thread(), 32)

    def counters(row: Int, column: Int, d: Int) -> list[Int]:
        loops: list[Int] = [0] * len(s.iterators)
        for loop, i in zip(kept, [row, *unflatten(column, [extents[loop] for loop in kept[1:]])]):
            loops[loop] = i
        for loop, i in zip(reduced, unflatten(d, [extents[loop] for loop in reduced])):
            loops[loop] = i
        return loops

    def element(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        row, column = device.div(i, columns), device.mod(i, columns)
        outputs = list(op.operands)[s.inputs :]
        index = [row, *unflatten(column, shape[1:])]
        starts = [Evaluator(memories)(value, index) for value in outputs]
        carried = starts
        if combiner is not None:
            carried = [arith.constant(starts[0].type, IDENTITY[combiner.name])]

        def add(d: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            return Evaluator(memories).body(s, counters(row, column, d), dict(enumerate(sums)))

        results = device.loop(lane if combiner is not None else 0, count, step, add, carried)
        if combiner is None:
            _store_all(targets, row, column, results)
            return []
        total = _combine_warp(combiner, results[0])
        total = combine(combiner, starts[0], total)
        with device.when(device.equal(lane, 0)):
            _store_all(targets, row, column, [total])
        return []

    first, stride = (
        (device.thread(), THREADS) if combiner is None else (device.div(device.thread(), 32), products.WARPS)
    )
    device.loop(first, shape[0] * columns, stride, element)


def _store_all(targets: Sequence[Sequence[Memory]], row: Int, column: Int, results: list[ir.Value]) -> None:
    for memories, x in zip(targets, results):
        for memory in memories:
            memory.store(row, column, x)


def loop_extents(s: rows.Structured) -> list[int]:
    """The trip count of every loop of a linalg operation on static shapes."""
    extents = [1] * len(s.iterators)
    for value, map_ in zip(s.op.operands, s.maps):
        for size, expr in zip(shape_of(value), map_.results):
            if isinstance(expr, ir.AffineDimExpr):
                extents[expr.position] = size
    return extents


def combiner_of(s: rows.Structured) -> ir.Operation | None:
    """The operation that joins a term to the sum, if the sum may be taken in any order."""
    if len(s.op.results) != 1:
        return None
    out = list(s.body.arguments)[-1]
    last = rows.producer(list(s.body.operations)[-1].operation.operands[0])
    uses = list(out.uses)
    if last is None or last.name not in IDENTITY or len(uses) != 1 or uses[0].owner.operation != last:
        return None
    return last if compute_type(element_of(s.op.results[0])) == last.results[0].type else None


def combine(combiner: ir.Operation, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(combiner.name, [a.type], [a, b]).result


def _combine_warp(combiner: ir.Operation, x: ir.Value) -> ir.Value:
    """Every lane gets the combination of all lanes."""
    for distance in (16, 8, 4, 2, 1):
        mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
        other = device.gpu.ShuffleOp(x, device.value(distance), device.value(32), mode).results[0]
        x = combine(combiner, x, other)
    return x


def emit_padding(memory: Memory, width: int) -> None:
    """Zeros in the columns between a tile's own and `width`."""
    extra = width - memory.columns
    if extra <= 0:
        return
    zero = arith.constant(compute_type(memory.element), 0.0)

    def body(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        memory.store(device.div(i, extra), device.add(device.mod(i, extra), memory.columns), zero)
        return []

    device.loop(device.thread(), memory.shape[0] * extra, THREADS, body)
