"""Numbers of rows that are given a dimension of one element later have it from the beginning.

    %s = linalg.generic ... outs(%0 : tensor<64xf32>)            %s = linalg.generic ... outs(%0 : tensor<64x1xf32>)
    %m = linalg.generic ... ins(%s : tensor<64xf32>)        =>   %m = linalg.generic ... ins(%s : tensor<64x1xf32>)
    %e = tensor.expand_shape %m [[0, 1]]                         ... %m : tensor<64x1xf32>
    ... %e : tensor<64x1xf32>

So `x.sum(-1).unsqueeze(-1)` is what `x.sum(-1, keepdim=True)` is, and nothing stands between a row's sum and what reads
it. Elementwise operators in between follow where they lead to a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import set_maps
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import made_by, users_of

_PARALLEL = "#linalg.iterator_type<parallel>"


def keep_dimensions(module: ir.Module) -> None:
    """Puts what is made with a last dimension of one element in the place of each tensor.expand_shape that adds it."""
    _keep([op.operands[0] for op in walk(module, "tensor.expand_shape")])


def _keep(values: Sequence[ir.Value]) -> None:
    """The same for what expands these values: not all of that is still there when its turn comes."""
    for value in values:
        readers = users_of(value)
        for expand in [op for op in readers if op.name == "tensor.expand_shape"][:1]:
            _keep_dimension(expand)


def _keep_dimension(expand: ir.Operation) -> None:
    """Takes the place of a tensor.expand_shape that adds a last dimension of one element, where a linalg.generic makes
    its operand, nothing but such operations reads that, and a reduction is what it is computed from."""
    value, kind = expand.operands[0], expand.results[0].type
    made = rows.producer(value)
    if not _adds_one(expand) or made is None or not _is_of_reduction(value):
        return
    readers = users_of(value)
    if not all(reader.name == expand.name and reader.results[0].type == kind for reader in readers):
        return
    structured = rows.Structured(made)
    start = rows.producer(made.operands[structured.inputs])
    with made.location, ir.InsertionPoint(made):
        made.operands[structured.inputs] = _longer_start(start, kind)
        if "reduction" in structured.iterators:
            maps = structured.maps
            maps[-1] = _with(maps[-1], ir.AffineConstantExpr.get(0), maps[-1].n_dims)
            set_maps(made, maps)
            longer = []
        else:
            longer = _add_loop(made, structured)
    made.results[0].set_type(kind)
    for reader in readers:
        replace_op(reader, made.results[0])
    _keep(longer)


def _adds_one(expand: ir.Operation) -> bool:
    shape, longer = rows.shape_of(expand.operands[0]), rows.shape_of(expand.results[0])
    return bool(shape) and longer == [*shape, 1]


def _is_of_reduction(value: ir.Value, seen: set[int] | None = None) -> bool:
    """Whether a value is, or is computed element by element of, what a reduction into a new tensor gives. Values `seen`
    before are not."""
    seen = set() if seen is None else seen
    if hash(value) in seen:
        return False
    seen.add(hash(value))
    op = made_by(value, "linalg.generic")
    if op is None or len(op.results) != 1:
        return False
    structured, identity = rows.Structured(op), ir.AffineMap.get_identity(len(rows.shape_of(value)))
    if _start_of(op.operands[structured.inputs]) is None:
        return False
    if "reduction" in structured.iterators:
        return True
    if structured.maps[-1] != identity:
        return False
    whole = [x for x, map_ in zip(op.operands, structured.maps[: structured.inputs]) if map_ == identity]
    return any(_is_of_reduction(x, seen) for x in whole)


def _start_of(value: ir.Value) -> ir.Operation | None:
    """The tensor.empty that an operator writes to, or that is filled for it."""
    op = rows.producer(value)
    if op is not None and op.name == "linalg.fill":
        op = rows.producer(op.operands[1])
    return op if op is not None and op.name == "tensor.empty" else None


def _longer_start(start: ir.Operation | None, kind: ir.Type) -> ir.Value:
    """What an operator starts from, with the new dimension."""
    assert start is not None
    empty = _start_of(start.results[0])
    assert empty is not None
    known = iter(empty.operands)
    sizes = [next(known) if size == rows.DYNAMIC else size for size in rows.shape_of(empty.results[0])]
    made = tensor.EmptyOp([*sizes, 1], ir.RankedTensorType(kind).element_type).result
    return linalg.fill(start.operands[0], outs=[made]) if start.name == "linalg.fill" else made


def _add_loop(op: ir.Operation, structured: rows.Structured) -> list[ir.Value]:
    """Gives an elementwise operator a loop of one turn; gives its operands before they had the new dimension."""
    rank, longer = len(structured.iterators), []
    identity, last = ir.AffineMap.get_identity(rank), ir.AffineDimExpr.get(rank)
    maps = []
    for number, map_ in enumerate(structured.maps):
        whole = map_ == identity
        if whole and number < structured.inputs:
            longer.append(op.operands[number])
            op.operands[number] = _expanded(op.operands[number])
        maps.append(_with(map_, last if whole else None, rank + 1))
    set_maps(op, maps)
    op.attributes["iterator_types"] = ir.ArrayAttr.get([ir.Attribute.parse(_PARALLEL)] * (rank + 1))
    return longer


def _expanded(value: ir.Value) -> ir.Value:
    shape, kind = rows.shape_of(value), ir.RankedTensorType(value.type)
    open_ = [d for d, size in enumerate(shape) if size == rows.DYNAMIC]
    sizes = [tensor.DimOp(value, arith.ConstantOp.create_index(d)).result for d in open_]
    groups = [[d] for d in range(len(shape) - 1)] + [[len(shape) - 1, len(shape)]]
    longer = ir.RankedTensorType.get([*shape, 1], kind.element_type)
    return tensor.ExpandShapeOp(longer, value, groups, sizes, [*shape, 1]).result


def _with(map_: ir.AffineMap, expr: ir.AffineExpr | None, dims: int) -> ir.AffineMap:
    """A map of so many dimensions, with one more result."""
    return ir.AffineMap.get(dims, 0, [*map_.results, *([] if expr is None else [expr])])
