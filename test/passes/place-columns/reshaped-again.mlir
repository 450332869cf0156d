// A reshape of a reshape of a tensor with several open sizes is that tensor where these are known to be its own; two
// types with "?" say nothing of it: 4 heads are part of the first size here, of the second there.
// RUN: kitsune-opt %s --place-columns | filecheck %s

// CHECK-LABEL: func.func @apart
// CHECK: %[[E:.*]] = tensor.expand_shape %arg0
// CHECK: %[[C:.*]] = tensor.collapse_shape %[[E]]
// CHECK: return %[[C]]
func.func @apart(%x: tensor<?x?x?xf32>, %b: index, %s: index, %t: index) -> tensor<?x?x?xf32> {
  %e = tensor.expand_shape %x [[0, 1], [2], [3]] output_shape [%b, 4, %s, %t] : tensor<?x?x?xf32> into tensor<?x4x?x?xf32>
  %c = tensor.collapse_shape %e [[0], [1, 2], [3]] : tensor<?x4x?x?xf32> into tensor<?x?x?xf32>
  return %c : tensor<?x?x?xf32>
}

// CHECK-LABEL: func.func @again
// CHECK: return %arg0
func.func @again(%x: tensor<?x?x?xf32>, %b: index, %s: index, %t: index) -> tensor<?x?x?xf32> {
  %e = tensor.expand_shape %x [[0, 1], [2], [3]] output_shape [%b, 4, %s, %t] : tensor<?x?x?xf32> into tensor<?x4x?x?xf32>
  %c = tensor.collapse_shape %e [[0, 1], [2], [3]] : tensor<?x4x?x?xf32> into tensor<?x?x?xf32>
  return %c : tensor<?x?x?xf32>
}

// CHECK-LABEL: func.func @one
// CHECK: return %arg0
func.func @one(%x: tensor<?x64xf32>, %b: index) -> tensor<?x64xf32> {
  %e = tensor.expand_shape %x [[0, 1], [2]] output_shape [%b, 4, 64] : tensor<?x64xf32> into tensor<?x4x64xf32>
  %c = tensor.collapse_shape %e [[0, 1], [2]] : tensor<?x4x64xf32> into tensor<?x64xf32>
  return %c : tensor<?x64xf32>
}
