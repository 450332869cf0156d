"""Matrix products on a CPU: one kernel for each set of element types, for any sizes and strides.

The right operand is packed into *panels* of `width` columns, zero-padded, so that the inner loop reads
memory in order; blocks of rows of the left operand stay in the L2 cache while all panels pass by
(the scheme of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", TOMS 2008).
Accumulation is in the result's type: f32, f64, i32 or i64.

    func @gemm_bf16_bf16_f32(%a: m x k, %b: k x n, %c: m x n, %accumulate: i1)    c (+)= a b
    func @pack_bf16_f32(%b: k x n, %panels: ceil(n / width) x k x width)
    func @multiply_bf16_f32(%a: m x k, %panels, %c: m x n, %accumulate: i1)
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.cpu_symbols import FEW_ROWS, PANEL_BYTES, panel_width
from kitsune_mlir.mlir import arith, func, ir, memref, scf, vector

from .cpu_build import DYNAMIC, add, convert, dim, floor_multiple, index, least, loop, strided, sub, window, zero_of
from .cpu_gemv import multiply_few_rows

_ROW_BLOCK = 64  # rows of the left operand that stay in the L2 cache
_DEPTH_BLOCK = 512  # of the summed dimension; a panel's share of it fits the L1 cache
_COLUMN_BLOCK = 2048  # columns packed at a time


@dataclass(frozen=True)
class GemmKernels:
    """Makes the kernels in a module when they are first asked for. `vector_bytes` is the machine's."""

    module: ir.Module
    vector_bytes: int

    def lanes(self, result: ir.Type) -> int:
        return self.vector_bytes // (result.width // 8)

    @property
    def vectors(self) -> int:
        """Vector registers that hold a row of a panel."""
        return PANEL_BYTES // self.vector_bytes

    @property
    def tile_heights(self) -> tuple[int, ...]:
        """Rows of the register tiles, falling by halves. The accumulators take about half of the registers,
        of which there are 32 with AVX-512 and 16 without."""
        return (8, 4, 2, 1) if self.vector_bytes == 64 else (2, 1)

    def gemm(self, left: ir.Type, right: ir.Type, result: ir.Type) -> func.FuncOp:
        flag = ir.IntegerType.get_signless(1)
        types = [strided(left, 2), strided(right, 2), strided(result, 2, unit_inner=True), flag]
        return self._function(f"gemm_{left}_{right}_{result}", types, self._gemm_body)

    def pack(self, right: ir.Type, result: ir.Type) -> func.FuncOp:
        return self._function(f"pack_{right}_{result}", [strided(right, 2), panels_type(result)], self._pack_body)

    def multiply(self, left: ir.Type, result: ir.Type) -> func.FuncOp:
        flag = ir.IntegerType.get_signless(1)
        types = [strided(left, 2), panels_type(result), strided(result, 2, unit_inner=True), flag]
        return self._function(f"multiply_{left}_{result}", types, self._multiply_body)

    def _function(self, name: str, types: list[ir.Type], body) -> func.FuncOp:
        for op in self.module.body.operations:
            if op.operation.name == "func.func" and op.name.value == name:
                return op
        function = func.FuncOp(name, (types, []), visibility="private", ip=ir.InsertionPoint(self.module.body))
        with ir.InsertionPoint(function.add_entry_block()):
            body(*function.arguments)
            func.ReturnOp([])
        return function

    def _gemm_body(self, a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
        few = arith.cmpi(arith.CmpIPredicate.sle, dim(c, 0), index(FEW_ROWS))
        branch = scf.IfOp(few, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            multiply_few_rows(a, b, c, accumulate)
            scf.yield_([])
        with ir.InsertionPoint(branch.else_block):
            self._multiply_packed(a, b, c, accumulate)
            scf.yield_([])

    def _multiply_packed(self, a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
        result = c.type.element_type
        rows, depth, columns = dim(c, 0), dim(b, 0), dim(b, 1)
        zero, width = index(0), panel_width(result.width)
        most = arith.ceildivui(least(columns, index(_COLUMN_BLOCK)), index(width))
        buffer = memref.alloc(panels_type(result), [most, depth], [], alignment=64)
        for n in loop(zero, columns, _COLUMN_BLOCK):
            share = least(sub(columns, n), index(_COLUMN_BLOCK))
            count = arith.ceildivui(share, index(width))
            panels = _first(buffer, count, depth)
            func.CallOp(self.pack(b.type.element_type, result), [window(b, [zero, n], [depth, share]), panels])
            part = _columns(c, rows, n, share)
            func.CallOp(self.multiply(a.type.element_type, result), [a, panels, part, accumulate])
            scf.yield_([])
        memref.dealloc(buffer)

    def _pack_body(self, b: ir.Value, panels: ir.Value) -> None:
        result, width = panels.type.element_type, panel_width(panels.type.element_type.width)
        zero, depth, columns = index(0), dim(b, 0), dim(b, 1)
        nothing = zero_of(result)
        for p in loop(zero, dim(panels, 0)):
            first = arith.muli(p, index(width))
            valid = least(sub(columns, first), index(width))
            for k in loop(zero, depth):
                for j in loop(zero, valid):
                    memref.store(convert(memref.load(b, [k, add(first, j)]), result), panels, [p, k, j])
                    scf.yield_([])
                for j in loop(valid, index(width)):
                    memref.store(nothing, panels, [p, k, j])
                    scf.yield_([])
                scf.yield_([])
            scf.yield_([])

    def _multiply_body(self, a: ir.Value, panels: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
        result = c.type.element_type
        rows, depth, columns, zero = dim(c, 0), dim(panels, 1), dim(c, 1), index(0)
        convertible = a.type.element_type != result
        if convertible:  # widened once for all panels
            block = memref.alloca(ir.MemRefType.get([_ROW_BLOCK, _DEPTH_BLOCK], result), [], [], alignment=64)
        # With nothing to sum the loop below still has to write zeros: it runs at least once.
        for k in loop(zero, arith.maxsi(depth, index(1)), _DEPTH_BLOCK):
            share = least(sub(depth, k), index(_DEPTH_BLOCK))
            adds = arith.ori(accumulate, arith.cmpi(arith.CmpIPredicate.sgt, k, zero))
            for m in loop(zero, rows, _ROW_BLOCK):
                height = least(sub(rows, m), index(_ROW_BLOCK))
                left = window(a, [m, k], [height, share])
                if convertible:
                    for i in loop(zero, height):
                        for j in loop(zero, share):
                            memref.store(convert(memref.load(left, [i, j]), result), block, [i, j])
                            scf.yield_([])
                        scf.yield_([])
                    left = block
                for p in loop(zero, dim(panels, 0)):
                    self._row_tiles(left, panels, c, (m, k, p), (height, share, columns), adds)
                    scf.yield_([])
                scf.yield_([])
            scf.yield_([])

    def _row_tiles(self, left, panels, c, at, sizes, adds) -> None:
        """One panel against one block of rows: tiles of full height, then the rest in halves."""
        (m, k, p), (height, share, columns) = at, sizes
        width, lanes = panel_width(c.type.element_type.width), self.lanes(c.type.element_type)
        column = arith.muli(p, index(width))
        valid = least(sub(columns, column), index(width))
        mask_type = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        counts = [sub(valid, index(lanes * v)) for v in range(self.vectors)]
        writes = [vector.create_mask(mask_type, [count]) for count in counts]
        reads = [vector.create_mask(mask_type, [arith.select(adds, count, index(0))]) for count in counts]
        start = index(0)
        for tile in self.tile_heights:
            stop = add(start, floor_multiple(sub(height, start), tile))
            for i in loop(start, stop, tile):
                self._register_tile(tile, left, panels, c, (i, add(m, i), k, p, column), share, (reads, writes))
                scf.yield_([])
            start = stop

    def _register_tile(self, tile, left, panels, c, at, share, masks) -> None:
        """`tile` rows by one panel, kept in registers over the whole depth block. Its sum is added to that of blocks
        before: rounding grows with the root of a block's depth, not of the whole."""
        i, row, k, p, column = at
        element, lanes, count = c.type.element_type, self.lanes(c.type.element_type), self.vectors
        kind = ir.VectorType.get([lanes], element)
        rows = [add(row, index(r)) for r in range(tile)]
        starts = [add(column, index(lanes * v)) for v in range(count)]
        zeros = vector.broadcast(kind, zero_of(element))
        body = scf.ForOp(index(0), share, index(1), [zeros] * (tile * count))
        with ir.InsertionPoint(body.body):
            step, sums = body.induction_variable, list(body.inner_iter_args)
            depth = add(k, step)
            parts = [vector.load(kind, panels, [p, depth, index(lanes * v)]) for v in range(count)]
            for r in range(tile):
                factor = vector.broadcast(kind, memref.load(left, [add(i, index(r)), step]))
                for v in range(count):
                    sums[count * r + v] = _multiply_add(factor, parts[v], sums[count * r + v])
            scf.yield_(sums)
        for n, own in enumerate(body.results):
            at = [rows[n // count], starts[n % count]]
            before = vector.maskedload(kind, c, at, masks[0][n % count], zeros)
            vector.maskedstore(c, at, masks[1][n % count], _sum(before, own))


def panels_type(element: ir.Type) -> ir.MemRefType:
    """Panels of any number and depth."""
    return ir.MemRefType.get([DYNAMIC, DYNAMIC, panel_width(element.width)], element)


def _multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    if isinstance(c.type.element_type, ir.IntegerType):
        return arith.addi(arith.muli(a, b), c)
    return vector.fma(a, b, c)


def _sum(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addi(a, b) if isinstance(a.type.element_type, ir.IntegerType) else arith.addf(a, b)


def _first(buffer: ir.Value, count: ir.Value, depth: ir.Value) -> ir.Value:
    """The first `count` panels of a buffer; they lie at its start, so the layout stays the plain one."""
    width = buffer.type.shape[2]
    pitch = arith.muli(depth, index(width))
    layout = [0], [DYNAMIC, DYNAMIC, width], [DYNAMIC, width, 1]
    return memref.ReinterpretCastOp(buffer.type, buffer, [], [count, depth], [pitch], *layout).result


def _columns(c: ir.Value, rows: ir.Value, first: ir.Value, count: ir.Value) -> ir.Value:
    return window(c, [index(0), first], [rows, count])
