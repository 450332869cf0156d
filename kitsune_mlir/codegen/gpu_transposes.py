"""Transposes beside elementwise operators are done by these: they read what is transposed, or write their result so.

    %t = linalg.transpose ins(%x) permutation = [1, 0]
    %y = linalg.generic ins(%t) {(d0, d1) -> (d0, d1)}     =>     %y = linalg.generic ins(%x) {(d0, d1) -> (d1, d0)}

A tensor goes through memory once less. What is computed of weights alone stays apart: it is done once, when the program
is loaded. Elements out of a small table, as biases by distance are, are taken in the order of the result:

    %g = linalg.generic ins(%n : 9x9xi64) { linalg.yield (tensor.extract %t[%in, linalg.index 2]) }   // 9x9x4
    %y = linalg.transpose ins(%g) permutation = [2, 0, 1]
  =>
    %y = linalg.generic ins(%n) {(d0, d1, d2) -> (d1, d2)} { linalg.yield (tensor.extract %t[%in, linalg.index 0]) }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import set_maps
from kitsune_mlir.mlir import attr_int, ir, replace_op, walk
from kitsune_mlir.operations import made_by, permutation_of, users_of
from kitsune_mlir.traffic import tensor_bytes
from kitsune_mlir.weights import is_kept

MOST_TABLE = 1 << 15  # bytes of a table that stays in L1, so that its elements may be read in any order


def fuse_transposes(main: ir.Operation, own: Sequence[bool]) -> None:
    """`own` says of each result of @main whether it is a tensor of its own, not a view of another."""
    for op in walk(main, "linalg.transpose"):
        uses = list(op.results[0].uses)
        users = [use.owner.operation for use in uses]
        if not users or any(user != users[0] for user in users) or is_kept(op.operands[0]):
            continue
        order, maker = permutation_of(op), rows.producer(op.operands[0])
        if _is_elementwise(users[0]) and all(_is_read_whole(users[0], use.operand_number) for use in uses):
            places = [use.operand_number for use in uses]
            _turn(users[0], {place: [order.index(d) for d in range(len(order))] for place in places})
            for place in places:
                users[0].operands[place] = op.operands[0]
            op.erase()
        elif maker is not None and _is_elementwise(maker) and _is_made_for(maker, op):
            if users[0].name == "func.return" and not all(own[use.operand_number] for use in uses):
                continue
            maker.move_before(op)
            _turn(maker, {len(maker.operands) - 1: order})
            maker.operands[len(maker.operands) - 1] = op.operands[1]
            maker.results[0].set_type(op.results[0].type)
            replace_op(op, maker.results[0])


def turn_gathers(main: ir.Operation) -> None:
    """Takes elements out of small tables in the order of their transposes, but for what is done once."""
    for op in walk(main, "linalg.transpose"):
        maker = made_by(op.operands[0], "linalg.generic")
        if maker is None or not _is_made_for(maker, op) or is_kept(op.operands[0]):
            continue
        s, order = rows.Structured(maker), permutation_of(op)
        loops = len(order)
        if not s.gathers() or s.iterators != ["parallel"] * loops or s.maps[-1] != ir.AffineMap.get_identity(loops):
            continue
        if any(tensor_bytes(table) > MOST_TABLE for table in s.tables()):
            continue
        turned = ir.AffineMap.get(loops, 0, [ir.AffineDimExpr.get(order.index(loop)) for loop in range(loops)])
        maps = [ir.AffineMap.get(loops, 0, [expr.compose(turned) for expr in map_.results]) for map_ in s.maps[:-1]]
        maker.move_before(op)
        maker.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, s.maps[-1])])
        for index in s.index_ops():
            index.attributes["dim"] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), order.index(attr_int(index, "dim"))
            )
        maker.operands[len(maker.operands) - 1] = op.operands[1]
        maker.results[0].set_type(op.results[0].type)
        replace_op(op, maker.results[0])


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether tensors are computed element by element, of none whose elements a body asks for."""
    if op.name != "linalg.generic" or walk(op, "tensor.extract"):
        return False
    return set(rows.Structured(op).iterators) <= {"parallel"}


def _is_read_whole(op: ir.Operation, place: int) -> bool:
    """Whether an operand is an input of which each point of the loops has an element of its own."""
    s = rows.Structured(op)
    loops = [rows.dim_of(result) for result in s.maps[place].results]
    return place < s.inputs and None not in loops and sorted(set(loops)) == list(range(len(s.iterators)))


def _is_made_for(maker: ir.Operation, op: ir.Operation) -> bool:
    """Whether an operator's only result is read by a transpose alone, and overwrites what its output began with."""
    if len(maker.results) != 1:
        return False
    readers = users_of(maker.results[0])
    return readers == [op] and not list(maker.regions[0].blocks[0].arguments[-1].uses)


def _turn(op: ir.Operation, orders: Mapping[int, Sequence[int]]) -> None:
    """Gives operands, by number, the indices that they had in another order."""
    maps = rows.Structured(op).maps
    for place, order in orders.items():
        results = list(maps[place].results)
        maps[place] = ir.AffineMap.get(maps[place].n_dims, 0, [results[d] for d in order])
    set_maps(op, maps)
