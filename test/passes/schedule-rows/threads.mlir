// RUN: kitsune-opt %s --schedule-rows --split-input-file | filecheck %s
// RUN: kitsune-opt %s --schedule-rows --verify-dataflow --split-input-file

// Points are turned, twice, and scaled: a thread has a point, whose numbers are sliced and stacked in registers. The
// scale, which all points share, is read by each.

#own = affine_map<(r, c) -> (r, c)>
#all = affine_map<(r, c) -> (c)>

// CHECK-LABEL: func.func @turned
// CHECK-NOT:     tensor.concat
// CHECK:         %[[P:.*]] = "kitsune.kernel"() ({
// CHECK:           "kitsune.agent"() ({
// CHECK:               %[[X:.*]] = "kitsune.read"(%arg0, %{{.*}}) {{.*}} -> tensor<32x3xf32>
// CHECK:               %[[S:.*]] = "kitsune.read"(%arg1, %{{.*}}) {{.*}} -> tensor<3xf32>
// CHECK:               tensor.extract_slice %[[X]][0, 1] [32, 2] [1, 1]
// CHECK:               tensor.concat dim(1) {{.*}} -> tensor<32x3xf32>
// CHECK:               linalg.generic
// CHECK:               tensor.concat dim(1) {{.*}} -> tensor<32x3xf32>
// CHECK:               %[[Y:.*]] = linalg.generic
// CHECK:               "kitsune.write"(%[[Y]], %{{.*}}) {dims = array<i64: 0, 1>, index = 0 : i64
// CHECK:         }) {{{.*}}, lanes = 1 : i64, {{.*}}sym_name = "rows", vector = 4 : i64, warps = 1
// CHECK:         %[[OUT:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<5000x3xf32>
// CHECK:         return %[[OUT]]
func.func @turned(%x: tensor<5000x3xf32>, %scale: tensor<3xf32>) -> tensor<5000x3xf32> {
  %e = tensor.empty() : tensor<5000x3xf32>
  %a0 = tensor.extract_slice %x[0, 1] [5000, 2] [1, 1] : tensor<5000x3xf32> to tensor<5000x2xf32>
  %a1 = tensor.extract_slice %x[0, 0] [5000, 1] [1, 1] : tensor<5000x3xf32> to tensor<5000x1xf32>
  %a = tensor.concat dim(1) %a0, %a1 : (tensor<5000x2xf32>, tensor<5000x1xf32>) -> tensor<5000x3xf32>
  %p = linalg.generic {indexing_maps = [#own, #all, #own], iterator_types = ["parallel", "parallel"]}
      ins(%a, %scale : tensor<5000x3xf32>, tensor<3xf32>) outs(%e : tensor<5000x3xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %0 = arith.mulf %u, %v : f32
    linalg.yield %0 : f32
  } -> tensor<5000x3xf32>
  %b0 = tensor.extract_slice %p[0, 1] [5000, 2] [1, 1] : tensor<5000x3xf32> to tensor<5000x2xf32>
  %b1 = tensor.extract_slice %p[0, 0] [5000, 1] [1, 1] : tensor<5000x3xf32> to tensor<5000x1xf32>
  %b = tensor.concat dim(1) %b0, %b1 : (tensor<5000x2xf32>, tensor<5000x1xf32>) -> tensor<5000x3xf32>
  %q = linalg.generic {indexing_maps = [#own, #all, #own], iterator_types = ["parallel", "parallel"]}
      ins(%b, %scale : tensor<5000x3xf32>, tensor<3xf32>) outs(%e : tensor<5000x3xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %0 = arith.addf %u, %v : f32
    linalg.yield %0 : f32
  } -> tensor<5000x3xf32>
  return %q : tensor<5000x3xf32>
}

// -----

// Numbers that are stacked at the end alone are stored by the kernels that make them.

#own = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: func.func @stacked
// CHECK-NOT:     kitsune.kernel
func.func @stacked(%x: tensor<5000x2xf32>, %y: tensor<5000x1xf32>) -> tensor<5000x3xf32> {
  %e = tensor.empty() : tensor<5000x2xf32>
  %p = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5000x2xf32>) outs(%e : tensor<5000x2xf32>) {
  ^bb0(%u: f32, %o: f32):
    %0 = math.exp %u : f32
    linalg.yield %0 : f32
  } -> tensor<5000x2xf32>
  %c = tensor.concat dim(1) %p, %y : (tensor<5000x2xf32>, tensor<5000x1xf32>) -> tensor<5000x3xf32>
  return %c : tensor<5000x3xf32>
}
