// A reshape that splits the only open dimension of its tensor says so; where another is open, too, it stays.

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
