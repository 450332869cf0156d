// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --schedule-rows | filecheck %s --check-prefix=ROWS

// A product of one row is a sum over each row of the weights, and one kernel with what follows.

// CHECK-LABEL: func.func @one_row
// CHECK-NOT:     linalg.matmul
// CHECK:         linalg.generic
// CHECK-SAME:      ["parallel", "parallel", "reduction"]} ins(%{{.*}} : tensor<1x512xbf16>, tensor<256x512xbf16>)
// CHECK-COUNT-2:   arith.extf
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK-NOT:     "kitsune.kernel"
// ROWS-LABEL: func.func @one_row
// ROWS-COUNT-1: "kitsune.kernel"()
// ROWS:         "kitsune.read"(%{{.*}}) {{.*}} -> tensor<{{.*}}x512xbf16>
// ROWS:         math.tanh
// ROWS:         "kitsune.write"
// ROWS-NOT:     "kitsune.kernel"()
// ROWS:         return
func.func @one_row(%x: tensor<1x512xbf16>, %w: tensor<256x512xbf16>) -> tensor<1x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x256xf32>) -> tensor<1x256xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<1x512xbf16>, tensor<256x512xbf16>) outs(%f : tensor<1x256xf32>) -> tensor<1x256xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<1x256xf32>) outs(%e : tensor<1x256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<1x256xf32>
  return %t : tensor<1x256xf32>
}

// Weights that lie across are not read along their rows; many rows share tiles.

// CHECK-LABEL: func.func @across
// CHECK:         "kitsune.product"
// CHECK-LABEL: func.func @many_rows
// CHECK:         "kitsune.product"
func.func @across(%x: tensor<1x512xbf16>, %w: tensor<512x256xbf16>) -> tensor<1x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x256xf32>) -> tensor<1x256xf32>
  %y = linalg.matmul ins(%x, %w : tensor<1x512xbf16>, tensor<512x256xbf16>) outs(%f : tensor<1x256xf32>) -> tensor<1x256xf32>
  return %y : tensor<1x256xf32>
}

func.func @many_rows(%x: tensor<64x512xbf16>, %w: tensor<256x512xbf16>) -> tensor<64x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x256xf32>) -> tensor<64x256xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<64x512xbf16>, tensor<256x512xbf16>) outs(%f : tensor<64x256xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}
