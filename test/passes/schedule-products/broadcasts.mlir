// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// What is cheap and computed of broadcasts alone, a row's number and a column's, is computed by what reads it behind a
// product: no such tensor is in memory.

// CHECK-LABEL: func.func @distances
// CHECK-NOT:     linalg.generic
// CHECK:         "kitsune.kernel"
// CHECK:           "kitsune.settle"
// CHECK:           %[[R:.*]] = "kitsune.read"({{.*}} -> tensor<64xf32>
// CHECK:           %[[C:.*]] = "kitsune.read"({{.*}} -> tensor<128xf32>
// CHECK:           linalg.generic {{.*}} ins(%{{[0-9]+}}, %[[R]], %[[C]] :
// CHECK:             arith.addf
// CHECK:             arith.subf
// CHECK:           "kitsune.write"
func.func @distances(%x: tensor<4000x64xbf16>, %y: tensor<4096x64xbf16>, %row: tensor<4000x1xf32>, %column: tensor<4096xf32>) -> tensor<4000x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4000x4096xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, 0)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%row, %column : tensor<4000x1xf32>, tensor<4096xf32>) outs(%e : tensor<4000x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<4000x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4000x4096xf32>) -> tensor<4000x4096xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %y : tensor<4000x64xbf16>, tensor<4096x64xbf16>) outs(%f : tensor<4000x4096xf32>) -> tensor<4000x4096xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%s, %p : tensor<4000x4096xf32>, tensor<4000x4096xf32>) outs(%e : tensor<4000x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.subf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<4000x4096xf32>
  return %d : tensor<4000x4096xf32>
}

// What is dear is computed once, and so is what has all elements of one of its inputs.

// CHECK-LABEL: func.func @once
// CHECK:         linalg.generic {{.*}} ins(%arg2, %arg3 :
// CHECK:           math.exp
// CHECK:         linalg.generic {{.*}} ins(%arg4, %arg3 :
// CHECK:         "kitsune.kernel"
func.func @once(%x: tensor<4000x64xbf16>, %y: tensor<4096x64xbf16>, %row: tensor<4000x1xf32>, %column: tensor<4096xf32>, %whole: tensor<4000x4096xf32>) -> tensor<4000x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4000x4096xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, 0)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%row, %column : tensor<4000x1xf32>, tensor<4096xf32>) outs(%e : tensor<4000x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    %u = math.exp %t : f32
    linalg.yield %u : f32
  } -> tensor<4000x4096xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%whole, %column : tensor<4000x4096xf32>, tensor<4096xf32>) outs(%e : tensor<4000x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<4000x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4000x4096xf32>) -> tensor<4000x4096xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%x, %y : tensor<4000x64xbf16>, tensor<4096x64xbf16>) outs(%f : tensor<4000x4096xf32>) -> tensor<4000x4096xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%s, %p, %r : tensor<4000x4096xf32>, tensor<4000x4096xf32>, tensor<4000x4096xf32>) outs(%e : tensor<4000x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %t = arith.subf %a, %b : f32
    %u = arith.addf %t, %c : f32
    linalg.yield %u : f32
  } -> tensor<4000x4096xf32>
  return %d : tensor<4000x4096xf32>
}
