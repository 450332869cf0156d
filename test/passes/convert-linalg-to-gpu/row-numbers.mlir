// RUN: kitsune-opt %s --convert-linalg-to-gpu | filecheck %s

// Row numbers from data are checked where a kernel loads them: row 0 is read in the place of one that the table does not
// have, and what is scattered there is left out. Which check failed goes to a word that the module's global points to.

// CHECK:         gpu.module @kernels attributes {kitsune.checks = ["model.py:3", "model.py:4"]}
// CHECK:           llvm.mlir.global external @kitsune_wild(0 : i64) {addr_space = 1 : i32} : i64
// CHECK:         gpu.func @scatter_0
// CHECK:           %[[TO:.*]] = memref.load {{.*}} : memref<6x1xi64>
// CHECK:           %[[ROW:.*]] = arith.index_cast %[[TO]]
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[ROW]], %{{.*}} : index
// CHECK:           scf.if %[[INSIDE]]
// CHECK:             llvm.inline_asm has_side_effects "red.relaxed.gpu.global.add.v4.f32
// CHECK:           llvm.inline_asm has_side_effects "{{.*}}@wild ld.global.u64 word, [kitsune_wild];{{.*}}2147483647;
// CHECK:         gpu.func @gather_0
// CHECK:           %[[FROM:.*]] = memref.load {{.*}} : memref<5xi64>
// CHECK:           %[[ROW:.*]] = arith.index_cast %[[FROM]]
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[ROW]], %{{.*}} : index
// CHECK:           llvm.inline_asm has_side_effects "{{.*}}2147483646;
// CHECK:           %[[SAFE:.*]] = arith.select %[[INSIDE]], %[[ROW]], %{{.*}} : index
// CHECK:           memref.load %{{.*}}[%[[SAFE]], %{{.*}}] : memref<9x4xf32>
func.func @main(%x: tensor<9x4xf32>, %u: tensor<6x1x4xf32>, %to: tensor<6x1xi64>, %from: tensor<5xi64>)
    -> (tensor<5x4xf32>, tensor<9x4xf32>) {
  %e = tensor.empty() : tensor<5x4xf32>
  %g = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%from : tensor<5xi64>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%row: i64, %out: f32):
    %i = arith.index_cast %row : i64 to index
    %j = linalg.index 1 : index
    %taken = tensor.extract %x[%i, %j] : tensor<9x4xf32> loc("model.py":4:1)
    linalg.yield %taken : f32
  } -> tensor<5x4xf32>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %to : tensor<6x1x4xf32>, tensor<6x1xi64>) outs(%x : tensor<9x4xf32>) {
  ^bb0(%update: f32, %old: f32):
    %sum = arith.addf %old, %update : f32
    tm_tensor.yield %sum : f32
  } -> tensor<9x4xf32> loc("model.py":3:1)
  return %g, %s : tensor<5x4xf32>, tensor<9x4xf32>
}
