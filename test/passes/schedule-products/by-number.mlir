// RUN: kitsune-opt %s --schedule-products --canonicalize | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// A mixture's blocks of rows, each with the matrix of its expert: the agent that feeds looks the number up, once a tile,
// and copies boxes of the tensor that holds the matrices. Tiles go down a band of blocks, of which several have the same
// matrix, before they go on to its next columns.

// CHECK-LABEL: func.func @experts
// CHECK-NOT:     tensor.extract
// CHECK:         "kitsune.agent"
// CHECK:           scf.for
// CHECK:             %[[IN:.*]] = arith.remui
// CHECK:             %[[DOWN:.*]] = arith.remui %[[IN]], %{{.*}} : index
// CHECK:             %[[B:.*]] = arith.addi %{{.*}}, %[[DOWN]] : index
// CHECK:             %[[E:.*]] = "kitsune.look_up"(%arg2, %[[B]]) {size = 8 : i64, wrapped} : (tensor<40xi64>, index) -> index
// CHECK:             "kitsune.copy"(%{{.*}}, %arg1, %[[E]], %{{.*}}, %{{.*}}) {dims = array<i64: 1, 2>
// CHECK-NOT:       "kitsune.look_up"
// CHECK-NOT:     tensor.extract
// CHECK:         return
func.func @experts(%x: tensor<40x64x256xbf16>, %w: tensor<8x384x256xbf16>, %n: tensor<40xi64>) -> tensor<40x64x384xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : i64
  %c8 = arith.constant 8 : i64
  %e0 = tensor.empty() : tensor<40x384x256xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%n : tensor<40xi64>) outs(%e0 : tensor<40x384x256xbf16>) {
  ^bb0(%in: i64, %out: bf16):
    %below = arith.cmpi slt, %in, %c0 : i64
    %from_end = arith.addi %in, %c8 : i64
    %wrapped = arith.select %below, %from_end, %in : i64
    %number = arith.index_cast %wrapped : i64 to index
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %element = tensor.extract %w[%number, %row, %column] : tensor<8x384x256xbf16>
    linalg.yield %element : bf16
  } -> tensor<40x384x256xbf16>
  %e1 = tensor.empty() : tensor<40x64x384xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40x64x384xf32>) -> tensor<40x64x384xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>,
      affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%x, %t : tensor<40x64x256xbf16>, tensor<40x384x256xbf16>) outs(%f : tensor<40x64x384xf32>) -> tensor<40x64x384xf32>
  return %c : tensor<40x64x384xf32>
}

// Of both operands that are taken so, the left one is made before; of numbers of two dimensions, one for each product.

// CHECK-LABEL: func.func @both
// CHECK:         tensor.extract %arg0
// CHECK:         "kitsune.look_up"(%{{.*}}) {size = 8 : i64} : (tensor<24xi32>, index) -> index
// CHECK-NOT:     tensor.extract
// CHECK:         return
func.func @both(%x: tensor<3x64x128xf16>, %w: tensor<8x128x192xf16>, %n: tensor<4x6xi32>, %o: tensor<24xi64>) -> tensor<24x64x192xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4x6x128x192xf16>
  %t = linalg.generic {indexing_maps = [affine_map<(a, b, k, n) -> (a, b)>, affine_map<(a, b, k, n) -> (a, b, k, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%n : tensor<4x6xi32>) outs(%e0 : tensor<4x6x128x192xf16>) {
  ^bb0(%in: i32, %out: f16):
    %number = arith.index_cast %in : i32 to index
    %row = linalg.index 2 : index
    %column = linalg.index 3 : index
    %element = tensor.extract %w[%number, %row, %column] : tensor<8x128x192xf16>
    linalg.yield %element : f16
  } -> tensor<4x6x128x192xf16>
  %r = tensor.collapse_shape %t [[0, 1], [2], [3]] : tensor<4x6x128x192xf16> into tensor<24x128x192xf16>
  %e2 = tensor.empty() : tensor<24x64x128xf16>
  %l = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (b)>, affine_map<(b, m, k) -> (b, m, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%o : tensor<24xi64>) outs(%e2 : tensor<24x64x128xf16>) {
  ^bb0(%in: i64, %out: f16):
    %number = arith.index_cast %in : i64 to index
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %element = tensor.extract %x[%number, %row, %column] : tensor<3x64x128xf16>
    linalg.yield %element : f16
  } -> tensor<24x64x128xf16>
  %e1 = tensor.empty() : tensor<24x64x192xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<24x64x192xf32>) -> tensor<24x64x192xf32>
  %c = linalg.batch_matmul ins(%l, %r : tensor<24x64x128xf16>, tensor<24x128x192xf16>) outs(%f : tensor<24x64x192xf32>) -> tensor<24x64x192xf32>
  return %c : tensor<24x64x192xf32>
}

// Rows that are turned are not a matrix as it lies: they are taken before.

// CHECK-LABEL: func.func @turned
// CHECK:         tensor.extract
// CHECK-NOT:     "kitsune.look_up"
// CHECK:         return
func.func @turned(%x: tensor<40x64x256xbf16>, %w: tensor<8x256x256xbf16>, %n: tensor<40xi64>) -> tensor<40x64x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<40x256x256xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%n : tensor<40xi64>) outs(%e0 : tensor<40x256x256xbf16>) {
  ^bb0(%in: i64, %out: bf16):
    %number = arith.index_cast %in : i64 to index
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %element = tensor.extract %w[%number, %column, %row] : tensor<8x256x256xbf16>
    linalg.yield %element : bf16
  } -> tensor<40x256x256xbf16>
  %e1 = tensor.empty() : tensor<40x64x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40x64x256xf32>) -> tensor<40x64x256xf32>
  %c = linalg.batch_matmul ins(%x, %t : tensor<40x64x256xbf16>, tensor<40x256x256xbf16>) outs(%f : tensor<40x64x256xf32>) -> tensor<40x64x256xf32>
  return %c : tensor<40x64x256xf32>
}
