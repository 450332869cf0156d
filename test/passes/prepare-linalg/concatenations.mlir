// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// Parts of a product's operand have its dimensions, so that a pipeline streams them one by one.

// CHECK-LABEL: func.func @parts
// CHECK-DAG:     %[[A:.*]] = tensor.collapse_shape %arg0 {{\[\[}}0], [1, 2]] : tensor<?x1x64xbf16> into tensor<?x64xbf16>
// CHECK-DAG:     %[[B:.*]] = tensor.collapse_shape %arg1 {{\[\[}}0], [1, 2]] : tensor<?x1x8xbf16> into tensor<?x8xbf16>
// CHECK:         %[[C:.*]] = tensor.concat dim(1) %[[A]], %[[B]] : (tensor<?x64xbf16>, tensor<?x8xbf16>) -> tensor<?x72xbf16>
// CHECK:         return %[[C]]
func.func @parts(%a: tensor<?x1x64xbf16>, %b: tensor<?x1x8xbf16>) -> tensor<?x72xbf16> {
  %c = tensor.concat dim(2) %a, %b : (tensor<?x1x64xbf16>, tensor<?x1x8xbf16>) -> tensor<?x1x72xbf16>
  %v = tensor.collapse_shape %c [[0], [1, 2]] : tensor<?x1x72xbf16> into tensor<?x72xbf16>
  return %v : tensor<?x72xbf16>
}

// Columns that become more are no parts of rows.

// CHECK-LABEL: func.func @split
// CHECK:         %[[C:.*]] = tensor.concat dim(2)
// CHECK:         tensor.collapse_shape %[[C]]
func.func @split(%a: tensor<5x4x64xbf16>, %b: tensor<5x4x8xbf16>) -> tensor<5x288xbf16> {
  %c = tensor.concat dim(2) %a, %b : (tensor<5x4x64xbf16>, tensor<5x4x8xbf16>) -> tensor<5x4x72xbf16>
  %v = tensor.collapse_shape %c [[0], [1, 2]] : tensor<5x4x72xbf16> into tensor<5x288xbf16>
  return %v : tensor<5x288xbf16>
}
