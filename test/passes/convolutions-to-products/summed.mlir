// RUN: kitsune-opt %s --convolutions-to-products --split-input-file | filecheck %s

// Windows that a product sums over their places, as gradients of filters do, are in no memory.

// -----

// A filter's element of 64 channels is a chunk.

// CHECK-LABEL: func.func @whole_chunks
// CHECK-SAME:      (%[[X:.+]]: tensor<8x28x28x64xbf16>
// CHECK-NOT:     tensor.pad
// CHECK:         %[[M:.+]] = "kitsune.windows"(%[[X]]) {{.*filter = array<i64: 3, 3>, low = array<i64: 1, 1>.* places = array<i64: 28, 28>.*}} : (tensor<8x28x28x64xbf16>) -> tensor<6272x576xbf16>
// CHECK:         %[[Y:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[M]] : tensor<64x6272xbf16>, tensor<6272x576xbf16>)
// CHECK:         return %[[Y]]
#seen = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 + d3, d2 + d4, d5)>
#all = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4, d5)>
func.func @whole_chunks(%x: tensor<8x28x28x64xbf16>, %g: tensor<64x6272xbf16>) -> tensor<64x576xf32> {
  %none = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %none : bf16
  } : tensor<8x28x28x64xbf16> to tensor<8x30x30x64xbf16>
  %e = tensor.empty() : tensor<8x28x28x3x3x64xbf16>
  %w = linalg.generic {indexing_maps = [#seen, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%p : tensor<8x30x30x64xbf16>) outs(%e : tensor<8x28x28x3x3x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
  } -> tensor<8x28x28x3x3x64xbf16>
  %m = tensor.collapse_shape %w [[0, 1, 2], [3, 4, 5]] : tensor<8x28x28x3x3x64xbf16> into tensor<6272x576xbf16>
  %s = tensor.empty() : tensor<64x576xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<64x576xf32>) -> tensor<64x576xf32>
  %y = linalg.matmul ins(%g, %m : tensor<64x6272xbf16>, tensor<6272x576xbf16>) outs(%f : tensor<64x576xf32>)
      -> tensor<64x576xf32>
  return %y : tensor<64x576xf32>
}

// -----

// One of 96 is two, the second of which has zeros; what is made of these is cut off.

// CHECK-LABEL: func.func @parts_of_chunks
// CHECK:         %[[M:.+]] = "kitsune.windows"({{.+}}) -> tensor<6272x1152xbf16>
// CHECK:         %[[Y:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[M]] : tensor<64x6272xbf16>, tensor<6272x1152xbf16>)
// CHECK:         tensor.expand_shape %[[Y]] {{.+}} into tensor<64x9x128xf32>
// CHECK:         tensor.extract_slice {{.+}} : tensor<64x9x128xf32> to tensor<64x9x96xf32>
#seen = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 + d3, d2 + d4, d5)>
#all = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4, d5)>
func.func @parts_of_chunks(%x: tensor<8x28x28x96xbf16>, %g: tensor<64x6272xbf16>) -> tensor<64x864xf32> {
  %none = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %none : bf16
  } : tensor<8x28x28x96xbf16> to tensor<8x30x30x96xbf16>
  %e = tensor.empty() : tensor<8x28x28x3x3x96xbf16>
  %w = linalg.generic {indexing_maps = [#seen, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%p : tensor<8x30x30x96xbf16>) outs(%e : tensor<8x28x28x3x3x96xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
  } -> tensor<8x28x28x3x3x96xbf16>
  %m = tensor.collapse_shape %w [[0, 1, 2], [3, 4, 5]] : tensor<8x28x28x3x3x96xbf16> into tensor<6272x864xbf16>
  %s = tensor.empty() : tensor<64x864xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<64x864xf32>) -> tensor<64x864xf32>
  %y = linalg.matmul ins(%g, %m : tensor<64x6272xbf16>, tensor<6272x864xbf16>) outs(%f : tensor<64x864xf32>)
      -> tensor<64x864xf32>
  return %y : tensor<64x864xf32>
}

// -----

// Of half a chunk windows are written.

// CHECK-LABEL: func.func @few_channels
// CHECK-NOT:     kitsune.windows
// CHECK:         linalg.matmul
// CHECK-NOT:     kitsune.windows
#seen = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 + d3, d2 + d4, d5)>
#all = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4, d5)>
func.func @few_channels(%x: tensor<8x28x28x32xbf16>, %g: tensor<64x6272xbf16>) -> tensor<64x288xf32> {
  %none = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %none : bf16
  } : tensor<8x28x28x32xbf16> to tensor<8x30x30x32xbf16>
  %e = tensor.empty() : tensor<8x28x28x3x3x32xbf16>
  %w = linalg.generic {indexing_maps = [#seen, #all],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%p : tensor<8x30x30x32xbf16>) outs(%e : tensor<8x28x28x3x3x32xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
  } -> tensor<8x28x28x3x3x32xbf16>
  %m = tensor.collapse_shape %w [[0, 1, 2], [3, 4, 5]] : tensor<8x28x28x3x3x32xbf16> into tensor<6272x288xbf16>
  %s = tensor.empty() : tensor<64x288xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<64x288xf32>) -> tensor<64x288xf32>
  %y = linalg.matmul ins(%g, %m : tensor<64x6272xbf16>, tensor<6272x288xbf16>) outs(%f : tensor<64x288xf32>)
      -> tensor<64x288xf32>
  return %y : tensor<64x288xf32>
}
