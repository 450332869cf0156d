// RUN: kitsune-opt %s --schedule-rows=target=sm_90a --split-input-file | filecheck %s

// Columns in front of rows: the threads of a warp have a row each, and a tile's dimensions are the other way round.

#all = affine_map<(b, c, p) -> (b, c, p)>
#rows = affine_map<(b, c, p) -> (b, p)>

// CHECK-LABEL: func.func @channels
// CHECK: "kitsune.tiles"({{.*}}) {{{.*}}tile = array<i64: 1, 32>}
// CHECK: "kitsune.read"(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 2, 1>{{.*}}} : {{.*}} -> tensor<32x48xf32>
// CHECK: "kitsune.write"({{.*}}) {dims = array<i64: 2, 1>, index = 0 : i64
// CHECK: lanes = {{[0-9]+}} : i64, {{.*}}turned, vector = 1 : i64
func.func @channels(%x: tensor<4x48x196xf32>) -> tensor<4x48x196xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x196xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x196xf32>) -> tensor<4x196xf32>
  %s = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<4x48x196xf32>) outs(%f : tensor<4x196xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x196xf32>
  %o = tensor.empty() : tensor<4x48x196xf32>
  %y = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<4x48x196xf32>, tensor<4x196xf32>) outs(%o : tensor<4x48x196xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.divf %in, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<4x48x196xf32>
  return %y : tensor<4x48x196xf32>
}

// -----

// What is moved last and back is done where it lies.

#all = affine_map<(b, p, c) -> (b, p, c)>
#rows = affine_map<(b, p, c) -> (b, p)>

// CHECK-LABEL: func.func @moved
// CHECK-NOT: linalg.transpose
// CHECK: "kitsune.read"(%arg0, {{.*}}) {dims = array<i64: 2, 1>
// CHECK: turned
// CHECK-NOT: linalg.transpose
func.func @moved(%x: tensor<4x48x196xf32>) -> tensor<4x48x196xf32> {
  %zero = arith.constant 0.0 : f32
  %m = tensor.empty() : tensor<4x196x48xf32>
  %t = linalg.transpose ins(%x : tensor<4x48x196xf32>) outs(%m : tensor<4x196x48xf32>) permutation = [0, 2, 1]
  %e = tensor.empty() : tensor<4x196xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x196xf32>) -> tensor<4x196xf32>
  %s = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t : tensor<4x196x48xf32>) outs(%f : tensor<4x196xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x196xf32>
  %y = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t, %s : tensor<4x196x48xf32>, tensor<4x196xf32>) outs(%m : tensor<4x196x48xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = arith.divf %in, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<4x196x48xf32>
  %o = tensor.empty() : tensor<4x48x196xf32>
  %z = linalg.transpose ins(%y : tensor<4x196x48xf32>) outs(%o : tensor<4x48x196xf32>) permutation = [0, 2, 1]
  return %z : tensor<4x48x196xf32>
}
