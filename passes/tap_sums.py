"""Convolutions of few outputs as convolutions of single elements, with all the filter's elements at once, whose results
are added where windows see them.

    %c = linalg.conv_2d_nchw_fchw ins(%x, %f : tensor<2x256x60x90xbf16>, tensor<12x256x3x3xbf16>) outs(%begin)
  =>
    %t = linalg.conv_2d_nchw_fchw ins(%x, %g : ..., tensor<108x256x1x1xbf16>) outs(%zero)       // 2x108x60x90, of f32
    %p = tensor.pad %t as 2x3x3x12x60x90 ...
    %c = linalg.generic {(b, o, y, x, i, j) -> (b, i, j, o, y + i, x + j)} ins(%p) outs(%begin) // a sum over i and j

So each element is read once, not once for each of the filter's. `planning/tap_sums.py` says where that is faster.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.generics import empty_generic
from kitsune_mlir.mlir import arith, ir, linalg, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.kernel_cost import MOST_WINDOW
from kitsune_mlir.planning.product_tiles import PAIRS
from kitsune_mlir.planning.tap_sums import TapSums
from kitsune_mlir.planning.target import Target
from kitsune_mlir.precision import tf32_pieces

from .convolution_operands import padded, transposed
from .convolutions import Convolution
from .reshapes import reshaped

_MAKERS = (linalg.conv_1d_ncw_fcw, linalg.conv_2d_nchw_fchw, linalg.conv_3d_ncdhw_fcdhw)


def sum_taps(of: Convolution, target: Target) -> ir.Operation | None:
    """Puts a convolution of single elements in the place of one, where that is faster; it, or None."""
    if of.groups > 1 or not 1 < prod(of.kernel) <= MOST_WINDOW or not _are_faster(of, target):
        return None
    with of.op.location, ir.InsertionPoint(of.op):
        sums = _sums(of)
        begin = of.op.operands[2]
        none = [0] * (2 + of.rank)
        taps = reshaped(sums, [of.batch, *of.kernel, of.outputs, *of.sizes])
        seen = padded(taps, [*none, *of.low], [*none, *_behind(of)])
        of.op.results[0].replace_all_uses_with(_added(of, seen, begin))
    of.op.erase()
    return sums.owner.operation


def _are_faster(of: Convolution, target: Target) -> bool:
    element = element_type(of.image)
    wide = isinstance(element, ir.F32Type)
    pieces = tf32_pieces(of.by) + 1 if wide else 1
    words = wide and pieces == 2 and target.has_warpgroups
    images = example_sizes.shape_of(of.image)[0]
    pairs = 1 if words else len(PAIRS[pieces])
    return TapSums(images, of.outputs, of.plain, element.width // 8, pairs, words).is_faster(target)


def _sums(of: Convolution) -> ir.Value:
    """Images x (elements of the filter x outputs) x space: each element times that of the filter."""
    rank, f32 = of.rank, ir.F32Type.get()
    filters = transposed(of.filters, [*range(2, 2 + rank), 0, 1])
    filters = reshaped(filters, [prod(of.kernel) * of.outputs, of.channels, *[1] * rank])
    batch = rows.size_of(of.image, 0) if of.batch is None else of.batch
    empty = tensor.empty([batch, prod(of.kernel) * of.outputs, *of.sizes], f32)
    start = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
    ones = [1] * rank
    made = _MAKERS[rank - 1](of.image, filters, outs=[start], strides=ones, dilations=ones)
    return made.results[0] if isinstance(made, ir.OpView) else made


def _behind(of: Convolution) -> list[int]:
    """The zeros behind images that windows see."""
    forms = zip(of.places, of.strides, of.kernel, of.dilations, of.low, of.sizes, strict=True)
    return [max(0, (p - 1) * s + (k - 1) * d + 1 - low - size) for p, s, k, d, low, size in forms]


def _added(of: Convolution, seen: ir.Value, begin: ir.Value) -> ir.Value:
    """What windows see of the products of their own elements, added to what results begin with."""
    rank = of.rank
    loops = [ir.AffineDimExpr.get(d) for d in range(2 + 2 * rank)]
    places, taps = loops[2 : 2 + rank], loops[2 + rank :]
    at = [p * s + t * d for p, s, t, d in zip(places, of.strides, taps, of.dilations, strict=True)]
    read = ir.AffineMap.get(len(loops), 0, [loops[0], *taps, loops[1], *at])
    whole = ir.AffineMap.get(len(loops), 0, loops[: 2 + rank])
    kinds = ["parallel"] * (2 + rank) + ["reduction"] * rank
    generic = empty_generic([seen], [begin], [read, whole], kinds)
    with ir.InsertionPoint(generic.regions[0].blocks[0]):
        linalg.YieldOp([arith.addf(*generic.regions[0].blocks[0].arguments)])
    return generic.results[0]
