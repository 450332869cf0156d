// RUN: kitsune-opt %s --convolutions-to-products --mlir-print-local-scope | filecheck %s
// RUN: kitsune-opt %s --convolutions-to-products --schedule-products --verify-dataflow | filecheck %s --check-prefix=KERNEL

#whole = affine_map<(b, c, y, x) -> (b, c, y, x)>
#channel = affine_map<(b, c, y, x) -> (c, 0, 0)>

// Sixteen groups of 4 channels are a block of 64: filters get zeros for the channels of the others, and blocks are a
// batch of products. All channels of the result lie together.

// CHECK-LABEL: func.func @blocks
// CHECK-NOT:     linalg.conv
// CHECK:         %[[W:.*]] = "kitsune.windows"(%{{.*}}) {blocks = 2 : i64, {{.*}} : (tensor<2x9x9x128xbf16>) -> tensor<162x2x576xbf16>
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<2x16x4x4x3x3xbf16>) outs(%{{.*}} : tensor<2x16x4x3x3x16x4xbf16>)
// CHECK-DAG:     linalg.index 1
// CHECK-DAG:     linalg.index 5
// CHECK:         arith.select
// CHECK:         %[[P:.*]] = linalg.generic {{.*}} ins(%[[W]], %{{.*}} : tensor<162x2x576xbf16>, tensor<2x64x576xbf16>) outs(%{{.*}} : tensor<2x162x64xf32>)
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}}(d0, d2, 0, 0){{.*}} ins(%[[P]], %{{.*}} : tensor<2x162x64xf32>, tensor<2x64x1x1xf32>)
// CHECK:         linalg.transpose ins(%[[Y]] : tensor<2x162x64xbf16>) outs(%{{.*}} : tensor<162x2x64xbf16>) permutation = [1, 0, 2]

// KERNEL-LABEL: func.func @blocks
// KERNEL:         %[[W:.*]] = "kitsune.windows"
// KERNEL:         "kitsune.kernel"() ({
// KERNEL:           "kitsune.copy"(%{{.*}}, %[[W]], %{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 2>, {{.*}}tensor<162x2x576xbf16>
// KERNEL:           "kitsune.write"(%{{.*}}) {dims = array<i64: 0, 2>
func.func @blocks(%x: tensor<2x128x9x9xbf16>, %f: tensor<32x4x4x3x3xbf16>, %s: tensor<128x1x1xf32>)
    -> tensor<2x128x9x9xbf16> {
  %nothing = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%b: index, %c: index, %i: index, %j: index):
    tensor.yield %nothing : bf16
  } : tensor<2x128x9x9xbf16> to tensor<2x128x11x11xbf16>
  %g = tensor.expand_shape %p [[0], [1, 2], [3], [4]] output_shape [2, 32, 4, 11, 11]
      : tensor<2x128x11x11xbf16> into tensor<2x32x4x11x11xbf16>
  %e = tensor.empty() : tensor<2x32x4x9x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x32x4x9x9xf32>) -> tensor<2x32x4x9x9xf32>
  %c = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%g, %f : tensor<2x32x4x11x11xbf16>, tensor<32x4x4x3x3xbf16>) outs(%z : tensor<2x32x4x9x9xf32>)
      -> tensor<2x32x4x9x9xf32>
  %j = tensor.collapse_shape %c [[0], [1, 2], [3], [4]] : tensor<2x32x4x9x9xf32> into tensor<2x128x9x9xf32>
  %o = tensor.empty() : tensor<2x128x9x9xbf16>
  %y = linalg.generic {indexing_maps = [#whole, #channel, #whole],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%j, %s : tensor<2x128x9x9xf32>, tensor<128x1x1xf32>) outs(%o : tensor<2x128x9x9xbf16>) {
  ^bb0(%u: f32, %v: f32, %w: bf16):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<2x128x9x9xbf16>
  return %y : tensor<2x128x9x9xbf16>
}

// Groups of 6 channels fill no chunk together: all are one block.

// CHECK-LABEL: func.func @one_block
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<1x3x8x6x3x3xbf16>) outs(%{{.*}} : tensor<1x3x8x3x3x3x6xbf16>)
// CHECK-NOT:     blocks
// CHECK:         return
func.func @one_block(%x: tensor<2x18x20x20xbf16>, %f: tensor<3x8x6x3x3xbf16>) -> tensor<2x24x18x18xf32> {
  %zero = arith.constant 0.0 : f32
  %g = tensor.expand_shape %x [[0], [1, 2], [3], [4]] output_shape [2, 3, 6, 20, 20]
      : tensor<2x18x20x20xbf16> into tensor<2x3x6x20x20xbf16>
  %e = tensor.empty() : tensor<2x3x8x18x18xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x8x18x18xf32>) -> tensor<2x3x8x18x18xf32>
  %c = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%g, %f : tensor<2x3x6x20x20xbf16>, tensor<3x8x6x3x3xbf16>) outs(%z : tensor<2x3x8x18x18xf32>)
      -> tensor<2x3x8x18x18xf32>
  %j = tensor.collapse_shape %c [[0], [1, 2], [3], [4]] : tensor<2x3x8x18x18xf32> into tensor<2x24x18x18xf32>
  return %j : tensor<2x24x18x18xf32>
}

// Images that have groups and their channels as two dimensions, and a result whose groups are images: filters are
// computed for each of three images.

// CHECK-LABEL: func.func @apart
// CHECK-NOT:     linalg.conv
// CHECK:         %[[W:.*]] = "kitsune.windows"(%{{.*}}) {blocks = 3 : i64
// CHECK:         linalg.generic {{.*}} ins(%[[W]], %{{.*}} : tensor<324x3x576xbf16>, tensor<3x32x576xbf16>)
// CHECK:         return
func.func @apart(%x: tensor<1x3x64x20x20xbf16>, %f: tensor<3x32x64x3x3xbf16>) -> tensor<3x32x18x18xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x3x32x18x18xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x3x32x18x18xf32>) -> tensor<1x3x32x18x18xf32>
  %c = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x3x64x20x20xbf16>, tensor<3x32x64x3x3xbf16>) outs(%z : tensor<1x3x32x18x18xf32>)
      -> tensor<1x3x32x18x18xf32>
  %j = tensor.collapse_shape %c [[0, 1], [2], [3], [4]] : tensor<1x3x32x18x18xf32> into tensor<3x32x18x18xf32>
  return %j : tensor<3x32x18x18xf32>
}
