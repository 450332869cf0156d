// A sum over 40 columns: slots are opened for 48, which three steps of a product take, and boxes have no more.

// RUN: kitsune-opt %s --schedule-products --verify-dataflow > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK:     sym_name = "left"} : () -> !kitsune.ring<tensor<128x64xbf16>
// CHECK:     "kitsune.acquire"{{.*}} -> !kitsune.slot<tensor<128x48xbf16>>
// CHECK:     "kitsune.acquire"{{.*}} -> !kitsune.slot<tensor<{{[0-9]+}}x48xbf16>>
// CHECK:     "kitsune.wait"{{.*}} -> !kitsune.slot<tensor<128x48xbf16>>

// RUN: kitsune-opt %t.mlir --convert-kitsune-to-gpu | filecheck %s --check-prefix=GPU
// GPU: \22box\22: [48, 128]
// GPU-COUNT-3: wgmma.mma_async

// Rows of many columns end as they did: their last box has what is beyond the tensor, too.
// RUN: sed "s/40x/104x/g; s/x40/x104/g" %s | kitsune-opt --schedule-products | filecheck %s --check-prefix=LONG
// LONG-NOT: slot<tensor<128x48xbf16>>

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<9000x40xbf16>, %w: tensor<512x40xbf16>) -> tensor<9000x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9000x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9000x512xf32>) -> tensor<9000x512xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<9000x40xbf16>, tensor<512x40xbf16>) outs(%f : tensor<9000x512xf32>) -> tensor<9000x512xf32>
  return %y : tensor<9000x512xf32>
}
