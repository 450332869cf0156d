"""What is stored twice instead of copied: only what nothing changes between."""

import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen.gpu_twice import store_twice

TEXT = """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: memref<8xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %all = memref.alloc() : memref<3x8xf32>
  %part = memref.subview %all[1, 0] [1, 8] [1, 1] : memref<3x8xf32> to memref<8xf32, strided<[1], offset: 8>>
  %state = memref.alloc() : memref<8xf32>
  linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}}
      ins(%x : memref<8xf32>) outs(%part : memref<8xf32, strided<[1], offset: 8>>) {{
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %one : f32
    linalg.yield %c : f32
  }}
  scf.for %i = %c0 to %c8 step %c1 {{
    {between}
  }}
  memref.copy %part, %state : memref<8xf32, strided<[1], offset: 8>> to memref<8xf32>
  return
}}
"""
BETWEEN = {
    "memref.store %one, %part[%i] : memref<8xf32, strided<[1], offset: 8>>": True,
    "memref.store %one, %all[%c1, %i] : memref<3x8xf32>": True,
    "%v = memref.load %part[%i] : memref<8xf32, strided<[1], offset: 8>>": False,
    "memref.store %one, %x[%i] : memref<8xf32>": False,
}


@pytest.mark.parametrize("between", BETWEEN)
def test_what_regions_between_write(between):
    module = mlir.parse(TEXT.format(between=between), mlir.context())
    main = module.body.operations[0].opview
    store_twice(main)
    assert ("memref.copy" in str(module)) == BETWEEN[between]
