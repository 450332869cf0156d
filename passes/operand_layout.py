"""Operands of products as tensor copies and products take them: long rows, numbers of f32 as pieces of bf16, or as tf32
along k."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.codegen.bf16_pieces import pieces_of
from kitsune_mlir.contraction import Roles
from kitsune_mlir.dialects.windows import WindowsOp, windows_of
from kitsune_mlir.generics import constant_index, generic, moved, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, tensor
from kitsune_mlir.operations import element_type, made_by
from kitsune_mlir.weights import is_weight

from .reshapes import reshaped
from .row_groups import root

PADDED = "kitsune.padded"  # marks a linalg.generic that puts zeros behind the rows of what it reads
OPEN_PADDED = "kitsune.open_padded"  # the same behind lines of an open length, or behind those of its pieces
GRANULE = 16  # bytes of which a tensor copy's rows are multiples
SECTOR = 32  # bytes that the L2 reads at once
WEIGHT_GRANULE = 64


def laid_out(whole: ir.Value, pieces: int, granule: int = GRANULE) -> list[ir.Value]:
    """A tensor as tensor copies and 16-bit products take it: with zeros behind its last dimension, so that this is a
    multiple of so many bytes, and numbers of f32 as the sum of so many of bf16. The tensor itself where it is so
    already. Of a matrix of windows it is the images that are laid out."""
    matrix = windows_of(whole)
    if matrix is None:
        return _laid_out(whole, pieces, granule)
    images = _laid_out(matrix.operands[0], pieces, granule if "pitches" not in matrix.attributes else 1)
    return [whole] if images == [matrix.operands[0]] else [_windows(matrix, image) for image in images]


def weight_laid_out(whole: ir.Value) -> ir.Value:
    """The same of an operand that all tiles read. Where it is a weight, laid out once, rows begin at whole sectors of
    the L2, the longer ones at every other: 19,490 x 104 times 104 x 512 took 18.6 us with rows of 208 bytes and 12.2
    with rows of 256 (H200)."""
    return laid_out(whole, 1, weight_granule(whole))[0]


def words_laid_out(whole: ir.Value, roles: Roles, granule: int) -> ir.Value:
    """A tensor of f32 as products in tf32 take it: its rows are along k, and multiples of so many bytes. The tensor
    itself where it is so already. (It is rounded on its way to shared memory.)"""
    return laid_out(with_last(whole, roles.index("k")), 1, granule)[0]


def with_last(whole: ir.Value, at: int) -> ir.Value:
    """A tensor with that one of its dimensions behind the others. The tensor itself where it is so already."""
    kind = ir.RankedTensorType(whole.type)
    order = [*(d for d in range(kind.rank) if d != at), at]
    if order == sorted(order):
        return whole
    start = tensor.empty(sizes_of(whole, order), kind.element_type)
    return moved(whole, start, [order.index(d) for d in range(kind.rank)])


def paired(whole: ir.Value) -> ir.Value:
    """A tensor of f32 of which each 8 columns, which its rows have a multiple of, are put in the order in which threads
    hold those of a tile that it is multiplied with from registers: 0, 2, 4, 6, 1, 3, 5, 7 (kitsune.product)."""
    kind = ir.RankedTensorType(whole.type)
    *outer, columns = rows.known_sizes(whole)
    rank, source = kind.rank, reshaped(whole, [*outer, columns // 8, 4, 2])
    start = tensor.empty([*sizes_of(source, range(rank)), 2, 4], kind.element_type)
    return reshaped(moved(source, start, [*range(rank), rank + 1, rank]), [*outer, columns])


def weight_granule(whole: ir.Value) -> int:
    """Bytes of which the rows of a product's right operand are made multiples."""
    kind = ir.RankedTensorType(whole.type)
    if windows_of(whole) is not None or not is_weight(whole):
        return GRANULE
    return WEIGHT_GRANULE if kind.shape[-1] * kind.element_type.width // 8 >= WEIGHT_GRANULE else SECTOR


def _windows(matrix: WindowsOp, images: ir.Value) -> ir.Value:
    """The same windows on other images."""
    element = element_type(images)
    type_ = ir.RankedTensorType.get(ir.RankedTensorType(matrix.results[0].type).shape, element)
    made = WindowsOp(images, list(matrix.operands)[1:], type_)
    for name in matrix.attributes:
        made.attributes[name] = matrix.attributes[name]
    return made.results[0]


def _laid_out(whole: ir.Value, pieces: int, granule: int) -> list[ir.Value]:
    """Pieces of a tensor whose rows are multiples of so many bytes."""
    kind = ir.RankedTensorType(whole.type)
    element = ir.BF16Type.get() if pieces > 1 else kind.element_type
    if has_open_lines(whole):
        return _longer_lines(whole, pieces, GRANULE * 8 // element.width)
    columns = kind.shape[-1]
    extra = -columns % max(1, granule // (element.width // 8))
    if pieces == 1 and not extra:
        return [whole]
    if not extra and (source := _before_reshapes(whole)) != whole:
        return [reshaped(piece, rows.known_sizes(whole)) for piece in _laid_out(source, pieces, granule)]
    sizes = sizes_of(whole)
    if not extra:
        return _in_pieces(whole, sizes, pieces)
    starts = [tensor.empty([*sizes[:-1], columns + extra], element) for _ in range(pieces)]

    def body(*_: ir.Value) -> list[ir.Value]:
        x = _padded(whole, columns)
        return [arith.truncf(element, y) for y in pieces_of(x, pieces)] if pieces > 1 else [x]

    made = generic([], starts, [ir.AffineMap.get_identity(kind.rank)] * pieces, ["parallel"] * kind.rank, body)
    if pieces == 1:
        made.attributes[PADDED] = ir.UnitAttr.get()
    return list(made.results)


def _in_pieces(whole: ir.Value, sizes: Sequence[int | ir.Value], pieces: int) -> list[ir.Value]:
    """A tensor of f32, of these sizes, as the sum of so many of bf16."""
    element, identity = ir.BF16Type.get(), ir.AffineMap.get_identity(len(sizes))
    starts = [tensor.empty(sizes, element) for _ in range(pieces)]

    def body(x: ir.Value, *_: ir.Value) -> list[ir.Value]:
        return [arith.truncf(element, y) for y in pieces_of(x, pieces)]

    return list(generic([whole], starts, [identity] * (1 + pieces), ["parallel"] * len(sizes), body).results)


def has_open_lines(value: ir.Value) -> bool:
    """Whether a tensor's lines are of an open length: those that tensor copies take begin at multiples of 16 bytes."""
    kind = ir.RankedTensorType(value.type)
    return kind.is_dynamic_dim(kind.rank - 1)


def ends_in_zeros(value: ir.Value) -> bool:
    """Whether lines of an open length are what `ending_in_zeros` makes."""
    op = rows.producer(value)
    return op is not None and OPEN_PADDED in op.attributes


def ending_in_zeros(whole: ir.Value, at: int) -> ir.Value:
    """A tensor with that one of its dimensions behind the others, whose lines are of an open length: zeros make them
    multiples of what tensor copies take, whatever the type, so that sums along them may go to their ends."""
    turned = with_last(whole, at)
    kind = ir.RankedTensorType(turned.type)
    *outer, size = sizes_of(turned)
    start = tensor.empty([*outer, _whole_words(size, GRANULE // 2)], kind.element_type)
    identity, kinds = ir.AffineMap.get_identity(kind.rank), ["parallel"] * kind.rank
    made = generic([], [start], [identity], kinds, lambda _: _padded(turned, size))
    made.attributes[OPEN_PADDED] = ir.UnitAttr.get()
    return made.results[0]


def _whole_words(size: ir.Value, count: int) -> ir.Value:
    """The least multiple of `count` that is no less than an open size."""
    words = arith.divui(arith.addi(size, constant_index(count - 1)), constant_index(count))
    return arith.muli(words, constant_index(count))


def _longer_lines(whole: ir.Value, pieces: int, count: int) -> list[ir.Value]:
    """Pieces of a tensor whose lines of an open length are made multiples of so many elements; nobody reads what they
    end with, or that is zeros already."""
    kind = ir.RankedTensorType(whole.type)
    sizes = sizes_of(whole)
    if ends_in_zeros(whole):
        found = _in_pieces(whole, sizes, pieces) if pieces > 1 else [whole]
        for piece in found:
            piece.owner.attributes[OPEN_PADDED] = ir.UnitAttr.get()
        return found
    if pieces == 1 and (outer := _outer_dimensions(whole)) is not None:  # what computes these can write longer lines
        source, groups = outer
        (made,) = _longer_lines(source, 1, count)
        return [tensor.CollapseShapeOp(_with_open_lines(kind), made, groups).result]
    longer, found = [*sizes[:-1], _whole_words(sizes[-1], count)], []
    for piece in _in_pieces(whole, sizes, pieces) if pieces > 1 else [whole]:
        start = tensor.empty(longer, element_type(piece))
        open_ = [size for size in sizes if isinstance(size, ir.Value)]
        static = [[0] * kind.rank, rows.shape_of(whole), [1] * kind.rank]
        found.append(tensor.InsertSliceOp(piece, start, [], open_, [], *static).result)
    return found


def _outer_dimensions(whole: ir.Value) -> tuple[ir.Value, list[list[int]]] | None:
    """The elementwise result that a tensor has with some of its outer dimensions joined, and which these are."""
    op = made_by(whole, "tensor.collapse_shape")
    if op is None:
        return None
    groups = rows.groups_of(op)
    maker = made_by(op.operands[0], "linalg.generic")
    is_computed = maker is not None and len(maker.results) == 1
    return (op.operands[0], groups) if is_computed and len(groups[-1]) == 1 else None


def _with_open_lines(kind: ir.RankedTensorType) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([*list(kind.shape)[:-1], rows.DYNAMIC], kind.element_type)


def _before_reshapes(whole: ir.Value) -> ir.Value:
    """The tensor that has the same rows in other dimensions: what makes it can make what they become. Of one with
    several open sizes it is not known which dimensions are which of the other's."""
    if rows.shape_of(whole).count(rows.DYNAMIC) > 1:
        return whole
    source = root(whole)
    kind = ir.RankedTensorType(source.type)
    return source if kind.rank > 1 and kind.shape[-1] == ir.RankedTensorType(whole.type).shape[-1] else whole


def _padded(whole: ir.Value, columns: int | ir.Value) -> ir.Value:
    """In the body of a linalg.generic over a tensor's dimensions: its element there, zero behind the last of these
    `columns`."""
    kind = ir.RankedTensorType(whole.type)
    *outer, last = [linalg.IndexOp(d).result for d in range(kind.rank)]
    size = constant_index(columns) if isinstance(columns, int) else columns
    at = [*outer, arith.minui(last, arith.subi(size, constant_index(1)))]
    x = tensor.extract(whole, at)
    inside = arith.cmpi(arith.CmpIPredicate.ult, last, size)
    zero = arith.constant(kind.element_type, 0.0)
    return arith.select(inside, x, zero)
