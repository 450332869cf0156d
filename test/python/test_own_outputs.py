"""Operators write into buffers of their own, also where CSE has given them views of one empty tensor."""

from kitsune_mlir import mlir
from kitsune_mlir.mlir import func, ir, walk
from kitsune_mlir.passes.convert_linalg_to_gpu import _own_outputs

TURN = "linalg.transpose ins(%{of} : tensor<4x?xf32>) outs(%view : tensor<?x4xf32>) permutation = [1, 0]"
TURNED = f"""
func.func @main(%x: tensor<4x?xf32>, %y: tensor<4x?xf32>, %n: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {{
  %empty = tensor.empty(%n) : tensor<?x1x4xf32>
  %view = tensor.collapse_shape %empty [[0, 1], [2]] : tensor<?x1x4xf32> into tensor<?x4xf32>
  %a = {TURN.format(of="x")}
  %b = {TURN.format(of="y")}
  return %a, %b : tensor<?x4xf32>, tensor<?x4xf32>
}}"""


def test_views_of_one_empty_tensor_become_views_of_two():
    """Detection by a decoder's second layer was wrong on a GPU: its keys were written over those of the first, of which
    a dense copy was there already."""
    module = mlir.parse(TURNED, mlir.context())
    (main,) = (op for op in module.body.operations if isinstance(op, func.FuncOp))
    _own_outputs(main)
    module.operation.verify()
    first, second = (op.operands[1].owner for op in walk(module, "linalg.transpose"))
    assert first != second and isinstance(first.operands[0].owner, ir.Operation | ir.OpView)
    assert first.operands[0] != second.operands[0]
