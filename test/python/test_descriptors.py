"""Matrix descriptors as numbers."""

import numpy as np
from host_math import run

from kitsune_mlir import mlir
from kitsune_mlir.codegen.hopper import wgmma
from kitsune_mlir.mlir import arith, ir, memref


def descriptors(places: np.ndarray, next_box: int) -> np.ndarray:
    found = np.zeros(len(places), np.uint64)
    text = f"func.func @main(%a: memref<{len(places)}xi32>, %b: memref<{len(places)}xi64>) {{\nreturn\n}}"
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_terminator(block):
            for i in range(len(places)):
                at = arith.constant(ir.IndexType.get(), i)
                bits = wgmma.descriptor(memref.load(block.arguments[0], [at]), next_box)
                memref.store(bits, block.arguments[1], [at])
        run(module, places.view(np.int32), found.view(np.int64))
    return found


def test_which_cta_of_a_cluster_is_not_told():
    """In a cluster the addresses of a CTA's own shared memory carry its rank from bit 24 on, where a descriptor has
    other fields (PTX ISA, Matrix Descriptor Format: matrix-descriptor-encode)."""
    own = np.array([0x400, 0x1C000, 0x38000], np.uint32)
    for next_box in (16, 8192):
        np.testing.assert_array_equal(descriptors(own | 1 << 24, next_box), descriptors(own, next_box))
        np.testing.assert_array_equal(descriptors(own, next_box) & np.uint64(0x3FFF), own >> 4)
        np.testing.assert_array_equal(descriptors(own, next_box) >> np.uint64(16) & np.uint64(0x3FFF), next_box // 16)
