"""What is behind a product looks no further for what is made of broadcasts than it takes."""

from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.passes.broadcast_follows import take_broadcasts

TENSOR, LOOPS, COUNT = "tensor<8x64xf32>", "affine_map<(i, j) -> (i, j)>", 1500


def elementwise(name, inputs):
    """An operator that adds up its inputs, or an input to itself."""
    given = ", ".join(f"%a{number}: f32" for number in range(len(inputs)))
    maps, kinds = ", ".join([LOOPS] * (len(inputs) + 1)), ", ".join([TENSOR] * len(inputs))
    return f"""{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
        ins({", ".join(inputs)} : {kinds}) outs(%e : {TENSOR}) {{
    ^bb0({given}, %b: f32):
      %s = arith.addf %a0, %a{len(inputs) - 1} : f32
      linalg.yield %s : f32
    }} -> {TENSOR}"""


def test_long_chains():
    """The states of a recurrence of many steps are not gone through."""
    chain = "\n".join(elementwise(f"%c{number + 1}", [f"%c{number}"]) for number in range(COUNT))
    text = f"""func.func @main(%x: {TENSOR}, %w: tensor<64x64xf32>, %c0: {TENSOR}) -> {TENSOR} {{
      %e = tensor.empty() : {TENSOR}
      %zero = arith.constant 0.0 : f32
      %f = linalg.fill ins(%zero : f32) outs(%e : {TENSOR}) -> {TENSOR}
      {chain}
      %p = linalg.matmul ins(%x, %w : {TENSOR}, tensor<64x64xf32>) outs(%f : {TENSOR}) -> {TENSOR}
      {elementwise("%y", ["%p", f"%c{COUNT}"])}
      return %y : {TENSOR}
    }}"""
    with ir.Context():
        module = ir.Module.parse(text)
        take_broadcasts(walk(module, "linalg.matmul"))
        assert len(walk(module, "linalg.generic")) == COUNT + 1
