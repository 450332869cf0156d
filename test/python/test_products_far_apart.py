"""Products behind thousands of operators, as of a recurrent layer's steps."""

from kitsune_mlir import mlir
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes.back_to_back import between_of
from kitsune_mlir.passes.tensor_sizes import TensorSizes

LONG = 3000
STEP = """%{to} = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
  ins(%{of} : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {{
^bb0(%a: f32, %b: f32):
  %s = arith.addf %a, %a : f32
  linalg.yield %s : f32
}} -> tensor<64x64xf32>
"""
MULTIPLIED = "linalg.matmul ins(%{of}, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>)"


def _program(steps: int) -> str:
    product = f"{MULTIPLIED} -> tensor<64x64xf32>\n"
    return f"""#id = affine_map<(m, n) -> (m, n)>
    func.func @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>, %e: tensor<64x64xf32>) -> tensor<64x64xf32> {{
    %0 = {product.format(of="x")}{"".join(STEP.format(of=n, to=n + 1) for n in range(steps))}
    %last = {product.format(of=steps)}
    return %last : tensor<64x64xf32> }}"""


def test_what_is_between_products_may_be_thousands_of_operators():
    for steps in (3, LONG):
        module = mlir.parse(_program(steps), mlir.context())
        first, last = walk(module, "linalg.matmul")
        found = between_of(last, TensorSizes(last.block))
        assert found is not None and len(found.members) == steps
        assert [one.op for one in found.firsts] == [first] and [one.op for one in found.seconds] == [last]
        assert between_of(first, TensorSizes(first.block)) is None
