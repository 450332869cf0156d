// A reshape that splits the only open dimension of its tensor says so, and one that splits the others or puts them
// together; where another is open, too, it stays.

// RUN: kitsune-opt %s --prepare-linalg | filecheck %s
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[X:.*]]: tensor<4x?x16xf32>, %[[Y:.*]]: tensor<?x?xf32>, %[[B:.*]]: i64, %[[T:.*]]: i64
// CHECK-DAG:   %[[I:.*]] = arith.index_cast %[[B]] : i64 to index
// CHECK-DAG:   %[[J:.*]] = arith.index_cast %[[T]] : i64 to index
// CHECK:       %[[V:.*]] = tensor.expand_shape %[[X]] {{\[}}[0], [1, 2], [3]] output_shape [4, %[[I]], %[[J]], 16]
// CHECK:       %[[U:.*]] = tensor.reshape %[[Y]]
// CHECK:       return %[[V]], %[[U]]

func.func @main(%x: tensor<4x?x16xf32>, %y: tensor<?x?xf32>, %b: i64, %t: i64) -> (tensor<4x?x?x16xf32>, tensor<?x?x?xf32>) {
  %c4 = arith.constant 4 : i64
  %c16 = arith.constant 16 : i64
  %s = tensor.from_elements %c4, %b, %t, %c16 : tensor<4xi64>
  %v = tensor.reshape %x(%s) : (tensor<4x?x16xf32>, tensor<4xi64>) -> tensor<4x?x?x16xf32>
  %r = tensor.from_elements %b, %t, %t : tensor<3xi64>
  %u = tensor.reshape %y(%r) : (tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
  return %v, %u : tensor<4x?x?x16xf32>, tensor<?x?x?xf32>
}

// CHECK-LABEL: func.func @of_one_size
// CHECK:       tensor.collapse_shape %arg0 {{\[}}[0, 1], [2, 3]] : tensor<1x?x32x16xf32> into tensor<?x512xf32>
// CHECK:       tensor.expand_shape %arg1 {{\[}}[0], [1, 2]] output_shape [%{{.+}}, 32, 16] : tensor<?x512xf32> into tensor<?x32x16xf32>
// CHECK:       %[[Z:.*]] = tensor.collapse_shape %arg2 {{\[}}[0, 1, 2]] : tensor<?x6x4xf32> into tensor<?xf32>
// CHECK:       tensor.expand_shape %[[Z]] {{\[}}[0, 1, 2]] output_shape [4, %{{.+}}, 6] : tensor<?xf32> into tensor<4x?x6xf32>
// CHECK:       %[[W:.*]] = tensor.collapse_shape %arg2 {{\[}}[0], [1, 2]] : tensor<?x6x4xf32> into tensor<?x24xf32>
// CHECK:       tensor.expand_shape %[[W]] {{\[}}[0], [1, 2]] output_shape [%{{.+}}, 8, 3] : tensor<?x24xf32> into tensor<?x8x3xf32>
func.func @of_one_size(%x: tensor<1x?x32x16xf32>, %y: tensor<?x512xf32>, %z: tensor<?x6x4xf32>, %s: tensor<2xi64>, %t: tensor<3xi64>) -> (tensor<?x512xf32>, tensor<?x32x16xf32>, tensor<4x?x6xf32>, tensor<?x8x3xf32>) {
  %a = tensor.reshape %x(%s) : (tensor<1x?x32x16xf32>, tensor<2xi64>) -> tensor<?x512xf32>
  %b = tensor.reshape %y(%t) : (tensor<?x512xf32>, tensor<3xi64>) -> tensor<?x32x16xf32>
  %c = tensor.reshape %z(%t) : (tensor<?x6x4xf32>, tensor<3xi64>) -> tensor<4x?x6xf32>
  %d = tensor.reshape %z(%t) : (tensor<?x6x4xf32>, tensor<3xi64>) -> tensor<?x8x3xf32>
  return %a, %b, %c, %d : tensor<?x512xf32>, tensor<?x32x16xf32>, tensor<4x?x6xf32>, tensor<?x8x3xf32>
}

// Of several open sizes that one is split whose neighbours stay.
// CHECK-LABEL: func.func @of_two_sizes
// CHECK:       tensor.expand_shape %arg0 {{\[}}[0], [1, 2], [3]] output_shape [%{{.+}}, %{{.+}}, %{{.+}}, 4]
func.func @of_two_sizes(%x: tensor<?x?x4xf32>, %h: i64, %w: i64) -> tensor<?x?x?x4xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : i64
  %n = tensor.dim %x, %c0 : tensor<?x?x4xf32>
  %b = arith.index_cast %n : index to i64
  %s = tensor.from_elements %b, %h, %w, %c4 : tensor<4xi64>
  %y = tensor.reshape %x(%s) : (tensor<?x?x4xf32>, tensor<4xi64>) -> tensor<?x?x?x4xf32>
  return %y : tensor<?x?x?x4xf32>
}

// What is put together and split at the same place stays apart.
// CHECK-LABEL: func.func @in_place
// CHECK:       %[[C:.*]] = tensor.collapse_shape %arg0 {{\[}}[0], [1], [2, 3]] : tensor<?x8x3x3xf32> into tensor<?x8x9xf32>
// CHECK:       tensor.expand_shape %[[C]] {{\[}}[0], [1, 2], [3]] output_shape [%{{.+}}, 2, 4, 9]
func.func @in_place(%x: tensor<?x8x3x3xf32>) -> tensor<?x2x4x9xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8x3x3xf32>
  %c = tensor.collapse_shape %x [[0], [1, 2, 3]] : tensor<?x8x3x3xf32> into tensor<?x72xf32>
  %y = tensor.expand_shape %c [[0], [1, 2, 3]] output_shape [%n, 2, 4, 9] : tensor<?x72xf32> into tensor<?x2x4x9xf32>
  return %y : tensor<?x2x4x9xf32>
}
