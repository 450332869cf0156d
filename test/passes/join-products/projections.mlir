// RUN: kitsune-opt %s --join-products | filecheck %s

// Queries, keys and values: one of them has no bias, another one is scaled. All are columns of one product.

// CHECK-LABEL: func.func @main
// CHECK:         %[[W:.*]] = tensor.concat dim(0) %arg1, %arg2, %arg3 : {{.*}} -> tensor<1024x256xbf16>
// CHECK:         %[[P:.*]] = linalg.matmul {{.*}} ins(%arg0, %[[W]] : {{.*}}) {{.*}} -> tensor<300x1024xf32>
// CHECK:         %[[Z:.*]] = linalg.fill {{.*}} -> tensor<256xbf16>
// CHECK:         %[[B:.*]] = tensor.concat dim(0) %arg4, %[[Z]], %arg5 : {{.*}} -> tensor<1024xbf16>
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[B]], %[[P]] : tensor<1024xbf16>, tensor<300x1024xf32>)
// CHECK:         %[[S:.*]] = tensor.concat dim(0) {{.*}} : (tensor<512xf32>, tensor<256xf32>, tensor<256xf32>) -> tensor<1024xf32>
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[S]] : tensor<300x1024xbf16>, tensor<1024xf32>)
// CHECK-DAG:     %[[Q:.*]] = tensor.extract_slice %[[A]][0, 0] [300, 512] [1, 1]
// CHECK-DAG:     %[[K:.*]] = tensor.extract_slice %[[A]][0, 512] [300, 256] [1, 1]
// CHECK-DAG:     %[[V:.*]] = tensor.extract_slice %[[A]][0, 768] [300, 256] [1, 1]
// CHECK-NOT:     linalg.matmul
// CHECK-DAG:     tensor.expand_shape %[[Q]]
// CHECK-DAG:     tensor.expand_shape %[[K]]
// CHECK-DAG:     tensor.expand_shape %[[V]]
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#column = affine_map<(m, n) -> (n)>
#own = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<300x256xbf16>, %wq: tensor<512x256xbf16>, %wk: tensor<256x256xbf16>, %wv: tensor<256x256xbf16>, %bq: tensor<512xbf16>, %bv: tensor<256xbf16>) -> (tensor<8x300x64xbf16>, tensor<4x300x64xbf16>, tensor<4x300x64xbf16>) attributes {kitsune.weights = array<i64: 1, 2, 3, 4, 5>} {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<300x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x512xf32>) -> tensor<300x512xf32>
  %e0 = tensor.empty() : tensor<300x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %to = tensor.empty() : tensor<300x512xbf16>
  %to0 = tensor.empty() : tensor<300x256xbf16>
  %p = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %wq : tensor<300x256xbf16>, tensor<512x256xbf16>) outs(%f : tensor<300x512xf32>) -> tensor<300x512xf32>
  %p0 = linalg.generic {indexing_maps = [#column, #own, #own], iterator_types = ["parallel", "parallel"]} ins(%bq, %p : tensor<512xbf16>, tensor<300x512xf32>) outs(%to : tensor<300x512xbf16>) {
  ^bb0(%a: bf16, %c: f32, %o: bf16):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.addf %wide, %c : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x512xbf16>
  %q = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel", "parallel"]} ins(%p0 : tensor<300x512xbf16>) outs(%to : tensor<300x512xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.mulf %wide, %scale : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x512xbf16>
  %r = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %wk : tensor<300x256xbf16>, tensor<256x256xbf16>) outs(%f0 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %k = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel", "parallel"]} ins(%r : tensor<300x256xf32>) outs(%to0 : tensor<300x256xbf16>) {
  ^bb0(%c: f32, %o: bf16):
    %n = arith.truncf %c : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x256xbf16>
  %s = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %wv : tensor<300x256xbf16>, tensor<256x256xbf16>) outs(%f0 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %v = linalg.generic {indexing_maps = [#column, #own, #own], iterator_types = ["parallel", "parallel"]} ins(%bv, %s : tensor<256xbf16>, tensor<300x256xf32>) outs(%to0 : tensor<300x256xbf16>) {
  ^bb0(%a: bf16, %c: f32, %o: bf16):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.addf %wide, %c : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<300x256xbf16>
  %0 = tensor.expand_shape %q [[0], [1, 2]] output_shape [300, 8, 64] : tensor<300x512xbf16> into tensor<300x8x64xbf16>
  %1 = tensor.expand_shape %k [[0], [1, 2]] output_shape [300, 4, 64] : tensor<300x256xbf16> into tensor<300x4x64xbf16>
  %2 = tensor.expand_shape %v [[0], [1, 2]] output_shape [300, 4, 64] : tensor<300x256xbf16> into tensor<300x4x64xbf16>
  %t0 = tensor.empty() : tensor<8x300x64xbf16>
  %t1 = tensor.empty() : tensor<4x300x64xbf16>
  %3 = linalg.transpose ins(%0 : tensor<300x8x64xbf16>) outs(%t0 : tensor<8x300x64xbf16>) permutation = [1, 0, 2]
  %4 = linalg.transpose ins(%1 : tensor<300x4x64xbf16>) outs(%t1 : tensor<4x300x64xbf16>) permutation = [1, 0, 2]
  %5 = linalg.transpose ins(%2 : tensor<300x4x64xbf16>) outs(%t1 : tensor<4x300x64xbf16>) permutation = [1, 0, 2]
  return %3, %4, %5 : tensor<8x300x64xbf16>, tensor<4x300x64xbf16>, tensor<4x300x64xbf16>
}

// What leaves the program as it is would be copied.

// CHECK-LABEL: func.func @returned
// CHECK-COUNT-2: linalg.matmul
func.func @returned(%x: tensor<300x256xf32>, %w0: tensor<256x256xf32>, %w1: tensor<256x256xf32>) -> (tensor<300x256xf32>, tensor<300x256xf32>) attributes {kitsune.weights = array<i64: 1, 2>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %w0 : tensor<300x256xf32>, tensor<256x256xf32>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %q = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %w1 : tensor<300x256xf32>, tensor<256x256xf32>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  return %p, %q : tensor<300x256xf32>, tensor<300x256xf32>
}

// One of them is divided by a number; the other one by 1.

// CHECK-LABEL: func.func @divided
// CHECK:         linalg.matmul {{.*}} -> tensor<300x512xf32>
// CHECK:         linalg.generic {{.*}} ins({{.*}} : tensor<300x512xf32>, tensor<512xf32>)
// CHECK:           arith.divf %in, %in_{{.*}} : f32
// CHECK-NOT:     linalg.matmul
// CHECK:         return
func.func @divided(%x: tensor<300x256xf32>, %w0: tensor<256x256xf32>, %w1: tensor<256x256xf32>) -> (tensor<256x300xf32>, tensor<256x300xf32>) attributes {kitsune.weights = array<i64: 1, 2>} {
  %zero = arith.constant 0.0 : f32
  %three = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %w0 : tensor<300x256xf32>, tensor<256x256xf32>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %q = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<300x256xf32>) outs(%e : tensor<300x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %d = arith.divf %a, %three : f32
    linalg.yield %d : f32
  } -> tensor<300x256xf32>
  %k = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%x, %w1 : tensor<300x256xf32>, tensor<256x256xf32>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %t = tensor.empty() : tensor<256x300xf32>
  %0 = linalg.transpose ins(%q : tensor<300x256xf32>) outs(%t : tensor<256x300xf32>) permutation = [1, 0]
  %1 = linalg.transpose ins(%k : tensor<300x256xf32>) outs(%t : tensor<256x300xf32>) permutation = [1, 0]
  return %0, %1 : tensor<256x300xf32>, tensor<256x300xf32>
}
