"""Maxima over windows of padded images, taken of the images: what lies outside is in no memory.

    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] { ... yield %least }
    linalg.pooling_nchw_max ins(%p, %window) outs(%begin)          // begins with %least, too
      =>
    linalg.generic over images, channels, places, the window's elements { maximum of %begin and %x[nearest element] }

Of a window that sees the image at all, the element nearest to one outside is in the window too, so that it changes no
maximum.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir, linalg, tensor, walk

NAMES = ("linalg.pooling_ncw_max", "linalg.pooling_nchw_max")


def pool_inside(main: ir.Operation) -> None:
    """Rewrites what maxima of padded images @main takes."""
    for op in walk(main, *NAMES):
        pad = rows.producer(op.operands[0])
        if pad is not None and pad.name == "tensor.pad" and (low := _low(op, pad)) is not None:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_pooled(op, pad.operands[0], low))
            op.erase()
            if not list(pad.results[0].uses):
                pad.erase()


def _low(op: ir.Operation, pad: ir.Operation) -> list[int] | None:
    """How much each dimension of space is padded before the image; None where padding matters."""
    image, whole, places = (ir.RankedTensorType(v.type) for v in (*pad.operands[:1], *op.operands[:1], op.results[0]))
    low, high = (list(ir.DenseI64ArrayAttr(pad.attributes[name])) for name in ("static_low", "static_high"))
    strides, dilations = (list(ir.DenseIntElementsAttr(op.attributes[name])) for name in ("strides", "dilations"))
    window = ir.RankedTensorType(op.operands[1].type).shape
    if isinstance(image.element_type, ir.IntegerType):
        return None
    if len(pad.operands) > 1 or any((*low[:2], *high[:2])) or min((*low, *high)) < 0 or set(dilations) != {1}:
        return None
    if any(kind.is_dynamic_dim(d) for kind in (image, whole) for d in range(2, kind.rank)):
        return None
    begins = rows.producer(op.operands[2])
    outside = rows.producer(list(pad.regions[0].blocks[0].operations)[-1].operation.operands[0])
    if begins is None or begins.name != "linalg.fill" or outside is None or outside.name != "arith.constant":
        return None
    scalar = rows.producer(begins.operands[0])
    if scalar is None or scalar.name != "arith.constant" or scalar.attributes["value"] != outside.attributes["value"]:
        return None
    for before, size, own, stride, count in zip(low[2:], image.shape[2:], window, strides, places.shape[2:]):
        if before >= own or (count - 1) * stride - before >= size:
            return None  # a window that does not see the image
    return low[2:]


def _pooled(op: ir.Operation, image: ir.Value, low: list[int]) -> ir.Value:
    """The maxima, of an image that lies that far behind the first window's begin."""
    rank, sizes = len(low), ir.RankedTensorType(image.type).shape[2:]
    strides = list(ir.DenseIntElementsAttr(op.attributes["strides"]))
    loops = [ir.AffineDimExpr.get(d) for d in range(2 + 2 * rank)]
    maps = [ir.AffineMap.get(len(loops), 0, dims) for dims in (loops[2 + rank :], loops[: 2 + rank])]
    kinds = ["parallel"] * (2 + rank) + ["reduction"] * rank
    generic = linalg.GenericOp(
        [op.results[0].type],
        [op.operands[1]],
        [op.operands[2]],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
    )
    element = ir.RankedTensorType(image.type).element_type
    block = generic.regions[0].blocks.append(ir.RankedTensorType(op.operands[1].type).element_type, element)
    with ir.InsertionPoint(block):
        at = [linalg.IndexOp(d).result for d in range(2)]
        for d in range(rank):
            place = arith.muli(linalg.IndexOp(2 + d).result, _number(strides[d]))
            place = arith.addi(place, linalg.IndexOp(2 + rank + d).result)
            inside = arith.maxsi(arith.subi(place, _number(low[d])), _number(0))
            at.append(arith.minsi(inside, _number(sizes[d] - 1)))
        found = tensor.extract(image, at)
        linalg.YieldOp([arith.maximumf(block.arguments[1], found)])
    return generic.results[0]


def _number(value: int) -> ir.Value:
    return arith.ConstantOp.create_index(value).result
