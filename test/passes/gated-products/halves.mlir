// RUN: kitsune-opt %s --gated-products | filecheck %s
// RUN: kitsune-opt %s --gated-products --verify-dataflow

// A product whose columns are halves that meet: halves of its weight, and of its bias, which are weights themselves.
// Tiles have 16 columns of each, in one set of sums, so that the halves' rows lie by 16 in turn.

// CHECK-LABEL: func.func @main
// CHECK-DAG:     tensor.extract_slice %arg1[0, 0] [256, 128] [1, 1]
// CHECK-DAG:     tensor.extract_slice %arg1[256, 0] [256, 128] [1, 1]
// CHECK-DAG:     tensor.extract_slice %arg2[0] [256] [1]
// CHECK-DAG:     tensor.extract_slice %arg2[256] [256] [1]
// CHECK:         tensor.concat dim(1) {{.*}} : (tensor<16x16x128xbf16>, tensor<16x16x128xbf16>) -> tensor<16x32x128xbf16>
// CHECK:         %[[P:.*]] = "kitsune.kernel"
// CHECK:           %[[S:.*]] = "kitsune.settle"({{.*}} -> tensor<64x32xf32>
// CHECK:           tensor.extract_slice %[[S]][0, 0] [64, 16] [1, 1]
// CHECK:           tensor.extract_slice %[[S]][0, 16] [64, 16] [1, 1]
// CHECK:         %[[Y:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64} : {{.*}} -> tensor<300x256xbf16>
// CHECK-NOT:     linalg.generic
// CHECK:         tensor.expand_shape %[[Y]]
func.func @main(%x: tensor<300x128xbf16>, %w: tensor<512x128xbf16>, %b: tensor<512xbf16>) -> tensor<4x75x256xbf16> attributes {kitsune.weights = array<i64: 1, 2>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x512xf32>) -> tensor<300x512xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<300x128xbf16>, tensor<512x128xbf16>) outs(%f : tensor<300x512xf32>) -> tensor<300x512xf32>
  %e0 = tensor.empty() : tensor<300x512xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%b, %p : tensor<512xbf16>, tensor<300x512xf32>) outs(%e0 : tensor<300x512xbf16>) {
  ^bb0(%a: bf16, %c: f32, %o: bf16):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.addf %wide, %c : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x512xbf16>
  %v = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 75, 512] : tensor<300x512xbf16> into tensor<4x75x512xbf16>
  %low = tensor.extract_slice %v[0, 0, 0] [4, 75, 256] [1, 1, 1] : tensor<4x75x512xbf16> to tensor<4x75x256xbf16>
  %high = tensor.extract_slice %v[0, 0, 256] [4, 75, 256] [1, 1, 1] : tensor<4x75x512xbf16> to tensor<4x75x256xbf16>
  %e1 = tensor.empty() : tensor<4x75x256xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%low, %high : tensor<4x75x256xbf16>, tensor<4x75x256xbf16>) outs(%e1 : tensor<4x75x256xbf16>) {
  ^bb0(%a: bf16, %c: bf16, %o: bf16):
    %t = arith.mulf %a, %c : bf16
    linalg.yield %t : bf16
  } -> tensor<4x75x256xbf16>
  return %g : tensor<4x75x256xbf16>
}

// Halves of what is computed are not made before: each call would.

// CHECK-LABEL: func.func @computed
// CHECK-NOT:     kitsune.kernel
// CHECK:         linalg.matmul {{.*}} -> tensor<300x512xf32>
func.func @computed(%x: tensor<300x128xbf16>, %w: tensor<128x512xbf16>) -> tensor<300x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x512xf32>) -> tensor<300x512xf32>
  %p = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x512xbf16>) outs(%f : tensor<300x512xf32>) -> tensor<300x512xf32>
  %low = tensor.extract_slice %p[0, 0] [300, 256] [1, 1] : tensor<300x512xf32> to tensor<300x256xf32>
  %high = tensor.extract_slice %p[0, 256] [300, 256] [1, 1] : tensor<300x512xf32> to tensor<300x256xf32>
  %e1 = tensor.empty() : tensor<300x256xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%low, %high : tensor<300x256xf32>, tensor<300x256xf32>) outs(%e1 : tensor<300x256xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %t = arith.mulf %a, %c : f32
    linalg.yield %t : f32
  } -> tensor<300x256xf32>
  return %g : tensor<300x256xf32>
}
