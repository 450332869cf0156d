"""Weights in the order that warpgroups stream: (outputs, inputs). One that lies the other way is transposed in front of
the pipeline, once when the program is loaded where it is a model's own (runtime/weight_steps.py).

    linalg.matmul ins(%x, %w : tensor<?x64xbf16>, tensor<64x8xbf16>)
                                                                  =>
    %t = linalg.transpose ins(%w) outs(...) permutation = [1, 0]
    linalg.matmul indexing_maps = [(m, n, k) -> (m, k), (m, n, k) -> (n, k), ...] ins(%x, %t : ..., tensor<8x64xbf16>)
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import set_maps
from kitsune_mlir.mlir import ir, linalg, tensor


def turn_weights(pipeline: kitsune.PipelineOp) -> None:
    """Rewrites the products of floats of an unplaced pipeline."""
    turned: dict[int, ir.Value] = {}
    for stage in pipeline.stages:
        residents = stage.residents
        for op in stage.block.operations:
            op = op.operation
            if op.name != "linalg.matmul" or op.operands[1] not in residents:
                continue
            weight, maps = op.operands[1], list(rows.Structured(op).maps)
            if weight.type.element_type.width not in (16, 32) or maps[1].results[1] != ir.AffineDimExpr.get(1):
                continue
            with op.location, ir.InsertionPoint(pipeline):
                if hash(weight) not in turned:
                    turned[hash(weight)] = _transposed(weight)
            op.operands[1] = turned[hash(weight)]
            maps[1] = ir.AffineMap.get(3, 0, list(reversed(maps[1].results)))
            set_maps(op, maps)


def _transposed(weight: ir.Value) -> ir.Value:
    empty = tensor.EmptyOp(list(reversed(weight.type.shape)), weight.type.element_type).result
    return linalg.transpose(weight, outs=[empty], permutation=[1, 0]).results[0]
