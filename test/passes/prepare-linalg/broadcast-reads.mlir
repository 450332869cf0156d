// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// Every element is read, whatever the size: by the loop's number, or by 0 where there is one alone.

// CHECK-LABEL: func.func @all_of_it
// CHECK-NOT:     linalg.generic
// CHECK:         return %arg0
func.func @all_of_it(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %alone = arith.cmpi eq, %n, %c1 : index
    %k = arith.select %alone, %c0, %i : index
    %v = tensor.extract %x[%k, %j] : tensor<?x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// A row that may be there once for many is read so; columns the other way round are another tensor.

// CHECK-LABEL: func.func @broadcast
// CHECK:         linalg.generic
// CHECK-LABEL: func.func @turned
// CHECK:         linalg.generic
func.func @broadcast(%x: tensor<?x4xf32>, %m: index) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%m) : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %alone = arith.cmpi eq, %n, %c1 : index
    %k = arith.select %alone, %c0, %i : index
    %v = tensor.extract %x[%k, %j] : tensor<?x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

func.func @turned(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %v = tensor.extract %x[%j, %i] : tensor<4x4xf32>
    linalg.yield %v : f32
  } -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// What is repeated along a dimension of one element is read by a map, whatever the size beside it; a size that is a
// product over the same number is the size itself.

// CHECK-LABEL: func.func @repeated
// CHECK:         %[[X:.*]] = tensor.collapse_shape %arg0 {{.*}} into tensor<?x4xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[X]] : tensor<?x4xf32>)
func.func @repeated(%x: tensor<?x1x4xf32>) -> tensor<?x3x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %n = tensor.dim %x, %c0 : tensor<?x1x4xf32>
  %heads = affine.apply affine_map<()[s0] -> (s0 * 8)>()[%n]
  %m = arith.divsi %heads, %c8 : index
  %e = tensor.empty(%m) : tensor<?x3x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%e : tensor<?x3x4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 2 : index
    %alone = arith.cmpi eq, %n, %c1 : index
    %k = arith.select %alone, %c0, %i : index
    %v = tensor.extract %x[%k, %c0, %j] : tensor<?x1x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}

// So is one that is divided by the factors of that number, one after another.

// CHECK-LABEL: func.func @divided_twice
// CHECK-NOT:     tensor.extract
// CHECK:         return %arg0
func.func @divided_twice(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c256 = arith.constant 256 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %rows = affine.apply affine_map<()[s0] -> (s0 * 2048)>()[%n]
  %heads = arith.divsi %rows, %c256 : index
  %m = arith.divsi %heads, %c8 : index
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x4xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %alone = arith.cmpi eq, %m, %c1 : index
    %k = arith.select %alone, %c0, %i : index
    %v = tensor.extract %x[%k, %j] : tensor<?x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
