// RUN: kitsune-opt %s --order-rows=when=always --split-input-file | filecheck %s
// RUN: kitsune-opt %s --order-rows=when=never --split-input-file | filecheck %s --check-prefix=NEVER
// RUN: kitsune-opt %s --order-rows --split-input-file | filecheck %s --check-prefix=NEVER

// NEVER-NOT: kitsune.order

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// What comes into the row space is gathered, what leaves it gathered back; the scatter is what it was.

// CHECK-LABEL: func.func @edges
// CHECK: %[[C:.+]] = arith.constant 40 : index
// CHECK: %[[K:.+]]:3 = "kitsune.order"(%arg2, %[[C]], %arg2) {{.*}} : (tensor<300xi64>, index, tensor<300xi64>) -> (tensor<300xi32>, tensor<300xi32>, tensor<300xi64>)
// CHECK-DAG: %[[E:.+]] = linalg.generic {{.*}} ins(%[[K]]#0 : tensor<300xi32>) outs({{.*}} : tensor<300x16xbf16>) {
// CHECK-DAG: tensor.extract %arg1[
// CHECK: %[[Y:.+]] = linalg.matmul {{.*}} ins(%[[E]], %arg3 : {{.*}})
// CHECK: %[[BACK:.+]] = linalg.generic {{.*}} ins(%[[K]]#1 : tensor<300xi32>) outs({{.*}} : tensor<300x16xf32>) {
// CHECK: tensor.extract %[[Y]][
// CHECK: tensor.expand_shape %[[Y]]
// CHECK: tensor.expand_shape %[[K]]#2
// CHECK: %[[T:.+]] = tm_tensor.scatter
// CHECK: return %[[T]], %[[BACK]]
func.func @edges(%x: tensor<40x16xf32>, %e: tensor<300x16xbf16>, %to: tensor<300xi64>, %w: tensor<16x16xbf16>) -> (tensor<40x16xf32>, tensor<300x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %start = tensor.empty() : tensor<300x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<300x16xf32>) -> tensor<300x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<300x16xbf16>, tensor<16x16xbf16>) outs(%filled : tensor<300x16xf32>) -> tensor<300x16xf32>
  %empty = tensor.empty() : tensor<40x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<40x16xf32>) -> tensor<40x16xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [300, 1, 16] : tensor<300x16xf32> into tensor<300x1x16xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [300, 1] : tensor<300xi64> into tensor<300x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<300x1x16xf32>, tensor<300x1xi64>) outs(%zeros : tensor<40x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<40x16xf32>
  return %t, %y : tensor<40x16xf32>, tensor<300x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i) -> (i)>
#outer = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// Open sizes; the key is a row of a table of both ends, and computed: it is computed at the beginning as well. What is
// read whole is gathered back for it; a sum over all rows does not depend on their order.

// CHECK-LABEL: func.func @ends
// CHECK: %[[N:.+]] = tensor.dim %arg0
// CHECK: %[[KEY:.+]] = linalg.generic
// CHECK: arith.select
// CHECK: %[[K:.+]]:3 = "kitsune.order"(%[[KEY]], %[[N]], %[[FLAT:.+]])
// CHECK: %[[Y:.+]] = linalg.matmul
// CHECK: %[[BACK:.+]] = linalg.generic {{.*}} ins(%[[K]]#1 : tensor<?xi32>)
// CHECK: tensor.extract %[[Y]][
// CHECK: %[[ALL:.+]] = linalg.generic {{.*}}"reduction", "parallel"{{.*}} ins(%[[Y]] : tensor<?x16xf32>)
// CHECK: %[[TO:.+]] = linalg.generic {{.*}} ins(%[[K]]#2 : tensor<?xi64>)
// CHECK: tensor.expand_shape %[[Y]]
// CHECK: tensor.expand_shape %[[TO]]
// CHECK: %[[T:.+]] = tm_tensor.scatter
// CHECK: %[[TURNED:.+]] = linalg.generic
// CHECK: tensor.extract %[[BACK]][
// CHECK: return %[[T]], %[[ALL]], %[[TURNED]]
func.func @ends(%x: tensor<?x16xf32>, %e: tensor<?x16xbf16>, %ends: tensor<2x?xi64>, %w: tensor<16x16xbf16>) -> (tensor<?x16xf32>, tensor<16xf32>, tensor<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i64
  %n = tensor.dim %x, %c0 : tensor<?x16xf32>
  %k = tensor.dim %e, %c0 : tensor<?x16xbf16>
  %many = tensor.dim %ends, %c1 : tensor<2x?xi64>
  %start = tensor.empty(%k) : tensor<?x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<?x16xbf16>, tensor<16x16xbf16>) outs(%filled : tensor<?x16xf32>) -> tensor<?x16xf32>
  %few = tensor.empty() : tensor<16xf32>
  %few0 = linalg.fill ins(%zero : f32) outs(%few : tensor<16xf32>) -> tensor<16xf32>
  %all = linalg.generic {indexing_maps = [#outer, #column], iterator_types = ["reduction", "parallel"]} ins(%y : tensor<?x16xf32>) outs(%few0 : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<16xf32>
  %second = tensor.extract_slice %ends[1, 0] [1, %many] [1, 1] : tensor<2x?xi64> to tensor<1x?xi64>
  %flat = tensor.collapse_shape %second [[0, 1]] : tensor<1x?xi64> into tensor<?xi64>
  %numbers = tensor.empty(%many) : tensor<?xi64>
  %to = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]} ins(%flat : tensor<?xi64>) outs(%numbers : tensor<?xi64>) {
  ^bb0(%in: i64, %out: i64):
    %rows = arith.index_cast %n : index to i64
    %below = arith.cmpi slt, %in, %none : i64
    %from = arith.addi %in, %rows : i64
    %found = arith.select %below, %from, %in : i64
    linalg.yield %found : i64
  } -> tensor<?xi64>
  %empty = tensor.empty(%n) : tensor<?x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [%k, 1, 16] : tensor<?x16xf32> into tensor<?x1x16xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [%many, 1] : tensor<?xi64> into tensor<?x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<?x1x16xf32>, tensor<?x1xi64>) outs(%zeros : tensor<?x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<?x16xf32>
  %turned = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%start : tensor<?x16xf32>) {
  ^bb0(%out: f32):
    %row = linalg.index 0 : index
    %column = linalg.index 1 : index
    %last = arith.subi %k, %row : index
    %before = arith.subi %last, %c1 : index
    %found = tensor.extract %y[%before, %column] : tensor<?x16xf32>
    linalg.yield %found : f32
  } -> tensor<?x16xf32>
  return %t, %all, %turned : tensor<?x16xf32>, tensor<16xf32>, tensor<?x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>

// Two sums share their rows; one is of the row space, the other of something else, which stays as it is.

// CHECK-LABEL: func.func @shared
// CHECK: %[[K:.+]]:3 = "kitsune.order"(%arg1, %{{.+}}, %arg1)
// CHECK-DAG: %[[WAS:.+]] = tensor.expand_shape %arg1
// CHECK-DAG: %[[IS:.+]] = tensor.expand_shape %[[K]]#2
// CHECK: tm_tensor.scatter {{.*}} ins(%{{.+}}, %[[IS]] : {{.*}})
// CHECK: tm_tensor.scatter {{.*}} ins(%arg3, %[[WAS]] : {{.*}})
func.func @shared(%e: tensor<300x16xbf16>, %to: tensor<300xi64>, %w: tensor<16x16xbf16>, %others: tensor<300x1x16xf32>) -> (tensor<40x16xf32>, tensor<40x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %start = tensor.empty() : tensor<300x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<300x16xf32>) -> tensor<300x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%e, %w : tensor<300x16xbf16>, tensor<16x16xbf16>) outs(%filled : tensor<300x16xf32>) -> tensor<300x16xf32>
  %empty = tensor.empty() : tensor<40x16xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<40x16xf32>) -> tensor<40x16xf32>
  %u = tensor.expand_shape %y [[0], [1, 2]] output_shape [300, 1, 16] : tensor<300x16xf32> into tensor<300x1x16xf32>
  %i = tensor.expand_shape %to [[0, 1]] output_shape [300, 1] : tensor<300xi64> into tensor<300x1xi64>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %i : tensor<300x1x16xf32>, tensor<300x1xi64>) outs(%zeros : tensor<40x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<40x16xf32>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%others, %i : tensor<300x1x16xf32>, tensor<300x1xi64>) outs(%zeros : tensor<40x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %sum = arith.addf %b, %a : f32
    tm_tensor.yield %sum : f32
  } -> tensor<40x16xf32>
  return %t, %s : tensor<40x16xf32>, tensor<40x16xf32>
}
