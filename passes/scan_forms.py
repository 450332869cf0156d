"""Running sums that go backwards, or leave each element itself out, while rows are scheduled: attributes of scans.

    %f = each row of %x, its last element first               %s = tm_tensor.scan {kitsune.backwards} ins(%x)
    %s = tm_tensor.scan ins(%f)                          =>
    %y = each row of %s, its last element first               // %s in the place of %y

    %c = tensor.concat dim(1) %ones, %x                       %s = tm_tensor.scan {kitsune.before} ins(%x) { mulf }
    %s = tm_tensor.scan ins(%c) { mulf }                 =>
    %y = %s without its last column                           // %s in the place of %y

also where the scan's results without the last of them stand behind the ones. So such scans are of a group's rows
(row_scans.py). Those that no kernel has become again what they were.
"""

from __future__ import annotations

from kitsune_mlir.codegen.scan_joins import BACKWARDS, BEFORE, neutral_of
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import constant_index, empty_generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, attr_int, i64, ir, linalg, tensor, walk
from kitsune_mlir.operations import made_by, operations_of, producer, slice_of, users_of
from kitsune_mlir.rows import shape_of

from .row_groups import scalar_of
from .row_scans import SCAN


def form_scans(block: ir.Block) -> None:
    """Gives scans along the last dimension such attributes, where that is what they do."""
    for op in operations_of(block):
        if op.name == SCAN and attr_int(op, "dimension") == ir.RankedTensorType(op.operands[0].type).rank - 1:
            _turn(op)
    for op in operations_of(block):
        if op.name == SCAN and BACKWARDS not in op.attributes and neutral_of(op) is not None:
            _leave_out(op)


def unform_scans(block: ir.Block) -> None:
    """Makes of the scans of a block that have such attributes others that have none."""
    for op in operations_of(block, SCAN):
        with op.location, ir.InsertionPoint(op):
            if BACKWARDS in op.attributes:
                op.operands[0] = _last_first(op.operands[0])
        end = ir.InsertionPoint(_next(op))
        with op.location, end:
            for name, put in ((BACKWARDS, _last_first), (BEFORE, _one_on)):
                if name in op.attributes:
                    del op.attributes[name]
                    uses = list(op.results[0].uses)
                    found = put(op.results[0])
                    for use in uses:
                        use.owner.operands[use.operand_number] = found


def has_form(scan: ir.Operation) -> bool:
    """Whether a scan has one of the attributes."""
    return any(name in scan.attributes for name in (BACKWARDS, BEFORE))


def _turn(scan: ir.Operation) -> None:
    flip = producer(scan.operands[0])
    source = _turned(flip)
    users = users_of(scan.results[0]) + [op for op in _readers(scan.results[0])]
    readers = [op for op in dict.fromkeys(users) if op.parent.operation == scan.parent.operation]
    found = [_turned(op) for op in readers]
    if source is None or not readers or any(value is None or value != scan.results[0] for value in found):
        return
    scan.operands[0] = source
    scan.attributes[BACKWARDS] = ir.UnitAttr.get(scan.context)
    for op in readers:
        op.results[0].replace_all_uses_with(scan.results[0])
        op.erase()
    _erase_unread(flip)


def _readers(value: ir.Value) -> list[ir.Operation]:
    """The linalg.generics whose bodies read a tensor by number."""
    owners = users_of(value, "tensor.extract")
    return [op.parent.operation for op in owners]


def _turned(op: ir.Operation | None) -> ir.Value | None:
    """The tensor whose rows an operator gives, the last element first; None for another operator."""
    if op is None or op.name != "linalg.generic" or len(op.operands) != 1:
        return None
    extracts = walk(op, "tensor.extract")
    *_, end = op.regions[0].blocks[0].operations
    if len(extracts) != 1 or list(end.operation.operands) != [extracts[0].results[0]]:
        return None
    source, *at = extracts[0].operands
    size, rank = shape_of(op.results[0])[-1], len(at)
    if list(shape_of(source)) != list(shape_of(op.results[0])) or size < 0 or not at:
        return None
    last = producer(at[-1])
    plain = all(_is_index(value, d) for d, value in enumerate(at[:-1]))
    is_last = last is not None and last.name == "arith.subi" and constant(last.operands[0]) == size - 1
    return source if plain and is_last and _is_index(last.operands[1], rank - 1) else None


def _is_index(value: ir.Value, d: int) -> bool:
    op = made_by(value, "linalg.index")
    return op is not None and attr_int(op, "dim") == d


def _leave_out(scan: ir.Operation) -> None:
    """A scan of a tensor behind a column of what changes nothing, or whose results stand behind one."""
    result, uses = scan.results[0], users_of(scan.results[0])
    rest = _behind_neutral(producer(scan.operands[0]), scan)
    if rest is not None and uses and all(_is_without_last(op) for op in uses):
        with scan.location, ir.InsertionPoint(scan):
            made = _before(scan, rest)
        for op in uses:
            op.results[0].replace_all_uses_with(made)
            op.erase()
        concat = producer(scan.operands[0])
        scan.erase()
        _erase_unread(concat)
        return
    for op in [op for op in uses if _is_without_last(op)]:
        for use in list(op.results[0].uses):
            concat = use.owner.operation
            rest = _behind_neutral(concat, scan)
            if rest is not None and rest == op.results[0] and concat.results[0].type == result.type:
                with scan.location, ir.InsertionPoint(scan):
                    made = _before(scan, scan.operands[0])
                concat.results[0].replace_all_uses_with(made)
                concat.erase()
        _erase_unread(op)
    _erase_unread(scan)


def _erase_unread(op: ir.Operation | None) -> None:
    """Erases an operation whose results nobody reads: what it reads would be written for it."""
    if op is not None and not any(list(each.uses) for each in op.results):
        op.erase()


def _behind_neutral(concat: ir.Operation | None, scan: ir.Operation) -> ir.Value | None:
    """What stands behind one column of what changes nothing that a scan joins, along its dimension."""
    along = attr_int(scan, "dimension")
    if (
        concat is None
        or concat.name != "tensor.concat"
        or len(concat.operands) != 2
        or attr_int(concat, "dim") != along
    ):
        return None
    first, rest = concat.operands
    value = scalar_of(first)
    made = None if value is None else producer(value)
    if made is None or made.name != "arith.constant" or shape_of(first)[along] != 1:
        return None
    number = made.attributes["value"].value
    return rest if number == neutral_of(scan) and along == len(shape_of(first)) - 1 else None


def _is_without_last(op: ir.Operation) -> bool:
    """Whether an operation takes all of a tensor but its last column."""
    if op.name != "tensor.extract_slice":
        return False
    (offsets, sizes, steps), whole = slice_of(op), shape_of(op.operands[0])
    same = list(sizes)[:-1] == whole[:-1] and sizes[-1] == whole[-1] - 1 and len(shape_of(op.results[0])) == len(whole)
    return same and not any(offsets) and set(steps) == {1}


def _before(scan: ir.Operation, source: ir.Value) -> ir.Value:
    """A scan of a tensor that leaves each element itself out, at the insertion point."""
    kind = ir.RankedTensorType(source.type)
    sizes = sizes_of(source)
    starts = [tensor.empty(sizes, kind.element_type), tensor.empty(sizes[:-1], kind.element_type)]
    made = scan.clone(ir.InsertionPoint.current).operation
    for i, (operand, result) in enumerate(zip(starts, made.results, strict=True)):
        made.operands[1 + i] = operand
        result.set_type(operand.type)
    made.operands[0] = source
    made.attributes[BEFORE] = ir.UnitAttr.get(scan.context)
    return made.results[0]


def _last_first(value: ir.Value) -> ir.Value:
    """The elements of each row, the last one first."""
    kind = ir.RankedTensorType(value.type)
    start = tensor.empty(sizes_of(value), kind.element_type)
    made = empty_generic([], [start], [map_of(kind.rank, range(kind.rank))], ["parallel"] * kind.rank)
    with ir.InsertionPoint(made.regions[0].blocks[0]):
        at = [linalg.IndexOp(d).result for d in range(kind.rank)]
        at[-1] = arith.subi(constant_index(kind.shape[-1] - 1), at[-1])
        linalg.YieldOp([tensor.extract(value, at)])
    return made.results[0]


def _one_on(value: ir.Value) -> ir.Value:
    """The elements of each row one place on, behind what changes nothing."""
    kind, sizes = ir.RankedTensorType(value.type), sizes_of(value)
    number = arith.constant(kind.element_type, neutral_of(value.owner.operation))
    first = linalg.fill(number, outs=[tensor.empty([*sizes[:-1], 1], kind.element_type)])
    shape = [*list(kind.shape)[:-1], kind.shape[-1] - 1]
    open_ = [size for size in sizes[:-1] if isinstance(size, ir.Value)]
    type_ = ir.RankedTensorType.get(shape, kind.element_type)
    rest = tensor.ExtractSliceOp(type_, value, [], open_, [], [0] * kind.rank, shape, [1] * kind.rank).result
    return tensor.ConcatOp(kind, i64(kind.rank - 1), [first, rest]).result


def _next(op: ir.Operation) -> ir.Operation:
    operations = operations_of(op.block)
    return operations[operations.index(op) + 1]
