// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --cut-pipelines=target=sm_80 | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --cut-pipelines=target=sm_90a | filecheck %s --check-prefix=INSIDE

// Rows of a table that are more than registers hold. Where no warpgroups multiply beside threads that gather, they are
// gathered in front of the pipeline.

// CHECK-LABEL: func.func @edges
// CHECK:         %[[ROWS:.*]] = linalg.generic {{.*}} ins(%arg2 : tensor<40000xi64>)
// CHECK:           tensor.extract %arg0
// CHECK:         "kitsune.pipeline"
// CHECK-NOT:       tensor.extract
// CHECK:           "kitsune.load"(%[[ROWS]]) : (tensor<40000x320xbf16>) -> tensor<?x320xbf16>
// CHECK-NOT:       tensor.extract

// INSIDE-LABEL: func.func @edges
// INSIDE:         "kitsune.pipeline"
// INSIDE:           tensor.extract %arg0
// INSIDE:           linalg.matmul
#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
func.func @edges(%x: tensor<500x320xbf16>, %e: tensor<40000x128xbf16>, %from: tensor<40000xi64>, %w: tensor<64x448xbf16>, %b: tensor<64xbf16>, %v: tensor<16x64xbf16>) -> tensor<40000x16xbf16> {
  %zero = arith.constant 0.0 : f32
  %g = tensor.empty() : tensor<40000x320xbf16>
  %s = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]} ins(%from : tensor<40000xi64>) outs(%g : tensor<40000x320xbf16>) {
  ^bb0(%i: i64, %o: bf16):
    %at = arith.index_cast %i : i64 to index
    %c = linalg.index 1 : index
    %y = tensor.extract %x[%at, %c] : tensor<500x320xbf16>
    linalg.yield %y : bf16
  } -> tensor<40000x320xbf16>
  %j = tensor.concat dim(1) %e, %s : (tensor<40000x128xbf16>, tensor<40000x320xbf16>) -> tensor<40000x448xbf16>
  %e0 = tensor.empty() : tensor<40000x64xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<40000x64xf32>) -> tensor<40000x64xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%j, %w : tensor<40000x448xbf16>, tensor<64x448xbf16>) outs(%f0 : tensor<40000x64xf32>) -> tensor<40000x64xf32>
  %eh = tensor.empty() : tensor<40000x64xbf16>
  %a = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]} ins(%h, %b : tensor<40000x64xf32>, tensor<64xbf16>) outs(%eh : tensor<40000x64xbf16>) {
  ^bb0(%p: f32, %q: bf16, %o: bf16):
    %q32 = arith.extf %q : bf16 to f32
    %t = arith.addf %p, %q32 : f32
    %m = arith.maximumf %t, %zero : f32
    %y = arith.truncf %m : f32 to bf16
    linalg.yield %y : bf16
  } -> tensor<40000x64xbf16>
  %e1 = tensor.empty() : tensor<40000x16xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40000x16xf32>) -> tensor<40000x16xf32>
  %z = linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%a, %v : tensor<40000x64xbf16>, tensor<16x64xbf16>) outs(%f1 : tensor<40000x16xf32>) -> tensor<40000x16xf32>
  %ez = tensor.empty() : tensor<40000x16xbf16>
  %out = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%z : tensor<40000x16xf32>) outs(%ez : tensor<40000x16xbf16>) {
  ^bb0(%p: f32, %o: bf16):
    %y = arith.truncf %p : f32 to bf16
    linalg.yield %y : bf16
  } -> tensor<40000x16xbf16>
  return %out : tensor<40000x16xbf16>
}
