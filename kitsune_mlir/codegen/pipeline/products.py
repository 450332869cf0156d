"""Matrix products of a row tile on tensor cores: mma.sync, every chip from sm_80.

A (the tile) lies in shared memory, rows padded to multiples of 16 columns with zeros. B (the weight) is
read from global memory straight into fragments. Warps split the columns; each holds all rows of its
columns in registers: no element of B is read twice by a CTA for a tile.

The order of k inside a step is free as long as A and B agree, so thread q of a quad takes the four
neighbouring columns 4q..4q+3 of a step of 16 for its fragment positions 2q, 2q+1, 2q+8, 2q+9: one 8-byte
load (f32: 16) in place of two. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16" and, for
f32 operands, "mma.m16n8k8". f32 is computed as three tf32 products of high and low parts, which keeps
about 21 bits, or as one where that is precise enough (precision.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.codegen.ampere import mma_sync
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm, vector
from kitsune_mlir.precision import tf32_pieces

from . import device
from .device import Int
from .memory import Memory, compute_type, element_of, shape_of

WARPS = 8
STEP = 16  # columns of A in one step of the k loop
MOST_ACCUMULATORS = 128  # registers a thread
AHEAD = 2  # steps of 16-bit weights fetched ahead of their use


@dataclass
class Weight:
    """B: `n` output columns by `k`; strides in elements of the contracted and of the output column. Of f32 elements
    `pieces` tf32 numbers each are multiplied."""

    pointer: ir.Value
    element: ir.Type
    n: int
    k: int
    stride_k: int
    stride_n: int
    pieces: int = 2


def weight_of(op: ir.Operation, memory: Memory) -> Weight:
    """The weight of a product, by its indexing map: (n, k) as torch keeps a Linear's, or (k, n)."""
    transposed = "d2" in str(list(rows.Structured(op).maps[1].results)[1])
    shape = shape_of(op.operands[1])
    n, k = shape if transposed else shape[::-1]
    strides = (1, k) if transposed else (n, 1)
    return Weight(memory.pointer, memory.element, n, k, *strides, tf32_pieces(op))


def padded_columns(columns: int) -> int:
    return -(-columns // STEP) * STEP


def a_stride(columns: int, element: ir.Type) -> int:
    """Elements between rows of A in shared memory: 16 bytes more than a multiple of 128 spreads the banks."""
    return padded_columns(columns) + 16 * 8 // element.width


def check_product(op: ir.Operation) -> None:
    """Raises UnsupportedError for a product that has no tensor-core form here."""
    a, b = (element_of(op.operands[i]) for i in (0, 1))
    if a != b or not isinstance(a, ir.BF16Type | ir.F16Type | ir.F32Type):
        raise UnsupportedError(f"products of {a} with {b} have no tensor-core form")
    if compute_type(element_of(op.results[0])) != ir.F32Type.get():
        raise UnsupportedError(f"products that sum in {element_of(op.results[0])} have no tensor-core form")


def product(a: Memory, b: Weight, tile_rows: int, epilogue: Callable[[Int, Int, ir.Value], None]) -> None:
    """a @ bᵀ for a tile. `epilogue(row, column, sum)` is called, in code, for each element in its thread;
    columns given to it are smaller than b.n."""
    m_tiles = tile_rows // 16
    blocks = -(-b.n // 8)
    per_warp = max(1, min(-(-blocks // WARPS), MOST_ACCUMULATORS // (4 * m_tiles)))
    chunk = per_warp * 8 * WARPS
    lane = arith.andi(device.thread(), device.value(31))
    warp = device.div(device.thread(), 32)
    g, q = device.div(lane, 4), arith.andi(lane, device.value(3))

    def columns(start: Int) -> None:
        first = device.add(start, device.mul(warp, per_warp * 8))
        with device.when(device.less(first, b.n)):
            sums = _sums(a, b, m_tiles, per_warp, first, g, q)
            for i, total in enumerate(sums):
                half, e, block, m = (i // 2) % 2, i % 2, (i // 4) % per_warp, i // (4 * per_warp)
                row = device.add(g, m * 16 + half * 8)
                column = device.add(first, device.add(device.mul(q, 2), block * 8 + e))
                if b.n % (per_warp * 8):
                    with device.when(device.less(column, b.n)):
                        epilogue(row, column, total)
                else:
                    epilogue(row, column, total)

    if chunk >= b.n:
        columns(0)
    else:
        device.loop(0, b.n, chunk, lambda start, _: columns(start) or [])


def _sums(a: Memory, b: Weight, m_tiles: int, blocks: int, first: Int, g: Int, q: Int) -> list[ir.Value]:
    """Accumulators [m tile][block][4]: rows g and g+8, columns 2q and 2q+1 of the block."""
    f32 = ir.F32Type.get()
    zero = arith.constant(f32, 0.0)
    n_columns = [device.least(device.add(first, device.add(g, block * 8)), b.n - 1) for block in range(blocks)]
    starts = [device.mul(n, b.stride_n) for n in n_columns]

    def fetch(k: Int, tail: bool = False) -> list[ir.Value]:
        """This thread's weights of one step, a quad a block."""
        return [_b_quad(b, start, device.add(k, device.mul(q, 4)), tail) for start in starts]

    def step(k: Int, sums: list[ir.Value], quads: list[ir.Value]) -> list[ir.Value]:
        column = device.add(k, device.mul(q, 4))
        b_fragments = [fragments(quad, b.pieces) for quad in quads]
        result = list(sums)
        for m in range(m_tiles):
            halves = [fragments(_a_quad(a, device.add(g, m * 16 + half * 8), column), b.pieces) for half in (0, 1)]
            for block, b_fragment in enumerate(b_fragments):
                at = (m * blocks + block) * 4
                result[at : at + 4] = multiplied(b.element, halves, b_fragment, result[at : at + 4])
        return result

    # Weights come from L2, a few hundred cycles away: those of the next `ahead` steps are fetched while
    # the products of these run.
    ahead = AHEAD if b.element.width == 16 and m_tiles <= 4 else 1
    group = ahead * STEP
    whole, grouped = b.k // STEP * STEP, b.k // group * group
    sums = [zero] * (m_tiles * blocks * 4)

    def steps(k: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        sums, quads = carried[: len(carried) - ahead * blocks], carried[len(carried) - ahead * blocks :]
        following = device.least(device.add(k, group), grouped - group)  # the last group fetches itself again
        fetched = [x for i in range(ahead) for x in fetch(device.add(following, i * STEP))]
        for i in range(ahead):
            sums = step(device.add(k, i * STEP), sums, quads[i * blocks : (i + 1) * blocks])
        return sums + fetched

    if grouped:
        carried = sums + [x for i in range(ahead) for x in fetch(i * STEP)]
        sums = device.loop(0, grouped, group, steps, carried)[: len(sums)]
    for k in range(grouped, whole, STEP):
        sums = step(k, sums, fetch(k))
    return step(whole, sums, fetch(whole, tail=True)) if whole < b.k else sums


def _quad_type(element: ir.Type) -> ir.Type:
    """Four neighbouring elements: 64 bits of bf16 or f16 as two words, or four f32."""
    return ir.VectorType.get([4], ir.F32Type.get()) if element.width == 32 else ir.VectorType.get([2], device.i32())


def _a_quad(a: Memory, row: Int, column: Int) -> ir.Value:
    place = device.offset(a.pointer, device.add(device.mul(row, a.stride), column), a.element)
    return device.load(place, _quad_type(a.element), align=a.element.width // 2)


def _b_quad(b: Weight, start: Int, k: Int, tail: bool) -> ir.Value:
    """Columns k..k+3 of one output column's weights; zeros beyond b.k."""
    if b.stride_k == 1 and b.k % 4 == 0 and not tail:
        place = device.offset(b.pointer, device.add(start, k), b.element)
        return device.load(place, _quad_type(b.element), align=b.element.width // 2)
    elements = [_b_element(b, start, device.add(k, i), tail) for i in range(4)]
    type_ = ir.VectorType.get([4], b.element)
    packed = vector.from_elements(type_, elements)
    return packed if b.element.width == 32 else vector.bitcast(_quad_type(b.element), packed)


def _b_element(b: Weight, start: Int, k: Int, tail: bool) -> ir.Value:
    place = device.least(k, b.k - 1) if tail else k
    element = device.load(
        device.offset(b.pointer, device.add(start, device.mul(place, b.stride_k)), b.element), b.element
    )
    if not tail:
        return element
    return arith.select(device.less(k, b.k), element, arith.constant(b.element, 0.0))


HIGH, LOW = range(2)  # parts of f32 elements, as `split` gives them
LARGEST = (2 - 2**-10) * 2.0**127  # tf32 number
Fragment = list[list[ir.Value]]  # words of a quad; of f32 in parts, those of each


def fragments(quad: ir.Value, pieces: int) -> Fragment:
    """A quad as the instruction takes it, made once for all products that read it."""
    words = [vector.extract(quad, [], [i]) for i in range(ir.VectorType(quad.type).shape[0])]
    if ir.VectorType(quad.type).element_type != ir.F32Type.get():
        return [words]
    if pieces == 1:
        return [[_rounded(word) for word in words]]
    return split_words(words)


def multiplied(element: ir.Type, a: list[Fragment], b: Fragment, sums: list[ir.Value]) -> list[ir.Value]:
    """Adds one step's products; `a` has the fragments of rows g and g+8."""
    if element.width == 32:
        return _mma_f32(a, b, sums)
    kind = "bf16" if isinstance(element, ir.BF16Type) else "f16"
    ((a0, a2),), ((a1, a3),) = a
    return mma_sync.add_16_bit(kind, [a0, a1, a2, a3], b[0], sums)


def _mma_f32(a: list[Fragment], b: Fragment, sums: list[ir.Value]) -> list[ir.Value]:
    """Two steps of k8; positions q and q+4 of step s are columns 4q+2s and 4q+2s+1. Tensor cores cut off what they add,
    so that a sum loses with every instruction: in full precision the six of these steps have sums of their own, small
    terms first, which are added outside."""
    upper, lower = a
    exact = len(b) > 1
    found = [arith.constant(ir.F32Type.get(), 0.0)] * len(sums) if exact else sums
    steps = []
    for s in (0, 2):
        parts = [[up[s], low[s], up[s + 1], low[s + 1]] for up, low in zip(upper, lower)]
        steps.append((parts, [part[s : s + 2] for part in b]))
    for left, right in ((LOW, HIGH), (HIGH, LOW), (HIGH, HIGH)) if exact else ((0, 0),):
        for parts, b_parts in steps:
            found = mma_sync.add("m16n8k8.row.col.f32.tf32.tf32.f32", [*parts[left], *b_parts[right]], found)
    return [arith.addf(total, new) for total, new in zip(sums, found)] if exact else found


def _rounded(x: ir.Value) -> ir.Value:
    """x as the nearest tf32 number (PTX ISA, cvt)."""
    return llvm.InlineAsmOp(device.i32(), [x], "cvt.rna.tf32.f32 $0, $1;", "=r,f", has_side_effects=False).results[0]


def split(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """An f32 as a sum of two tf32 numbers, its upper bits and what is left of it, neither of the other sign. Those of
    an infinity are the largest number and the infinity: low parts meet upper bits alone, which are 0 only of 0 and of
    numbers too small for tf32 (below 2^-136). Such a one times an infinity is not a number, as 0 times it is."""
    f32, i32 = ir.F32Type.get(), device.i32()
    least, most = (arith.constant(f32, sign * LARGEST) for sign in (-1, 1))
    bounded = arith.minimumf(arith.maximumf(x, least), most)
    upper = arith.andi(arith.bitcast(i32, bounded), arith.constant(i32, -8192))  # without the 13 bits that tf32 drops
    high = arith.bitcast(f32, upper)
    return high, arith.subf(x, high)


def split_words(numbers: list[ir.Value]) -> list[list[ir.Value]]:
    """Each part that `split` makes of f32 numbers, as 32-bit words."""
    return [[arith.bitcast(device.i32(), x) for x in part] for part in zip(*map(split, numbers))]
