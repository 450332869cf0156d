"""Copies between buffers of which one is strided: a kernel for all of a concatenation.

Each copy has a range of the kernel's blocks. A thread moves EACH words of a copy, which lie a block's threads apart, so
that a warp's are neighbours and enough loads are in flight; a word is as many elements as both buffers keep together
(gpu_words.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf, vector

from .gpu_buffers import VIEWS, root_of
from .gpu_kernel import THREADS, Kernel, Kernels, Size, as_value, ceildiv, delinearize, extent, only_if, product
from .gpu_words import WORD, bytes_of, keeps_words

EACH = 4  # words that a thread moves
# What may stand between copies that become one kernel: nothing that reads or writes a buffer.
_IDLE = (*VIEWS, "memref.alloc", "memref.dim", "arith.constant", "affine.apply")


def beside(operations: Sequence[ir.Operation], first: int) -> list[int]:
    """Where in a block the copies stand that follow one another from `first` on, itself one, into parts of the buffer
    that it writes of which none is another's, and that do not read this buffer. Into other buffers a copy may be done
    once, when weights are loaded, or in each call."""
    found, target = [first], root_of(operations[first].operands[1])
    for number in range(first + 1, len(operations)):
        op = operations[number]
        if op.name == "memref.copy":
            before = [operations[other].operands[1].type for other in found]
            apart = all(are_apart(op.operands[1].type, kind) for kind in before)
            if root_of(op.operands[1]) != target or root_of(op.operands[0]) == target or not apart:
                break
            found.append(number)
        elif op.name not in _IDLE:
            break
    return found


def are_apart(a: ir.MemRefType, b: ir.MemRefType) -> bool:
    """Whether two parts of a buffer surely have no element in common: along a dimension one begins behind the other."""
    (strides, start), (others, other) = (kind.get_strides_and_offset() for kind in (a, b))
    if strides != others or min(*strides, start, other) < 0:  # of sizes that are open
        return False
    for stride, size, count in zip(strides, a.shape, b.shape):
        (at, start), (before, other) = divmod(start, stride), divmod(other, stride)
        known = size >= 0 and count >= 0
        if known and (at >= before + count or before >= at + size):
            return True
    return False


def lower_copies(ops: Sequence[ir.Operation], kernels: Kernels) -> None:
    """Puts a kernel in the place of copies that may happen in any order (`beside`); the driver does those that are
    left."""
    copies = []
    for op in ops:
        if op.operands[0] == op.operands[1]:  # a slice that was computed in place
            op.erase()
        elif not all(_is_dense(ir.MemRefType(buffer.type)) for buffer in op.operands):
            copies.append(op)
    if not copies:
        return
    last = copies[-1]
    kernel = Kernel(kernels, last, "copy")
    with last.context, last.location, ir.InsertionPoint(last):
        moved = [_Copy(*op.operands, _word(*op.operands)) for op in copies]
        ends = _running([ceildiv(copy.words(lambda value: value), THREADS * EACH) for copy in moved])
    with kernel.body():
        block = gpu.block_id(gpu.Dimension.x)
        inside = _running([ceildiv(copy.words(kernel.inside), THREADS * EACH) for copy in moved])
        _branch(moved, [0, *inside], block, kernel)
    with last.context, last.location, ir.InsertionPoint(last):
        kernel.launch(ends[-1])
    for op in copies:
        op.erase()


@dataclass(frozen=True)
class _Copy:
    """`word` elements are moved at once."""

    source: ir.Value
    target: ir.Value
    word: int

    def sizes(self, see: object) -> list[Size]:
        """The sizes of the target, the last dimension in words."""
        kind = ir.MemRefType(self.target.type)
        found = [extent(see(self.target), d) for d in range(kind.rank)]
        return [*found[:-1], found[-1] // self.word] if self.word > 1 else found

    def words(self, see: object) -> Size:
        return product(self.sizes(see))

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The words of one block of those that this copy has."""
        sizes, words = self.sizes(kernel.inside), self.words(kernel.inside)
        first = arith.addi(arith.muli(block, as_value(THREADS * EACH)), gpu.thread_id(gpu.Dimension.x))
        source, target = kernel.inside(self.source), kernel.inside(self.target)
        for number in range(EACH):
            index = arith.addi(first, as_value(number * THREADS))
            with only_if(index, words):
                position = delinearize(index, sizes) if sizes else []
                if self.word > 1:
                    position[-1] = arith.muli(position[-1], as_value(self.word))
                    kind = ir.VectorType.get([self.word], ir.MemRefType(target.type).element_type)
                    align = self.word * bytes_of(self.target)
                    moved = vector.load(kind, source, position, alignment=align)
                    vector.store(moved, target, position, alignment=align)
                else:
                    memref.store(memref.load(source, position), target, position)


def _branch(copies: Sequence[_Copy], starts: Sequence[Size], block: ir.Value, kernel: Kernel) -> None:
    """The code of the copy whose range a block lies in."""
    copy, *rest = copies
    own = arith.subi(block, as_value(starts[0])) if starts[0] != 0 else block
    if not rest:
        copy.emit(own, kernel)
        return
    ahead = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ult, block, as_value(starts[1])), has_else=True)
    with ir.InsertionPoint(ahead.then_block):
        copy.emit(own, kernel)
        scf.yield_([])
    with ir.InsertionPoint(ahead.else_block):
        _branch(rest, starts[1:], block, kernel)
        scf.yield_([])


def _running(counts: Sequence[Size]) -> list[Size]:
    """Sums of the first one, two, ..."""
    found: list[Size] = []
    for count in counts:
        before = found[-1] if found else 0
        known = isinstance(before, int) and isinstance(count, int)
        found.append(before + count if known else arith.addi(as_value(before), as_value(count)))
    return found


def _word(*buffers: ir.Value) -> int:
    """Elements that a thread may move at once."""
    kinds = [ir.MemRefType(buffer.type) for buffer in buffers]
    nbytes = bytes_of(buffers[0])
    if not nbytes or not kinds[1].rank or kinds[1].is_dynamic_dim(kinds[1].rank - 1):
        return 1
    word = WORD // nbytes
    while word > 1 and not all(keeps_words(kind, word) for kind in kinds):
        word //= 2
    return max(word, 1)


def _is_dense(kind: ir.MemRefType) -> bool:
    return kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
