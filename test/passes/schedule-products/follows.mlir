// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// What follows a product is computed on its tiles: here in more dimensions than the product has, by operators that
// share an input; what they are made of is stored, too, where something else uses it.

// CHECK-LABEL: func.func @gate
// CHECK:         %[[P:.*]] = "kitsune.kernel"
// CHECK:           %[[Y:.*]] = "kitsune.settle"
// CHECK:           %[[B:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<64x{{[0-9]+}}xf32>)
// CHECK:           %[[E:.*]] = linalg.generic {{.*}} ins(%[[B]] :
// CHECK:             math.exp
// CHECK:           %[[G:.*]] = linalg.generic {{.*}} ins(%[[B]], %[[E]] :
// CHECK:           "kitsune.write"(%[[B]], {{.*}} index = 0
// CHECK:           "kitsune.write"(%[[G]], {{.*}} index = 1
// CHECK:         %[[Y0:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64} : {{.*}} -> tensor<300x256xbf16>
// CHECK:         %[[Y1:.*]] = "kitsune.result"(%[[P]]) {index = 1 : i64} : {{.*}} -> tensor<300x256xbf16>
// CHECK-NOT:     linalg.generic
// CHECK:         tensor.expand_shape %[[Y1]]
func.func @gate(%x: tensor<300x128xbf16>, %w: tensor<128x256xbf16>) -> (tensor<300x256xbf16>, tensor<4x75x256xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x256xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %e0 = tensor.empty() : tensor<300x256xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<300x256xf32>) outs(%e0 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<300x256xbf16>
  %v = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 75, 256] : tensor<300x256xbf16> into tensor<4x75x256xbf16>
  %e1 = tensor.empty() : tensor<4x75x256xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v : tensor<4x75x256xbf16>) outs(%e1 : tensor<4x75x256xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %wide = arith.extf %a : bf16 to f32
    %t = math.exp %wide : f32
    linalg.yield %t : f32
  } -> tensor<4x75x256xf32>
  %e2 = tensor.empty() : tensor<4x75x256xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v, %s : tensor<4x75x256xbf16>, tensor<4x75x256xf32>) outs(%e2 : tensor<4x75x256xbf16>) {
  ^bb0(%a: bf16, %c: f32, %o: bf16):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.mulf %wide, %c : f32
    %n = arith.truncf %t : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<4x75x256xbf16>
  return %y, %g : tensor<300x256xbf16>, tensor<4x75x256xbf16>
}

// What rows are summed of is computed where that is done: a chain of operators alone stays with the product.

// CHECK-LABEL: func.func @summed
// CHECK:         %[[Y:.*]] = "kitsune.result"{{.*}} -> tensor<300x256xbf16>
// CHECK:         %[[V:.*]] = tensor.expand_shape %[[Y]]
// CHECK:         linalg.generic {{.*}} ins(%[[V]] : tensor<4x75x256xbf16>) outs(%{{.*}} : tensor<4x75xf32>)
func.func @summed(%x: tensor<300x128xbf16>, %w: tensor<128x256xbf16>) -> tensor<4x75xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x256xbf16>) outs(%f : tensor<300x256xf32>) -> tensor<300x256xf32>
  %e0 = tensor.empty() : tensor<300x256xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<300x256xf32>) outs(%e0 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<300x256xbf16>
  %v = tensor.expand_shape %y [[0, 1], [2]] output_shape [4, 75, 256] : tensor<300x256xbf16> into tensor<4x75x256xbf16>
  %e1 = tensor.empty() : tensor<4x75xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4x75xf32>) -> tensor<4x75xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%v : tensor<4x75x256xbf16>) outs(%z : tensor<4x75xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %wide = arith.extf %a : bf16 to f32
    %t = arith.addf %o, %wide : f32
    linalg.yield %t : f32
  } -> tensor<4x75xf32>
  return %s : tensor<4x75xf32>
}

// What is added to all elements is loaded at once: else a multiprocessor has too few bytes on their way.

// CHECK-LABEL: func.func @residual
// CHECK:         "kitsune.settle"
// CHECK:         "kitsune.read"(%{{.*}}) {ahead, {{.*}}} : (tensor<300x64xbf16>, index, index) -> tensor<64x64xbf16>
func.func @residual(%x: tensor<300x128xbf16>, %w: tensor<128x64xbf16>, %r: tensor<300x64xbf16>) -> tensor<300x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x64xf32>) -> tensor<300x64xf32>
  %p = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x64xbf16>) outs(%f : tensor<300x64xf32>) -> tensor<300x64xf32>
  %e0 = tensor.empty() : tensor<300x64xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%p, %r : tensor<300x64xf32>, tensor<300x64xbf16>) outs(%e0 : tensor<300x64xbf16>) {
  ^bb0(%a: f32, %b: bf16, %o: bf16):
    %wide = arith.extf %b : bf16 to f32
    %s = arith.addf %a, %wide : f32
    %t = arith.truncf %s : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<300x64xbf16>
  return %y : tensor<300x64xbf16>
}

// A number for each row is no matrix, whatever its dimensions: it does not keep what is added from being loaded at once.

// CHECK-LABEL: func.func @scaled_residual
// CHECK:         "kitsune.settle"
// CHECK:         "kitsune.read"(%{{.*}}) {ahead, {{.*}}} : (tensor<512x64x96xf32>, index, index, index) -> tensor<64x{{[0-9]+}}xf32>
func.func @scaled_residual(%x: tensor<512x64x128xbf16>, %w: tensor<512x128x96xbf16>, %s: tensor<64x1xf32>, %r: tensor<512x64x96xf32>)
    -> tensor<512x64x96xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64x96xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512x64x96xf32>) -> tensor<512x64x96xf32>
  %p = linalg.batch_matmul ins(%x, %w : tensor<512x64x128xbf16>, tensor<512x128x96xbf16>) outs(%f : tensor<512x64x96xf32>) -> tensor<512x64x96xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (m, 0)>, affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %s, %r : tensor<512x64x96xf32>, tensor<64x1xf32>, tensor<512x64x96xf32>) outs(%e : tensor<512x64x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %t = arith.mulf %a, %b : f32
    %u = arith.addf %t, %c : f32
    linalg.yield %u : f32
  } -> tensor<512x64x96xf32>
  return %y : tensor<512x64x96xf32>
}

// So is what another kernel reads: in a region behind it.

// CHECK-LABEL: func.func @read_in_a_region
// CHECK:         "kitsune.kernel"
// CHECK:           math.exp
// CHECK:           "kitsune.write"({{.*}} index = 0
// CHECK:           "kitsune.write"({{.*}} index = 1
// CHECK-NOT:     linalg.generic
// CHECK:         scf.execute_region
func.func @read_in_a_region(%x: tensor<300x128xbf16>, %w: tensor<128x64xbf16>) -> (tensor<300x64xbf16>, tensor<300x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x64xf32>) -> tensor<300x64xf32>
  %p = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<128x64xbf16>) outs(%f : tensor<300x64xf32>) -> tensor<300x64xf32>
  %e0 = tensor.empty() : tensor<300x64xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<300x64xf32>) outs(%e0 : tensor<300x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<300x64xbf16>
  %z = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<300x64xbf16>) outs(%e : tensor<300x64xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %wide = arith.extf %a : bf16 to f32
    %t = math.exp %wide : f32
    linalg.yield %t : f32
  } -> tensor<300x64xf32>
  %r = scf.execute_region -> tensor<300x64xf32> {
    scf.yield %z : tensor<300x64xf32>
  }
  return %y, %r : tensor<300x64xbf16>, tensor<300x64xf32>
}
