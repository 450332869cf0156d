// RUN: kitsune-opt %s --gated-products=steps=always | filecheck %s
// RUN: kitsune-opt %s --gated-products=steps=always --verify-dataflow
// RUN: kitsune-opt %s --gated-products=steps=never | filecheck %s --check-prefix=NEVER
// RUN: not kitsune-opt %s --gated-products=steps=sometimes 2>&1 | filecheck %s --check-prefix=WRONG

// Four steps that multiply what the one before made with the same weights: one kernel, in which a cluster of eight CTAs
// has 16 rows through all steps. Each CTA's part of the weights stays; the state is collected once a step and carried;
// what differs by step is read where it lies, and what all steps make is one tensor.

// WRONG: gated-products: steps is auto, always or never, not 'sometimes'
// NEVER-COUNT-4: sym_name = "gated
// CHECK-LABEL: func.func @main
// CHECK:         tensor.expand_shape {{.*}} into tensor<4x4x16x128xbf16>
// CHECK:         %[[P:.*]] = "kitsune.kernel"
// CHECK:           "kitsune.tiles"({{.*}}) {{{.*}}tile = array<i64: 16>}
// CHECK:           %[[W:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "weights"} : () -> !kitsune.ring<tensor<16x64xbf16>, 1 : i64>
// CHECK:           %[[R:.*]] = "kitsune.alloc_ring"() {{.*}}space = "dsmem", sym_name = "state0"}
// CHECK:           "kitsune.rank"
// CHECK:           "kitsune.acquire"(%[[W]])
// CHECK:           sym_name = "feed"
// CHECK:           %[[K:.*]] = "kitsune.wait"(%[[W]])
// CHECK:           scf.for
// CHECK:             "kitsune.read"
// CHECK:             %[[S:.*]] = scf.for %[[T:.*]] = {{.*}} iter_args(%[[H:.*]] = {{.*}}) -> (tensor<64x8xbf16>)
// CHECK:               tensor.extract_slice %[[H]][0, 0] [16, 8] [1, 1]
// CHECK:               "kitsune.collect"(%[[R]]
// CHECK-COUNT-2:       "kitsune.read"({{.*}}ahead
// CHECK:               %[[L:.*]] = "kitsune.wait"(%[[R]]) : {{.*}} -> !kitsune.slot<tensor<16x64xbf16>>
// CHECK:               "kitsune.product"({{.*}}, %[[L]], %[[K]])
// CHECK:               "kitsune.settle"
// CHECK:               "kitsune.release"(%[[L]])
// CHECK:               linalg.generic
// CHECK:               %[[N:.*]] = "kitsune.part"
// CHECK:               "kitsune.write"(%[[N]]
// CHECK:               scf.yield %[[N]]
// CHECK:           "kitsune.release"(%[[K]])
// CHECK:         cluster = 8 : i64
// CHECK:         %[[Y:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64} : {{.*}} -> tensor<4x4x16x64xbf16>
// CHECK:         %[[A:.*]] = tensor.collapse_shape %[[Y]]
// CHECK:         return %[[A]]
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#same = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<4x64x128xbf16>, %h0: tensor<64x64xbf16>, %w: tensor<128x64xbf16>) -> tensor<4x64x64xbf16> attributes {kitsune.weights = array<i64: 2>} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
  %o = tensor.empty() : tensor<64x64xbf16>
  %s0 = tensor.extract_slice %x[0, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<4x64x128xbf16> to tensor<1x64x128xbf16>
  %x0 = tensor.collapse_shape %s0 [[0, 1], [2]] : tensor<1x64x128xbf16> into tensor<64x128xbf16>
  %a0 = tensor.extract_slice %x0[0, 0] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %b0 = tensor.extract_slice %x0[0, 64] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %p0 = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%h0, %w : tensor<64x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<64x128xf32>) -> tensor<64x128xf32>
  %q0 = tensor.extract_slice %p0[0, 0] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %r0 = tensor.extract_slice %p0[0, 64] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %h1 = linalg.generic {indexing_maps = [#same, #same, #same, #same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%q0, %r0, %a0, %b0, %h0 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%o : tensor<64x64xbf16>) {
  ^bb0(%q: f32, %r: f32, %a: bf16, %b: bf16, %h: bf16, %out: bf16):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %hw = arith.extf %h : bf16 to f32
    %g = arith.addf %q, %aw : f32
    %n = arith.addf %r, %bw : f32
    %t = math.tanh %n : f32
    %m = arith.mulf %g, %t : f32
    %y = arith.addf %m, %hw : f32
    %z = arith.truncf %y : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<64x64xbf16>
  %y0 = tensor.expand_shape %h1 [[0, 1], [2]] output_shape [1, 64, 64] : tensor<64x64xbf16> into tensor<1x64x64xbf16>
  %s1 = tensor.extract_slice %x[1, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<4x64x128xbf16> to tensor<1x64x128xbf16>
  %x1 = tensor.collapse_shape %s1 [[0, 1], [2]] : tensor<1x64x128xbf16> into tensor<64x128xbf16>
  %a1 = tensor.extract_slice %x1[0, 0] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %b1 = tensor.extract_slice %x1[0, 64] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %p1 = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%h1, %w : tensor<64x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<64x128xf32>) -> tensor<64x128xf32>
  %q1 = tensor.extract_slice %p1[0, 0] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %r1 = tensor.extract_slice %p1[0, 64] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %h2 = linalg.generic {indexing_maps = [#same, #same, #same, #same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%q1, %r1, %a1, %b1, %h1 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%o : tensor<64x64xbf16>) {
  ^bb0(%q: f32, %r: f32, %a: bf16, %b: bf16, %h: bf16, %out: bf16):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %hw = arith.extf %h : bf16 to f32
    %g = arith.addf %q, %aw : f32
    %n = arith.addf %r, %bw : f32
    %t = math.tanh %n : f32
    %m = arith.mulf %g, %t : f32
    %y = arith.addf %m, %hw : f32
    %z = arith.truncf %y : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<64x64xbf16>
  %y1 = tensor.expand_shape %h2 [[0, 1], [2]] output_shape [1, 64, 64] : tensor<64x64xbf16> into tensor<1x64x64xbf16>
  %s2 = tensor.extract_slice %x[2, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<4x64x128xbf16> to tensor<1x64x128xbf16>
  %x2 = tensor.collapse_shape %s2 [[0, 1], [2]] : tensor<1x64x128xbf16> into tensor<64x128xbf16>
  %a2 = tensor.extract_slice %x2[0, 0] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %b2 = tensor.extract_slice %x2[0, 64] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %p2 = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%h2, %w : tensor<64x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<64x128xf32>) -> tensor<64x128xf32>
  %q2 = tensor.extract_slice %p2[0, 0] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %r2 = tensor.extract_slice %p2[0, 64] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %h3 = linalg.generic {indexing_maps = [#same, #same, #same, #same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%q2, %r2, %a2, %b2, %h2 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%o : tensor<64x64xbf16>) {
  ^bb0(%q: f32, %r: f32, %a: bf16, %b: bf16, %h: bf16, %out: bf16):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %hw = arith.extf %h : bf16 to f32
    %g = arith.addf %q, %aw : f32
    %n = arith.addf %r, %bw : f32
    %t = math.tanh %n : f32
    %m = arith.mulf %g, %t : f32
    %y = arith.addf %m, %hw : f32
    %z = arith.truncf %y : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<64x64xbf16>
  %y2 = tensor.expand_shape %h3 [[0, 1], [2]] output_shape [1, 64, 64] : tensor<64x64xbf16> into tensor<1x64x64xbf16>
  %s3 = tensor.extract_slice %x[3, 0, 0] [1, 64, 128] [1, 1, 1] : tensor<4x64x128xbf16> to tensor<1x64x128xbf16>
  %x3 = tensor.collapse_shape %s3 [[0, 1], [2]] : tensor<1x64x128xbf16> into tensor<64x128xbf16>
  %a3 = tensor.extract_slice %x3[0, 0] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %b3 = tensor.extract_slice %x3[0, 64] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %p3 = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%h3, %w : tensor<64x64xbf16>, tensor<128x64xbf16>) outs(%f : tensor<64x128xf32>) -> tensor<64x128xf32>
  %q3 = tensor.extract_slice %p3[0, 0] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %r3 = tensor.extract_slice %p3[0, 64] [64, 64] [1, 1] : tensor<64x128xf32> to tensor<64x64xf32>
  %h4 = linalg.generic {indexing_maps = [#same, #same, #same, #same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%q3, %r3, %a3, %b3, %h3 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%o : tensor<64x64xbf16>) {
  ^bb0(%q: f32, %r: f32, %a: bf16, %b: bf16, %h: bf16, %out: bf16):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %hw = arith.extf %h : bf16 to f32
    %g = arith.addf %q, %aw : f32
    %n = arith.addf %r, %bw : f32
    %t = math.tanh %n : f32
    %m = arith.mulf %g, %t : f32
    %y = arith.addf %m, %hw : f32
    %z = arith.truncf %y : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<64x64xbf16>
  %y3 = tensor.expand_shape %h4 [[0, 1], [2]] output_shape [1, 64, 64] : tensor<64x64xbf16> into tensor<1x64x64xbf16>
  %all = tensor.concat dim(0) %y0, %y1, %y2, %y3 : (tensor<1x64x64xbf16>, tensor<1x64x64xbf16>, tensor<1x64x64xbf16>, tensor<1x64x64xbf16>) -> tensor<4x64x64xbf16>
  return %all : tensor<4x64x64xbf16>
}
