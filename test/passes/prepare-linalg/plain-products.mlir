// RUN: kitsune-opt --prepare-linalg --split-input-file %s | filecheck %s

// einsum("nd,edh->neh", x, w), then tanh: a batch of one is a product, and what follows it is done before its columns
// are split. Nothing is transposed, for dimensions of one element lie anywhere.

// CHECK-LABEL: func.func @experts
// CHECK-NOT: linalg.batch_matmul
// CHECK: %[[P:.+]] = linalg.matmul ins(%arg0, %arg1 : tensor<?x8xbf16>, tensor<8x15xbf16>)
// CHECK: %[[T:.+]] = linalg.generic {{.*}} ins(%[[P]] : tensor<?x15xf32>)
// CHECK: math.tanh
// CHECK: %[[E:.+]] = tensor.expand_shape %[[T]] {{\[\[}}0], [1, 2]] {{.*}} : tensor<?x15xf32> into tensor<?x3x5xf32>
// CHECK-NOT: linalg.transpose
// CHECK: return %[[E]]
func.func @experts(%x: tensor<?x8xbf16>, %w: tensor<8x15xbf16>) -> tensor<?x3x5xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xbf16>
  %a = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, %n, 8] : tensor<?x8xbf16> into tensor<1x?x8xbf16>
  %b = tensor.expand_shape %w [[0, 1], [2]] output_shape [1, 8, 15] : tensor<8x15xbf16> into tensor<1x8x15xbf16>
  %e0 = tensor.empty(%n) : tensor<1x?x15xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x?x15xf32>) -> tensor<1x?x15xf32>
  %p = linalg.batch_matmul ins(%a, %b : tensor<1x?x8xbf16>, tensor<1x8x15xbf16>) outs(%f : tensor<1x?x15xf32>)
      -> tensor<1x?x15xf32>
  %q = tensor.collapse_shape %p [[0, 1], [2]] : tensor<1x?x15xf32> into tensor<?x15xf32>
  %s = tensor.expand_shape %q [[0], [1, 2, 3]] output_shape [%n, 1, 3, 5] : tensor<?x15xf32> into tensor<?x1x3x5xf32>
  %e1 = tensor.empty(%n) : tensor<?x3x5x1xf32>
  %t = linalg.transpose ins(%s : tensor<?x1x3x5xf32>) outs(%e1 : tensor<?x3x5x1xf32>) permutation = [0, 2, 3, 1]
  %u = tensor.collapse_shape %t [[0], [1], [2, 3]] : tensor<?x3x5x1xf32> into tensor<?x3x5xf32>
  %e2 = tensor.empty(%n) : tensor<?x3x5xf32>
  %g = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%u : tensor<?x3x5xf32>) outs(%e2 : tensor<?x3x5xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.tanh %in : f32
      linalg.yield %0 : f32
  } -> tensor<?x3x5xf32>
  return %g : tensor<?x3x5xf32>
}

// -----

// Sums of two, for one column of each product of a batch: an elementwise operator on slices of what was transposed.

// CHECK-LABEL: func.func @weighted
// CHECK-NOT: linalg.transpose
// CHECK-NOT: linalg.batch_matmul
// CHECK-DAG: %[[A:.+]] = tensor.extract_slice %arg0[0, 0, 0] [1, 7, 8] [1, 1, 1] : tensor<2x7x8xf32> to tensor<7x8xf32>
// CHECK-DAG: %[[B:.+]] = tensor.extract_slice %arg0[1, 0, 0] [1, 7, 8] [1, 1, 1] : tensor<2x7x8xf32> to tensor<7x8xf32>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%[[A]], %[[B]], %{{.+}}, %{{.+}} :
func.func @weighted(%y: tensor<2x7x8xf32>, %w: tensor<7x2x1xf32>) -> tensor<7x8x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<7x8x2xf32>
  %t = linalg.transpose ins(%y : tensor<2x7x8xf32>) outs(%e0 : tensor<7x8x2xf32>) permutation = [1, 2, 0]
  %e1 = tensor.empty() : tensor<7x8x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<7x8x1xf32>) -> tensor<7x8x1xf32>
  %p = linalg.batch_matmul ins(%t, %w : tensor<7x8x2xf32>, tensor<7x2x1xf32>) outs(%f : tensor<7x8x1xf32>)
      -> tensor<7x8x1xf32>
  return %p : tensor<7x8x1xf32>
}

// -----

// Where the sums lie in the rows of the left operand, they stay a product.

// CHECK-LABEL: func.func @matrix_vector
// CHECK: linalg.batch_matmul
func.func @matrix_vector(%y: tensor<7x8x2xf32>, %w: tensor<7x2x1xf32>) -> tensor<7x8x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e1 = tensor.empty() : tensor<7x8x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<7x8x1xf32>) -> tensor<7x8x1xf32>
  %p = linalg.batch_matmul ins(%y, %w : tensor<7x8x2xf32>, tensor<7x2x1xf32>) outs(%f : tensor<7x8x1xf32>)
      -> tensor<7x8x1xf32>
  return %p : tensor<7x8x1xf32>
}

// -----

// An open batch of products that is split in samples and heads: as many samples as the view says, which is moved.

#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// CHECK-LABEL: func.func @split_batch
// CHECK-SAME: %[[X:.+]]: tensor<?x3x4xf32>, %[[Y:.+]]: tensor<?x4x5xf32>, %[[SAMPLES:.+]]: index
// CHECK: %[[P:.+]] = linalg.batch_matmul
// CHECK: %[[G:.+]] = linalg.generic {{.+}} ins(%[[P]]
// CHECK: tensor.expand_shape %[[G]] {{.+}} output_shape [%[[SAMPLES]], 2, 3, 5]
func.func @split_batch(%x: tensor<?x3x4xf32>, %y: tensor<?x4x5xf32>, %samples: index) -> tensor<?x2x3x5xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x4xf32>
  %e = tensor.empty(%n) : tensor<?x3x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3x5xf32>) -> tensor<?x3x5xf32>
  %p = linalg.batch_matmul ins(%x, %y : tensor<?x3x4xf32>, tensor<?x4x5xf32>) outs(%f : tensor<?x3x5xf32>) -> tensor<?x3x5xf32>
  %v = tensor.expand_shape %p [[0, 1], [2], [3]] output_shape [%samples, 2, 3, 5] : tensor<?x3x5xf32> into tensor<?x2x3x5xf32>
  %s = tensor.empty(%samples) : tensor<?x2x3x5xf32>
  %g = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v : tensor<?x2x3x5xf32>) outs(%s : tensor<?x2x3x5xf32>) {
    ^bb0(%a: f32, %out: f32):
      %h = math.exp %a : f32
      linalg.yield %h : f32
  } -> tensor<?x2x3x5xf32>
  return %g : tensor<?x2x3x5xf32>
}
