"""Sizes that are open until the call, as operations compute them."""

from kitsune_mlir import mlir
from kitsune_mlir.passes.tensor_sizes import TensorSizes


def test_a_size_of_a_view():
    """torch-mlir asks each size of a view whether it is negative; none is, so the view has the tensor's own size."""
    module = mlir.parse(
        """
        func.func @main(%x: tensor<2x?xi64>) {
          %zero = arith.constant 0 : i64
          %two = arith.constant 2 : i64
          %axis = arith.constant 1 : index
          %dim = tensor.dim %x, %axis : tensor<2x?xi64>
          %size = arith.index_cast %dim : index to i64
          %below = arith.cmpi slt, %size, %zero : i64
          %more = arith.muli %size, %two : i64
          %given = arith.select %below, %more, %size : i64
          %rows = arith.index_cast %given : i64 to index
          %made = tensor.empty(%rows) : tensor<2x?x8xf32>
          return
        }
        """,
        mlir.context(),
    )
    block = module.body.operations[0].regions[0].blocks[0]
    sizes = TensorSizes(block)
    made = next(op.results[0] for op in block.operations if op.operation.name == "tensor.empty")
    assert sizes.shape(made)[1] == sizes.shape(block.arguments[0])[1]
