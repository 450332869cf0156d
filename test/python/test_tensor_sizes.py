"""Sizes that are open until the call, as operations compute them."""

from kitsune_mlir import mlir
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of
from kitsune_mlir.passes.tensor_sizes import TensorSizes


def test_what_an_operation_is_replaced_by_has_its_sizes():
    """A kernel in an operator's place says nothing of its sizes; what reads it does."""
    module = mlir.parse(
        """
        func.func private @made() -> tensor<?x8xf32>
        func.func @main(%x: tensor<?x8xf32>) {
          %axis = arith.constant 0 : index
          %rows = tensor.dim %x, %axis : tensor<?x8xf32>
          %start = tensor.empty(%rows) : tensor<?x8xf32>
          %made = call @made() : () -> tensor<?x8xf32>
          %sum = linalg.add ins(%made, %x : tensor<?x8xf32>, tensor<?x8xf32>)
            outs(%start : tensor<?x8xf32>) -> tensor<?x8xf32>
          return
        }
        """,
        mlir.context(),
    )
    block = module.body.operations[1].regions[0].blocks[0]
    sizes = TensorSizes(block)
    made = operations_of(block, "func.call")[0]
    rows = sizes.shape(block.arguments[0])[0]
    assert sizes.shape(made.results[0])[0] == rows
    other = made.clone(ip=ir.InsertionPoint(made))
    made.results[0].replace_all_uses_with(other.results[0])
    made.erase()
    sizes.look_again()
    assert sizes.shape(other.results[0])[0] == sizes.shape(block.arguments[0])[0] == rows


def test_what_a_kernel_gives():
    """Tiles of some dimensions have their sizes, and of what has others nothing is known. Where there is one open size,
    nobody looks at all operations."""
    module = mlir.parse(
        """
        func.func @main(%x: tensor<?x4x8x16xf32>) {
          %axis = arith.constant 0 : index
          %four = arith.constant 4 : index
          %eight = arith.constant 8 : index
          %rows = tensor.dim %x, %axis : tensor<?x4x8x16xf32>
          %kernel = "kitsune.kernel"() ({
            %i:3 = "kitsune.tiles"(%rows, %four, %eight) {
              operandSegmentSizes = array<i32: 3>, tile = array<i64: 1, 1, 8>
            } : (index, index, index) -> (index, index, index)
            "kitsune.agent"() ({
            ^bb0(%copy: index):
              %tile = tensor.empty() : tensor<1x8x1x16xf32>
              "kitsune.write"(%tile, %i#0, %i#2, %i#1, %axis) {dims = array<i64: 0, 1, 2, 3>, index = 0 : i64}
                : (tensor<1x8x1x16xf32>, index, index, index, index) -> ()
              %part = tensor.empty() : tensor<1x8x16xf32>
              "kitsune.write"(%part, %i#0, %i#2, %axis) {dims = array<i64: 0, 1, 2>, index = 1 : i64}
                : (tensor<1x8x16xf32>, index, index, index) -> ()
            }) {copies = 1 : i64, registers = 24 : i64, sym_name = "worker", warps = 4 : i64} : () -> ()
          }) {sym_name = "tiled"} : () -> !kitsune.outputs
          %whole = "kitsune.result"(%kernel) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8x4x16xf32>
          %other = "kitsune.result"(%kernel) {index = 1 : i64} : (!kitsune.outputs) -> tensor<?x8x16xf32>
          return
        }
        """,
        mlir.context(),
    )
    block = module.body.operations[0].regions[0].blocks[0]
    sizes = TensorSizes(block)
    whole, other = (op.results[0] for op in block.operations if op.operation.name == "kitsune.result")
    (rows, *_) = sizes.shape(block.arguments[0])
    assert sizes.shape(whole) == [rows, 8, 4, 16]
    assert not sizes._is_learnt
    assert sizes.shape(other)[0] != rows
    assert sizes._is_learnt


def test_operations_that_are_made_where_others_were():
    """Memory of erased operations is used again: their results' sizes are not those of what stands there now."""
    module = mlir.parse(
        """
        func.func @main(%x: tensor<?x8xf32>, %rows: index) {
          return
        }
        """,
        mlir.context(),
    )
    block = module.body.operations[0].regions[0].blocks[0]
    sizes, given = TensorSizes(block), block.arguments[1]
    with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown(module.context):
        for number in range(200):
            known = [number + 1] * (number % 3)
            made = mlir.tensor.empty([given, *known], ir.F32Type.get())
            assert sizes.shape(made)[1:] == known
            made.owner.erase()
            sizes.forget_erased()


def test_a_size_that_is_computed_is_an_index():
    """It is one of numbers of 64 bits too, as torch-mlir computes sizes."""
    module = mlir.parse(
        """
        func.func @main(%x: tensor<2x?xf32>) {
          %one = arith.constant 1 : i64
          %axis = arith.constant 1 : index
          %dim = tensor.dim %x, %axis : tensor<2x?xf32>
          %size = arith.index_cast %dim : index to i64
          %more = arith.addi %size, %one : i64
          %rows = arith.index_cast %more : i64 to index
          %made = tensor.empty(%rows) : tensor<2x?x8xf32>
          return
        }
        """,
        mlir.context(),
    )
    block = module.body.operations[0].regions[0].blocks[0]
    sizes = TensorSizes(block)
    *_, made, end = block.operations
    size = sizes.shape(made.operation.results[0])[1]
    assert sizes.is_computed(size) and not sizes.is_given(size)
    with made.operation.location, ir.InsertionPoint(end):
        assert isinstance(sizes.as_value(2 * size).type, ir.IndexType)
    assert module.operation.verify()
