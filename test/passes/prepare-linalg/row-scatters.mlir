// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// A number expanded over the elements of a row is that of the row, whatever is done to elements; where it is another for
// each element it is not. Rows that one number overwrites before are marked, and read with that in mind.

// CHECK-LABEL: func.func @largest
// CHECK:         %[[N:.*]] = tensor.expand_shape %arg1 {{\[\[}}0, 1]] output_shape [{{.*}}, 1]
// CHECK:         %[[M:.*]] = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%{{.*}}, %[[N]] : tensor<?x1xi8>, tensor<?x1xi64>)
// CHECK:         linalg.generic {{.*}} ins(%[[M]], %arg2 : tensor<5xi8>, tensor<5x8xf32>)
// CHECK:           arith.select
// CHECK:         %[[X:.*]] = tensor.expand_shape %arg0 {{\[\[}}0], [1, 2]] output_shape [{{.*}}, 1, 8]
// CHECK:         tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%[[X]], %[[N]] : tensor<?x1x8xf32>, tensor<?x1xi64>)
// CHECK:           arith.maximumf
// CHECK-LABEL: func.func @apart
// CHECK:         tm_tensor.scatter {dimension_map = array<i64: 0, 1>}
func.func @largest(%x: tensor<?x8xf32>, %rows: tensor<?xi64>, %table: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %n = tensor.dim %rows, %c0 : tensor<?xi64>
  %m = arith.muli %n, %c8 : index
  %e = tensor.empty(%n) : tensor<?x8xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<?xi64>) outs(%e : tensor<?x8xi64>) {
  ^bb0(%a: i64, %o: i64):
    linalg.yield %a : i64
  } -> tensor<?x8xi64>
  %e1 = tensor.empty(%m) : tensor<?x1xi64>
  %e2 = tensor.empty(%m) : tensor<?xf32>
  %g:3 = linalg.generic {indexing_maps = [affine_map<(i) -> (i, 0)>, affine_map<(i) -> (i, 0)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      outs(%e1, %e1, %e2 : tensor<?x1xi64>, tensor<?x1xi64>, tensor<?xf32>) {
  ^bb0(%o: i64, %p: i64, %q: f32):
    %k = linalg.index 0 : index
    %j = arith.remsi %k, %c8 : index
    %d = arith.divsi %k, %c8 : index
    %i = arith.remsi %d, %n : index
    %v = tensor.extract %r[%i, %j] : tensor<?x8xi64>
    %w = tensor.extract %x[%i, %j] : tensor<?x8xf32>
    %u = arith.index_cast %j : index to i64
    linalg.yield %v, %u, %w : i64, i64, f32
  } -> (tensor<?x1xi64>, tensor<?x1xi64>, tensor<?xf32>)
  %e3 = tensor.empty(%m) : tensor<?x2xi64>
  %s0 = tensor.insert_slice %g#0 into %e3[0, 0] [%m, 1] [1, 1] : tensor<?x1xi64> into tensor<?x2xi64>
  %s1 = tensor.insert_slice %g#1 into %s0[0, 1] [%m, 1] [1, 1] : tensor<?x1xi64> into tensor<?x2xi64>
  %lowest = arith.constant 0xFF800000 : f32
  %none = linalg.fill ins(%lowest : f32) outs(%e2 : tensor<?xf32>) -> tensor<?xf32>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false) ins(%none, %s1 : tensor<?xf32>, tensor<?x2xi64>) outs(%table : tensor<5x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    tm_tensor.yield %a : f32
  } -> tensor<5x8xf32>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false) ins(%g#2, %s1 : tensor<?xf32>, tensor<?x2xi64>) outs(%t : tensor<5x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    tm_tensor.yield %0 : f32
  } -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

func.func @apart(%x: tensor<16xf32>, %r: tensor<2x8xi64>, %table: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %c8 = arith.constant 8 : index
  %e1 = tensor.empty() : tensor<16x1xi64>
  %g:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i, 0)>, affine_map<(i) -> (i, 0)>], iterator_types = ["parallel"]}
      outs(%e1, %e1 : tensor<16x1xi64>, tensor<16x1xi64>) {
  ^bb0(%o: i64, %p: i64):
    %k = linalg.index 0 : index
    %j = arith.remsi %k, %c8 : index
    %d = arith.divsi %k, %c8 : index
    %v = tensor.extract %r[%d, %j] : tensor<2x8xi64>
    %u = arith.index_cast %j : index to i64
    linalg.yield %v, %u : i64, i64
  } -> (tensor<16x1xi64>, tensor<16x1xi64>)
  %e3 = tensor.empty() : tensor<16x2xi64>
  %s0 = tensor.insert_slice %g#0 into %e3[0, 0] [16, 1] [1, 1] : tensor<16x1xi64> into tensor<16x2xi64>
  %s1 = tensor.insert_slice %g#1 into %s0[0, 1] [16, 1] [1, 1] : tensor<16x1xi64> into tensor<16x2xi64>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false) ins(%x, %s1 : tensor<16xf32>, tensor<16x2xi64>) outs(%table : tensor<5x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    tm_tensor.yield %0 : f32
  } -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}
