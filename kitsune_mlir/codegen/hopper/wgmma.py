"""Products of a warpgroup: wgmma (PTX ISA, Asynchronous Warpgroup Level Matrix Multiply-Accumulate).

D[64 x n] += A[64 x k] B[k x n], sums in registers. B lies in shared memory as boxes of n rows by 64 columns
of k with the 128-byte swizzle (tma.py); A lies there likewise or in registers. An operand of 16-bit elements may also
lie *across*: as boxes of k rows by 64 columns of n (of A: of its rows), one after another (PTX ISA, Shared Memory
Matrix Layout, M- and N-major). Thread t of the
warpgroup, warp w = t / 32, g = t % 32 / 4, q = t % 4, holds of D the rows 16w + g and 16w + g + 8: sum [4j + 2h + e]
is at row 16w + g + 8h, column 8j + 2q + e. A in registers has the same form: for a step of 16 columns four
words of two neighbouring columns each, in the order (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8).
Of f32 elements, multiplied as tf32, a step has 8 columns and a box 32: words at (g, q), (g + 8, q), (g, q + 4),
(g + 8, q + 4).

Products run asynchronously. What ptxas wants, or it runs them one after another (its warnings C7510 to C7515):
no use of the sums between the first product and `wait`, no branch there either. Nor may the registers of A be written
before: those that a turn of a loop writes are the ones that the product of the turn before may still read.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects.rings import STEP_BYTES
from kitsune_mlir.mlir import arith, ir, nvvm

ROWS = 64  # of a product
THREADS = 128
STEP = 16  # columns of k in one instruction, 16-bit elements
CHUNK = 64  # columns of k in a swizzled box
MOST_COLUMNS = 256
_STEP_WORDS = STEP * 2 // 16  # a descriptor counts in 16 bytes
_ACROSS_STEP_WORDS = STEP * CHUNK * 2 // 16  # where k runs across the box's rows
FENCE = "wgmma.fence.sync.aligned;"  # orders writes to registers before the products that use them
BOX_ROW = 128  # bytes of a box's row
STEPS = BOX_ROW // STEP_BYTES  # of a box
_ADDRESS = 0x3FFFF  # the bits of an address in a descriptor; those above say which CTA of a cluster
_SWIZZLE = 1 << 62  # of a descriptor: 128 bytes
_PATTERN = 8  # rows after which it repeats


def descriptor(place: Int, next_box: int = 16, pitch: int = _PATTERN) -> ir.Value:
    """The descriptor of a swizzled box in shared memory (PTX ISA, Matrix Descriptor Format). Of an operand across rows
    that takes several boxes, `next_box` is the distance between them in bytes; else it is unused. The box begins at a
    multiple of 1024 bytes; one whose rows lie along k at any row, and `pitch` rows lie from 8 of them to the next: the
    swizzle is one of addresses (H100, shifts of 0 to 54 rows and pitches of 8 to 24)."""
    i64 = ir.IntegerType.get_signless(64)
    own = arith.andi(device.value(place), device.value(_ADDRESS))
    start = arith.extui(i64, arith.shrui(own, device.value(4)))
    layout = _SWIZZLE | (pitch * BOX_ROW // 16 << 32) | (next_box // 16 << 16)
    return arith.ori(start, arith.constant(i64, layout))


def multiply(
    element: str,
    sums: Sequence[ir.Value],
    a: Sequence[ir.Value] | ir.Value,
    b: ir.Value,
    steps: int,
    first: ir.Value | bool,
    across: tuple[bool, bool] = (False, False),
) -> list[ir.Value]:
    """Issues `steps` products (at most 4) along k and commits them as a group. `a` is a descriptor or 4 words a step,
    `b` a descriptor; `first` (a bool or i1) says to start from zero instead of from `sums`. `across` says of A and B
    whether k runs across the rows of their boxes: boxes of k rows by 64 rows or columns of the product. `element` is
    "bf16", "f16" or "f32"."""
    count, n = len(sums), len(sums) * 2
    in_registers = not isinstance(a, ir.Value)
    lines, operands = [], list[ir.Value]()

    def operand(x: ir.Value) -> str:
        operands.append(x)
        return f"${2 * count + len(operands) - 1}"

    d = ", ".join(f"${i}" for i in range(count))
    words = [operand(x) for x in a] if in_registers else []
    a_start = "" if in_registers else operand(a)
    b_start = operand(b)
    start = "0" if first is True else "1"
    if isinstance(first, ir.Value):
        start = operand(device.flipped(first))
    orders = [int(operand_across) for operand_across in across]
    words_of = [_ACROSS_STEP_WORDS if operand_across else _STEP_WORDS for operand_across in across]
    lines = ["{", ".reg .pred p;", ".reg .b64 a, b;", f"setp.ne.b32 p, {start}, 0;", FENCE]
    kind, k = ("tf32", 8) if element == "f32" else (element, STEP)
    for step in range(steps):
        b_place, a_place = b_start, a_start
        if step:
            lines.append(f"add.s64 b, {b_start}, {step * words_of[1]};")
            b_place = "b"
            if not in_registers:
                lines.append(f"add.s64 a, {a_start}, {step * words_of[0]};")
                a_place = "a"
        if step == 1 and start != "1":
            lines.append("setp.eq.b32 p, 0, 0;")
        source = "{" + ", ".join(words[4 * step : 4 * step + 4]) + "}" if in_registers else a_place
        tail = f"1, 1, {orders[1]}" if in_registers else f"1, 1, {orders[0]}, {orders[1]}"
        tail = "1, 1" if kind == "tf32" else tail
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} {{{d}}}, {source}, {b_place}, p, {tail};"
        )
    lines += ["wgmma.commit_group.sync.aligned;", "}"]
    return device.assembled("\n".join(lines), [ir.F32Type.get()] * count, *operands, tied=sums, memory=False)


def zeros(columns: int) -> list[ir.Value]:
    """The sums of a product of so many columns before it starts: as code that stays where it is, for constants are
    moved out of loops and take registers there."""
    count = columns // 2
    text = "\n".join(f"mov.b32 ${i}, 0;" for i in range(count))
    return device.assembled(text, [ir.F32Type.get()] * count, memory=False)


def wait(pending: int) -> None:
    """Until at most so many groups are in flight."""
    nvvm.WgmmaWaitGroupSyncOp(pending)


def wait_for(values: Sequence[ir.Value], pending: int = 0) -> list[ir.Value]:
    """Until at most so many groups are in flight; the values, all f32 or all i32, pass through, so that nothing reads
    them earlier."""
    text = f"wgmma.wait_group.sync.aligned {pending};"
    return device.assembled(text, [x.type for x in values], tied=values, memory=False)
