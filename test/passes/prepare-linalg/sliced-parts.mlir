// What is sliced off one part of a concatenation is sliced off that part; of two parts it stays. Parts that nobody reads
// any more go.

// RUN: kitsune-opt %s --prepare-linalg | filecheck %s
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[A:.*]]: tensor<?x3xf32>, %[[B:.*]]: tensor<?x5xf32>, %[[N:.*]]: index
// CHECK-NEXT:  %[[C:.*]] = tensor.concat dim(1) %[[A]], %[[B]]
// CHECK-DAG:   %[[S:.*]] = tensor.extract_slice %[[B]][0, 1] [%[[N]], 2] [1, 1]
// CHECK-DAG:   %[[T:.*]] = tensor.extract_slice %[[A]][0, 0] [%[[N]], 2] [1, 2]
// CHECK-DAG:   %[[U:.*]] = tensor.extract_slice %[[C]][0, 2] [%[[N]], 2] [1, 1]
// CHECK:       return %[[S]], %[[T]], %[[U]]

func.func @main(%a: tensor<?x3xf32>, %b: tensor<?x5xf32>, %n: index) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>) {
  %c = tensor.concat dim(1) %a, %b : (tensor<?x3xf32>, tensor<?x5xf32>) -> tensor<?x8xf32>
  %d = tensor.concat dim(1) %c, %b : (tensor<?x8xf32>, tensor<?x5xf32>) -> tensor<?x13xf32>
  %s = tensor.extract_slice %d[0, 4] [%n, 2] [1, 1] : tensor<?x13xf32> to tensor<?x2xf32>
  %t = tensor.extract_slice %c[0, 0] [%n, 2] [1, 2] : tensor<?x8xf32> to tensor<?x2xf32>
  %u = tensor.extract_slice %c[0, 2] [%n, 2] [1, 1] : tensor<?x8xf32> to tensor<?x2xf32>
  return %s, %t, %u : tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>
}

// One of the tensors of a stack is sliced off that tensor.

// CHECK-LABEL: func.func @stack
// CHECK:         %[[B:.*]] = tensor.expand_shape %arg1
// CHECK:         return %[[B]]
func.func @stack(%a: tensor<2x5xf32>, %b: tensor<2x5xf32>) -> tensor<1x2x5xf32> {
  %c = tensor.concat dim(0) %a, %b : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<4x5xf32>
  %e = tensor.expand_shape %c [[0, 1], [2]] output_shape [2, 2, 5] : tensor<4x5xf32> into tensor<2x2x5xf32>
  %s = tensor.extract_slice %e[1, 0, 0] [1, 2, 5] [1, 1, 1] : tensor<2x2x5xf32> to tensor<1x2x5xf32>
  return %s : tensor<1x2x5xf32>
}

// So is one along another dimension, of a batch of any size.

// CHECK-LABEL: func.func @stack_inside
// CHECK:         %[[B:.*]] = tensor.extract_slice %arg1[0, 0, 0] [%arg2, 2, 5]
// CHECK:         %[[S:.*]] = tensor.expand_shape %[[B]] {{.*}} into tensor<?x2x1x5xf32>
// CHECK:         return %[[S]]
func.func @stack_inside(%a: tensor<?x2x5xf32>, %b: tensor<?x2x5xf32>, %n: index) -> tensor<?x2x1x5xf32> {
  %c = tensor.concat dim(2) %a, %b : (tensor<?x2x5xf32>, tensor<?x2x5xf32>) -> tensor<?x2x10xf32>
  %e = tensor.expand_shape %c [[0], [1], [2, 3]] output_shape [%n, 2, 2, 5] : tensor<?x2x10xf32> into tensor<?x2x2x5xf32>
  %s = tensor.extract_slice %e[0, 0, 1, 0] [%n, 2, 1, 5] [1, 1, 1, 1] : tensor<?x2x2x5xf32> to tensor<?x2x1x5xf32>
  return %s : tensor<?x2x1x5xf32>
}

// What is sliced off a slice is sliced off the whole, unless the slice leaves elements out.

// CHECK-LABEL: func.func @slices
// CHECK-DAG:     %[[S:.*]] = tensor.extract_slice %arg0[0, 52] [%arg1, 2] [1, 3]
// CHECK-DAG:     %[[E:.*]] = tensor.extract_slice %arg0[0, 0] [%arg1, 49] [1, 2]
// CHECK-DAG:     %[[T:.*]] = tensor.extract_slice %[[E]][0, 3] [%arg1, 1] [1, 1]
// CHECK:         return %[[S]], %[[T]]
func.func @slices(%a: tensor<?x98xf32>, %n: index) -> (tensor<?x2xf32>, tensor<?x1xf32>) {
  %b = tensor.extract_slice %a[0, 49] [%n, 49] [1, 1] : tensor<?x98xf32> to tensor<?x49xf32>
  %s = tensor.extract_slice %b[0, 3] [%n, 2] [1, 3] : tensor<?x49xf32> to tensor<?x2xf32>
  %c = tensor.extract_slice %a[0, 0] [%n, 49] [1, 2] : tensor<?x98xf32> to tensor<?x49xf32>
  %t = tensor.extract_slice %c[0, 3] [%n, 1] [1, 1] : tensor<?x49xf32> to tensor<?x1xf32>
  return %s, %t : tensor<?x2xf32>, tensor<?x1xf32>
}

// What is sliced off a tensor of one number is filled, of open sizes and without a dimension of one element, too.

// CHECK-LABEL: func.func @fill
// CHECK-SAME:    %[[N:.*]]: index
// CHECK:         %[[E:.*]] = tensor.empty(%[[N]]) : tensor<?x8xf32>
// CHECK:         %[[F:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%[[E]] : tensor<?x8xf32>)
// CHECK:         return %[[F]]
func.func @fill(%n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<2x?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %s = tensor.extract_slice %f[1, 0, 0] [1, %n, 8] [1, 1, 1] : tensor<2x?x8xf32> to tensor<?x8xf32>
  return %s : tensor<?x8xf32>
}
