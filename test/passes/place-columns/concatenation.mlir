// Two layers side by side are written where the concatenation has them; a layer whose operand is the first part reads it
// there, for its boxes begin at multiples of 16 bytes.

// RUN: kitsune-opt %s --schedule-products --place-columns --verify-dataflow > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK:       %[[A:.*]] = "kitsune.result"({{.*}} -> tensor<200x512xbf16, #kitsune.columns<0 : i64, 872 : i64, true>>
// CHECK-NEXT:  %[[X:.*]] = tensor.cast %[[A]] : {{.*}} to tensor<200x512xbf16>
// CHECK:       "kitsune.copy"({{.*}}, %[[A]], {{.*}} tensor<200x512xbf16, #kitsune.columns<0 : i64, 872 : i64, true>>
// CHECK:       %[[B:.*]] = "kitsune.result"({{.*}} -> tensor<200x360xbf16, #kitsune.columns<512 : i64, 872 : i64, true>>
// CHECK-NEXT:  %[[Y:.*]] = tensor.cast %[[B]]
// CHECK:       tensor.concat dim(1) %[[X]], %[[Y]]

// RUN: kitsune-opt %t.mlir --convert-kitsune-to-gpu > %t.gpu.mlir
// RUN: filecheck %s --check-prefix=GPU < %t.gpu.mlir
// GPU-DAG:     func.func private @product1(tensor<200x512xbf16>, {{.*}} -> tensor<200x360xbf16> attributes {kitsune.reads_columns = array<i64: 0, 0, 872>, kitsune.writes_columns = array<i64: 0, 512, 872>}
// GPU-DAG:     func.func private @product0({{.*}} -> tensor<200x512xbf16> attributes {kitsune.writes_columns = array<i64: 0, 0, 872>}
// GPU:         call @product1(
// GPU-NOT:     #kitsune.columns

// RUN: kitsune-opt %t.gpu.mlir --convert-linalg-to-gpu | filecheck %s --check-prefix=HOST
// HOST-DAG:    func.func private @product1(memref<200x872xbf16>, memref<360x512xbf16>, memref<200x872xbf16>) attributes {kitsune.into = array<i64: 2>
// HOST:        func.func @main
// HOST:        %[[ALL:.*]] = memref.alloc(){{.*}} : memref<200x872xbf16>
// HOST-NEXT:   call @product0(%arg0, %arg1, %[[ALL]])
// HOST-NEXT:   call @product1(%[[ALL]], %arg2, %[[ALL]])
// HOST-NEXT:   return %[[ALL]]

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @main(%x: tensor<200x256xbf16>, %w: tensor<512x256xbf16>, %v: tensor<360x512xbf16>) -> tensor<200x872xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<200x512xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<200x512xf32>) -> tensor<200x512xf32>
  %p0 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<200x256xbf16>, tensor<512x256xbf16>) outs(%f0 : tensor<200x512xf32>) -> tensor<200x512xf32>
  %g0 = tensor.empty() : tensor<200x512xbf16>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p0 : tensor<200x512xf32>) outs(%g0 : tensor<200x512xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<200x512xbf16>
  %e1 = tensor.empty() : tensor<200x360xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<200x360xf32>) -> tensor<200x360xf32>
  %p1 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%a, %v : tensor<200x512xbf16>, tensor<360x512xbf16>) outs(%f1 : tensor<200x360xf32>) -> tensor<200x360xf32>
  %g1 = tensor.empty() : tensor<200x360xbf16>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p1 : tensor<200x360xf32>) outs(%g1 : tensor<200x360xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<200x360xbf16>
  %c = tensor.concat dim(1) %a, %b : (tensor<200x512xbf16>, tensor<200x360xbf16>) -> tensor<200x872xbf16>
  return %c : tensor<200x872xbf16>
}
