"""Elementwise operators whose threads compute neighbours: they load and store words of up to 16 bytes.

One thread computes as many neighbours along the last dimension of the results as make a word of the widest element. An
operand that lies along it is loaded as words, one that does not know it once for all, any other element by element.
Where such another lies along a loop of its own (a transpose) a warp is a rectangle of threads, which has whole sectors
of both as far as sizes allow.
Buffers begin at multiples of 16 bytes: allocations do, and the runtime copies arguments that do not.
"""

from __future__ import annotations

from math import gcd, prod

from kitsune_mlir.mlir import arith, ir, memref, vector

from .affine_index import evaluate
from .gpu_clone import clone_into
from .gpu_generic import Generic, dims_of
from .gpu_kernel import THREADS, WARP, Kernel, Kernels, Size, delinearize, linear_id, only_if, product

WORD = 16  # bytes
SECTOR = 32  # bytes that memory moves together
ENOUGH = 132 * THREADS  # threads below which elements are better shared by more of them


def width(generic: Generic) -> int:
    """How many neighbours a thread computes; 1 where words are not possible, or results few."""
    if generic.reduction or not generic.parallel or generic.label() == "gather":  # whose loads would be no words
        return 1
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        sizes = [generic.size(d, lambda value: value) for d in generic.parallel]
    last = generic.parallel[-1]
    along = [(v, m) for v, m in zip(generic.op.operands, generic.maps, strict=True) if _lies_along(v, m, last)]
    if not isinstance(sizes[-1], int) or not all((v, m) in along for v, m in zip(generic.outputs, generic.out_maps)):
        return 1
    found = WORD // max(bytes_of(value) for value, _ in along)
    while found > 1 and not (sizes[-1] % found == 0 and all(keeps_words(value.type, found) for value, _ in along)):
        found //= 2
    results = prod(size for size in sizes if isinstance(size, int))
    while found > 1 and all(isinstance(size, int) for size in sizes) and results // found < ENOUGH:
        found //= 2
    return max(found, 1)


def keeps_words(kind: ir.MemRefType, count: int) -> bool:
    """Whether words of so many neighbours of a buffer that begins at a multiple of them do not cross their bounds."""
    strides, offset = kind.get_strides_and_offset()
    known = [*strides[:-1], offset, kind.shape[-1]]
    return strides[-1] == 1 and all(x >= 0 and x % count == 0 for x in known)


def word_kernel(generic: Generic, kernels: Kernels, count: int) -> tuple[Kernel, Size]:
    """The kernel of an elementwise operator, `count` neighbours a thread, and how many threads it wants."""
    kernel, last = Kernel(kernels, generic.op, generic.label()), generic.parallel[-1]
    turned = _turned(generic, count)

    def groups(see: object) -> list[Size]:
        sizes = [generic.size(d, see) for d in generic.parallel]
        return [*sizes[:-1], sizes[-1] // count]

    with kernel.body():
        index = linear_id(THREADS)
        with only_if(index, product(groups(kernel.inside))):
            dims = _places(generic, index, groups(kernel.inside), turned)
            dims[last] = arith.muli(dims[last], arith.ConstantOp.create_index(count).result)
            _compute(generic, kernel, dims, count)
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        return kernel, product(groups(lambda value: value))


def _turned(generic: Generic, count: int) -> tuple[int, int, int] | None:
    """For a transpose: the loop that lies along an operand's memory, how many of its neighbours a warp has, and how
    many words of results beside each other. None where no operand lies so, or sizes are no multiples."""
    last = generic.parallel[-1]
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        sizes = {d: generic.size(d, lambda value: value) for d in generic.parallel}
    for value, map_ in zip(generic.inputs, generic.maps):
        loops = [d for d in generic.parallel if d != last and last in dims_of(map_) and _lies_along(value, map_, d)]
        if loops and isinstance(sizes[loops[0]], int) and isinstance(sizes[last], int):
            along = gcd(sizes[loops[0]], SECTOR // bytes_of(value))
            beside = WARP // along
            if along > 1 and sizes[last] // count % beside == 0:
                return loops[0], along, beside
    return None


def _places(
    generic: Generic, index: ir.Value, groups: list[Size], turned: tuple[int, int, int] | None
) -> dict[int, ir.Value]:
    """By loop, where a thread is; of the last loop, which word."""
    order = list(generic.parallel)
    if turned is None:
        return dict(zip(order, delinearize(index, groups), strict=True))
    loop, along, beside = turned
    own = {loop: along, order[-1]: beside}
    outer = [size // own[d] if d in own else size for d, size in zip(order, groups, strict=True)]
    *found, inner, word = delinearize(index, [*outer, along, beside])
    dims = dict(zip(order, found, strict=True))
    for d, part in ((loop, inner), (order[-1], word)):
        dims[d] = arith.addi(arith.muli(dims[d], arith.ConstantOp.create_index(own[d]).result), part)
    return dims


def _compute(generic: Generic, kernel: Kernel, dims: dict[int, ir.Value], count: int) -> None:
    """The neighbours from the indices `dims` on."""
    last = generic.parallel[-1]
    order = [dims[d] for d in range(len(generic.parallel))]
    places = []
    for e in range(count):
        column = arith.addi(dims[last], arith.ConstantOp.create_index(e).result) if e else dims[last]
        places.append([column if d == last else index for d, index in enumerate(order)])
    given = [
        _elements(value, map_, last, kernel, places) if list(argument.uses) else [None] * count
        for argument, value, map_ in zip(generic.block.arguments, generic.op.operands, generic.maps, strict=True)
    ]
    found = [
        clone_into(
            generic.block,
            kernel,
            {hash(a): xs[e] for a, xs in zip(generic.block.arguments, given, strict=True) if xs[e] is not None},
            places[e],
        )
        for e in range(count)
    ]
    for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
        kind = ir.VectorType.get([count], ir.MemRefType(buffer.type).element_type)
        word = vector.from_elements(kind, [values[number] for values in found])
        vector.store(word, kernel.inside(buffer), evaluate(map_, places[0]), alignment=count * bytes_of(buffer))


def _elements(
    value: ir.Value, map_: ir.AffineMap, last: int, kernel: Kernel, places: list[list[ir.Value]]
) -> list[ir.Value]:
    """An operand's elements at the places of the neighbours."""
    brought = kernel.inside(value)
    if not isinstance(value.type, ir.MemRefType):
        return [brought] * len(places)
    if _lies_along(value, map_, last) and keeps_words(value.type, len(places)):
        kind = ir.VectorType.get([len(places)], value.type.element_type)
        word = vector.load(kind, brought, evaluate(map_, places[0]), alignment=len(places) * bytes_of(value))
        return [vector.extract(word, [], [e]) for e in range(len(places))]
    if last not in dims_of(map_):
        return [memref.load(brought, evaluate(map_, places[0]))] * len(places)
    return [memref.load(brought, evaluate(map_, place)) for place in places]


def _lies_along(value: ir.Value, map_: ir.AffineMap, last: int) -> bool:
    """Whether neighbours along a loop are neighbours in memory, of elements that make words."""
    if not isinstance(value.type, ir.MemRefType) or not value.type.rank or not bytes_of(value):
        return False
    inner = map_.results[len(map_.results) - 1]
    own = isinstance(inner, ir.AffineDimExpr) and inner.position == last
    return own and dims_of(map_).count(last) == 1


def bytes_of(buffer: ir.Value) -> int:
    """Bytes of an element; 0 of what makes no words: truths, whose bits are no bytes, and indices."""
    width = getattr(ir.MemRefType(buffer.type).element_type, "width", 0)
    return width // 8
