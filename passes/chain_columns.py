"""What follows a product elementwise, on some of the tile's columns."""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import is_column
from kitsune_mlir.chains.product_plan import Product
from kitsune_mlir.codegen.pipeline.nests import Nest
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import cloned_on
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.operations import made_by, operations_of, slice_of, users_of


class Columns:
    """The operators from a product to the end of its epilogue. `value` gives what the kernel has for a value of the
    stage that these do not compute, a tile or a resident, and of which one dimension (None: none) is the columns; all
    of it, or the columns alone."""

    def __init__(self, nest: Nest, value: Callable[[ir.Value, int | None], ir.Value]):
        assert nest.op is not None
        self._value, self._sums, self._end = value, nest.op.results[0], nest.value
        self._ops = _between(self._sums, self._end)

    def of(self, sums: ir.Value, first: int, count: int) -> ir.Value:
        """The end of the epilogue, `count` columns of it from `first` on, of whose sums these are the first."""
        found = {hash(self._sums): sums if rows.shape_of(sums)[1] == count else _sliced(sums, 1, 0, count)}
        for op in self._ops:
            s = rows.Structured(op)
            inputs = [self._operand(s, i, found, first, count) for i in range(s.inputs)]
            kind = ir.RankedTensorType(op.results[0].type)
            copy_rows = rows.shape_of(sums)[0]
            start = tensor.empty([copy_rows, count], kind.element_type)
            found[hash(op.results[0])] = cloned_on(op, [*inputs, start]).results[0]
        return found[hash(self._end)]

    def _operand(self, s: rows.Structured, i: int, found: dict[int, ir.Value], first: int, count: int) -> ir.Value:
        operand = s.op.operands[i]
        if hash(operand) in found or not rows.is_tensor(operand):
            return found.get(hash(operand), operand)
        dim = next((dim for dim, expr in enumerate(s.maps[i].results) if rows.dim_of(expr) == 1), None)
        own = self._value(operand, dim)
        return own if dim is None else _sliced(own, dim, first, count)


def check_leaves(nest: Nest, product: Product) -> None:
    """Raises UnsupportedError where the epilogue of a product that is computed in passes reads columns of what its
    stage computes, and a pass's are not computed by themselves."""
    assert nest.op is not None
    ops = _between(nest.op.results[0], nest.value)
    made = {hash(nest.op.results[0])} | {hash(op.results[0]) for op in ops}
    for op in ops:
        s = rows.Structured(op)
        for i in range(s.inputs):
            value, has_columns = op.operands[i], any(rows.dim_of(expr) == 1 for expr in s.maps[i].results)
            if has_columns and hash(value) not in made:
                _check_pass(value, product)


def check_begins(product: Product) -> None:
    """Raises UnsupportedError where the columns of a pass, which the product's sums begin with, are not computed by
    themselves."""
    if product.n % product.pass_columns:
        raise UnsupportedError("sums of a last, shorter pass do not begin with a tile")
    _check_pass(product.op.operands[2], product)


def _check_pass(value: ir.Value, product: Product) -> None:
    """Raises UnsupportedError where columns of what a stage computes are not computed by themselves, for each pass of
    a product: what is elementwise in what is loaded, or gathered, is."""
    stack = [value]
    while stack:
        value = stack.pop()
        op = rows.producer(value)
        if op is None or op.parent.name != kitsune.StageOp.OPERATION_NAME or loaded_columns(value) is not None:
            continue
        s = rows.Structured(op) if op.name == "linalg.generic" else None
        if s is None or s.iterators != ["parallel"] * 2 or s.maps[-1] != ir.AffineMap.get_identity(2):
            raise UnsupportedError(f"columns of what {op.name} computes, beside a product in passes, are not scheduled")
        check_numbered(op)
        if product.n % product.pass_columns and _at_columns(s.body):
            raise UnsupportedError("columns of a table beside a last, shorter pass are not scheduled")
        columns = [any(rows.dim_of(expr) == 1 for expr in map_.results) for map_ in s.maps[: s.inputs]]
        stack += [v for v, has_columns in zip(op.operands, columns) if rows.is_tensor(v) and has_columns]


def loaded_columns(value: ir.Value) -> tuple[ir.Operation, int] | None:
    """The load that a tile is, or whose columns it is from one on; None where it is neither."""
    op, first = rows.producer(value), 0
    if op is not None and op.name == "tensor.extract_slice" and len(rows.shape_of(value)) == 2:
        offsets, _, strides = slice_of(op)
        first, op = offsets[-1], rows.producer(op.operands[0]) if strides == [1, 1] and offsets[0] == 0 else None
    return (op, first) if op is not None and op.name == kitsune.LoadOp.OPERATION_NAME else None


def check_numbered(op: ir.Operation) -> None:
    """Raises UnsupportedError where an operator uses the number of a column, but for that of a table's element: some
    columns are then not computed by themselves."""
    s = rows.Structured(op)
    for extract in _at_columns(s.body):
        table, (*others, _) = ir.RankedTensorType(extract.operands[0].type), list(extract.operands)[1:]
        if table.rank != 2 or not table.has_static_shape or any(map(is_column, others)):
            raise UnsupportedError(f"columns of elements of {table}, by themselves, are not scheduled")
    columns = (one.results[0] for one in s.index_ops() if is_column(one.results[0]))
    if {user.name for column in columns for user in users_of(column)} - {"tensor.extract"}:
        raise UnsupportedError("numbers of columns are not scheduled where some columns are computed by themselves")


def computed_columns(
    value: ir.Value,
    shape: tuple[int, int],
    first: ir.Value,
    leaf: Callable[[ir.Value, int | None], ir.Value],
) -> ir.Value:
    """Columns of a tile that a stage computes, from `first` on, rows and columns as `shape` says, where they are
    computed by themselves. `leaf` gives those of what the stage loads or is resident, of which one dimension (None:
    none) is the columns."""
    op = rows.producer(value)
    assert op is not None
    s, kind = rows.Structured(op), ir.RankedTensorType(op.results[0].type)
    inputs = []
    for i in range(s.inputs):
        operand, dim = op.operands[i], next((d for d, e in enumerate(s.maps[i].results) if rows.dim_of(e) == 1), None)
        computed = dim is not None and is_computed(operand)
        inputs.append(computed_columns(operand, shape, first, leaf) if computed else leaf(operand, dim))
    start = tensor.empty(list(shape), kind.element_type)
    clone = cloned_on(op, [*inputs, start])
    take_columns(clone, first, shape[1])
    return clone.results[0]


def is_computed(value: ir.Value) -> bool:
    """Whether a stage computes a tile by element."""
    op = made_by(value, "linalg.generic")
    return op is not None and op.parent.name == kitsune.StageOp.OPERATION_NAME


def take_columns(op: ir.Operation, first: ir.Value, count: int) -> None:
    """Has an operator that computes so many columns, from `first` on, take the elements of tables from there on."""
    for extract in _at_columns(op.regions[0].blocks[0]):
        with ir.InsertionPoint(op):
            extract.operands[0] = _columns_of_table(extract.operands[0], first, count)


def _at_columns(body: ir.Block) -> list[ir.Operation]:
    """What takes elements of tables at a place that the number of the column is part of."""
    extracts = operations_of(body, "tensor.extract")
    return [one for one in extracts if any(map(is_column, list(one.operands)[1:]))]


def _columns_of_table(table: ir.Value, first: ir.Value, count: int) -> ir.Value:
    kind = ir.RankedTensorType(table.type)
    sizes = [kind.shape[0], count]
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.ExtractSliceOp(type_, table, [first], [], [], [0, rows.DYNAMIC], sizes, [1, 1]).result


def _between(start: ir.Value, end: ir.Value) -> list[ir.Operation]:
    """The operators that compute one value from another, in order."""
    found: list[ir.Operation] = []

    def visit(value: ir.Value) -> bool:
        op = rows.producer(value)
        if value == start or op is None:
            return value == start
        if op in found:
            return True
        if op.parent != rows.producer(start).parent or op.name != "linalg.generic":
            return False
        reached = [visit(operand) for operand in rows.Structured(op).given]
        if any(reached) and op not in found:
            found.append(op)
        return any(reached)

    visit(end)
    return found


def _sliced(tile: ir.Value, dim: int, first: int, count: int) -> ir.Value:
    """A tile's elements from `first` on along one dimension."""
    kind = ir.RankedTensorType(tile.type)
    if kind.shape[dim] == count:
        return tile
    sizes, offsets = list(kind.shape), [0] * kind.rank
    sizes[dim], offsets[dim] = count, first
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.ExtractSliceOp(type_, tile, [], [], [], offsets, sizes, [1] * kind.rank).result
