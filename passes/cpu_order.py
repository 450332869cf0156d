"""kitsune.order on a CPU: three loops over tensors, a counting sort that keeps the order of rows with one key.

counts[key + 1] += 1 for each row; starts = the sums of all before; rows[starts[key]++] = row for each row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, ir, linalg, scf, tensor, walk


def lower_orders(module: ir.Module) -> None:
    """Puts loops in the place of each kitsune.order."""
    for op in walk(module, "kitsune.order"):
        with op.location, ir.InsertionPoint(op):
            keys, count, *carried = op.operands
            order, places = _ordered(keys, count)
            for old, new in zip(op.results, (order, places, *(_moved(value, order) for value in carried))):
                old.replace_all_uses_with(new)
        op.erase()


def _ordered(keys: ir.Value, count: ir.Value) -> list[ir.Value]:
    zero, one = (arith.ConstantOp.create_index(number).result for number in (0, 1))
    size = tensor.DimOp(keys, zero).result
    open_, buckets = rows.shape_of(keys)[0] == rows.DYNAMIC, arith.addi(count, one)

    def bucket(row: ir.Value) -> ir.Value:
        """A row's key, or the one behind the last where it is none."""
        i64 = ir.IntegerType.get_signless(64)
        key = tensor.ExtractOp(keys, [row]).result
        key = extended(key, i64)
        return arith.index_cast(ir.IndexType.get(), arith.minui(key, arith.index_cast(i64, count)))

    def count_row(row: ir.Value, counts: ir.Value) -> list[ir.Value]:
        at = bucket(row)
        return [tensor.InsertOp(arith.addi(tensor.ExtractOp(counts, [at]).result, _number(1)), counts, [at]).result]

    def sum_before(at: ir.Value, counts: ir.Value, total: ir.Value) -> list[ir.Value]:
        own = tensor.ExtractOp(counts, [at]).result
        return [tensor.InsertOp(total, counts, [at]).result, arith.addi(total, own)]

    def place(row: ir.Value, starts: ir.Value, order: ir.Value, places: ir.Value) -> list[ir.Value]:
        at = bucket(row)
        start = tensor.ExtractOp(starts, [at]).result
        own = arith.index_cast(start.type, row)
        return [
            tensor.InsertOp(arith.addi(start, _number(1)), starts, [at]).result,
            tensor.InsertOp(own, order, [arith.index_cast(ir.IndexType.get(), start)]).result,
            tensor.InsertOp(start, places, [row]).result,
        ]

    (counts,) = _loop(size, count_row, [linalg.fill(_number(0), outs=[_empty(buckets)])])
    starts, _ = _loop(buckets, sum_before, [counts, _number(0)])
    empty = [_empty(size if open_ else rows.shape_of(keys)[0]) for _ in range(2)]
    return _loop(size, place, [starts, *empty])[1:]


def _moved(vector: ir.Value, order: ir.Value) -> ir.Value:
    """The elements of a vector in an order."""
    kind = ir.RankedTensorType(vector.type)
    size = tensor.DimOp(vector, arith.ConstantOp.create_index(0).result).result

    def move(place: ir.Value, moved: ir.Value) -> list[ir.Value]:
        row = arith.index_cast(ir.IndexType.get(), tensor.ExtractOp(order, [place]).result)
        return [tensor.InsertOp(tensor.ExtractOp(vector, [row]).result, moved, [place]).result]

    start = tensor.EmptyOp([size if kind.is_dynamic_dim(0) else kind.shape[0]], kind.element_type).result
    return _loop(size, move, [start])[0]


def _loop(end: ir.Value, body: Callable[..., list[ir.Value]], carried: Sequence[ir.Value]) -> list[ir.Value]:
    zero, one = (arith.ConstantOp.create_index(number).result for number in (0, 1))
    loop = scf.ForOp(zero, end, one, list(carried))
    with ir.InsertionPoint(loop.body):
        scf.yield_(body(loop.induction_variable, *loop.inner_iter_args))
    return list(loop.results)


def _empty(size: ir.Value | int) -> ir.Value:
    return tensor.EmptyOp([size], ir.IntegerType.get_signless(32)).result


def _number(x: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), x)
