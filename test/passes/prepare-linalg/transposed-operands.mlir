// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// The product reads the transposed operand where it lies.

// CHECK-DAG: #[[A:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[BT:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[AT:.+]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-LABEL: func.func @linear
// CHECK-NOT: linalg.transpose
// CHECK: linalg.matmul indexing_maps = [#[[A]], #[[BT]], #{{.+}}] ins(%{{.+}}, %{{.+}} : tensor<2x4xf32>, tensor<8x4xf32>)
func.func @linear(%x: tensor<2x4xf32>, %w: tensor<8x4xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
  %o = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %t : tensor<2x4xf32>, tensor<4x8xf32>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %p : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @left
// CHECK-NOT: linalg.transpose
// CHECK: linalg.matmul indexing_maps = [#[[AT]], #{{.+}}, #{{.+}}] ins(%{{.+}}, %{{.+}} : tensor<4x2xf32>, tensor<4x8xf32>)
func.func @left(%x: tensor<4x2xf32>, %w: tensor<4x8xf32>, %o: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %e = tensor.empty() : tensor<2x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x2xf32>) outs(%e : tensor<2x4xf32>) permutation = [1, 0]
  %p = linalg.matmul ins(%t, %w : tensor<2x4xf32>, tensor<4x8xf32>) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %p : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @keys
// CHECK-NOT: linalg.transpose
// CHECK: linalg.batch_matmul indexing_maps = {{.*}} : tensor<3x2x4xf32>, tensor<3x8x4xf32>)
func.func @keys(%q: tensor<3x2x4xf32>, %k: tensor<3x8x4xf32>, %o: tensor<3x2x8xf32>) -> tensor<3x2x8xf32> {
  %e = tensor.empty() : tensor<3x4x8xf32>
  %t = linalg.transpose ins(%k : tensor<3x8x4xf32>) outs(%e : tensor<3x4x8xf32>) permutation = [0, 2, 1]
  %p = linalg.batch_matmul ins(%q, %t : tensor<3x2x4xf32>, tensor<3x4x8xf32>) outs(%o : tensor<3x2x8xf32>) -> tensor<3x2x8xf32>
  return %p : tensor<3x2x8xf32>
}

// A permutation of the batch is no form of batch_matmul: it stays.
// CHECK-LABEL: func.func @batch
// CHECK: linalg.transpose
// CHECK: linalg.batch_matmul ins
func.func @batch(%q: tensor<3x2x4xf32>, %k: tensor<4x3x8xf32>, %o: tensor<3x2x8xf32>) -> tensor<3x2x8xf32> {
  %e = tensor.empty() : tensor<3x4x8xf32>
  %t = linalg.transpose ins(%k : tensor<4x3x8xf32>) outs(%e : tensor<3x4x8xf32>) permutation = [1, 0, 2]
  %p = linalg.batch_matmul ins(%q, %t : tensor<3x2x4xf32>, tensor<3x4x8xf32>) outs(%o : tensor<3x2x8xf32>) -> tensor<3x2x8xf32>
  return %p : tensor<3x2x8xf32>
}
