"""Logarithms of running sums of exponentials, which overflow as torch-mlir writes them, as one scan that does not.

    %e = linalg.generic ins(%x) { math.exp }
    %s, %l = tm_tensor.scan ins(%e) { ^bb0(%a, %b): arith.addf %a, %b }
    %y = linalg.generic ins(%s) { math.log }
    =>
    %y, %l = tm_tensor.scan ins(%x) { ^bb0(%a, %b): high + log1p(exp(low - high)) }

of the higher and the lower one of %a and %b; exp(0) where they are equal, which two infinities may be. A GPU's kernel
carries the largest element and a sum instead (codegen/scan_joins.py).
"""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir, math, walk
from kitsune_mlir.operations import erase_unused, producer, users_of

_NAMES = {"arith.maximumf", "math.exp", "math.log1p"}


def without_overflow(module: ir.Module) -> None:
    """Rewrites such scans in place, in linalg as torch-mlir made it, where an operator is a body of its own."""
    for scan in walk(module, "tm_tensor.scan"):
        exponentials = producer(scan.operands[0])
        logarithms = users_of(scan.results[0], "linalg.generic")
        logarithms = [generic for generic in logarithms if _does(generic, "math.log")]
        adds = [op.operation.name for op in scan.regions[0].blocks[0].operations] == ["arith.addf", "tm_tensor.yield"]
        if adds and logarithms and exponentials is not None and _does(exponentials, "math.exp"):
            joined = _scan(scan, exponentials.operands[0])
            for generic in logarithms:
                generic.results[0].replace_all_uses_with(joined)
                generic.erase()
            erase_unused(scan)


def joins_exponentials(scan: ir.Operation) -> bool:
    """Whether a scan is one of these."""
    return {op.operation.name for op in scan.regions[0].blocks[0].operations} >= _NAMES


def _does(op: ir.Operation, function: str) -> bool:
    """Whether an operation applies a function to each element of a tensor."""
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return False
    maps = {str(ir.AffineMapAttr(each).value) for each in ir.ArrayAttr(op.attributes["indexing_maps"])}
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    return len(maps) == 1 and names == [function, "linalg.yield"]


def _scan(scan: ir.Operation, x: ir.Value) -> ir.Value:
    """The scan of `x` itself, in front of that of its exponentials."""
    kind = ir.RankedTensorType(x.type).element_type
    with scan.location, ir.InsertionPoint(scan):
        joined = scan.clone()
        joined.operands[0] = x
        block = joined.regions[0].blocks[0]
        addition = block.operations[0].operation
        with ir.InsertionPoint(addition):
            addition.results[0].replace_all_uses_with(_joined(*block.arguments, kind))
        addition.erase()
    return joined.results[0]


def _joined(a: ir.Value, b: ir.Value, kind: ir.Type) -> ir.Value:
    high, low = arith.maximumf(a, b), arith.minimumf(a, b)
    equal = arith.cmpf(arith.CmpFPredicate.OEQ, high, low)
    gap = arith.select(equal, arith.constant(kind, 0.0), arith.subf(low, high))
    return arith.addf(high, math.log1p(math.exp(gap)))
