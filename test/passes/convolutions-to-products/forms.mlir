// RUN: kitsune-opt %s --convolutions-to-products --mlir-print-local-scope | filecheck %s
// RUN: kitsune-opt %s --convolutions-to-products --schedule-products --verify-dataflow | filecheck %s --check-prefix=KERNEL

#whole = affine_map<(b, c, y, x) -> (b, c, y, x)>
#channel = affine_map<(b, c, y, x) -> (c, 0, 0)>

// The images' channels become their last dimension, and each window of them a row; what follows reads the product.

// CHECK-LABEL: func.func @windows
// CHECK-SAME:    (%[[X:.*]]: tensor<256x64x14x14xbf16>, %[[F:.*]]: tensor<32x64x3x3xbf16>, %[[S:.*]]: tensor<32x1x1xf32>)
// CHECK-NOT:     linalg.conv
// CHECK:         %[[T:.*]] = linalg.transpose ins(%{{.*}} : tensor<256x64x196xbf16>) {{.*}} permutation = [0, 2, 1]
// CHECK:         %[[W:.*]] = "kitsune.windows"(%{{.*}}) {dilations = array<i64: 1, 1>, filter = array<i64: 3, 3>, low = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 0>, places = array<i64: 7, 7>, strides = array<i64: 2, 2>} : (tensor<256x14x14x64xbf16>) -> tensor<256x49x576xbf16>
// CHECK:         linalg.transpose ins(%[[F]] : {{.*}} permutation = [0, 2, 3, 1]
// CHECK:         %[[P:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[W]] : tensor<32x576xbf16>, tensor<256x49x576xbf16>) outs(%{{.*}} : tensor<256x32x49xf32>)
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}}(d1, 0, 0){{.*}} ins(%[[P]], %[[S]] : tensor<256x32x49xf32>, tensor<32x1x1xf32>)
// CHECK:         tensor.expand_shape {{.*}} into tensor<256x32x7x7xbf16>

// KERNEL-LABEL: func.func @windows
// KERNEL:         %[[W:.*]] = "kitsune.windows"
// KERNEL:         "kitsune.kernel"() ({
// KERNEL:           "kitsune.copy"(%{{.*}}, %[[W]], %{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 1, 2>, engine = "tma", {{.*}} : {{.*}}tensor<256x49x576xbf16>
// KERNEL:           "kitsune.settle"
// KERNEL:           linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<64x{{.*}}xf32>, tensor<64xf32>)
// KERNEL:           "kitsune.write"
// KERNEL-NOT:     linalg.generic
// KERNEL:         return
func.func @windows(%x: tensor<256x64x14x14xbf16>, %f: tensor<32x64x3x3xbf16>, %s: tensor<32x1x1xf32>)
    -> tensor<256x32x7x7xbf16> {
  %nothing = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 0, 0] {
  ^bb0(%b: index, %c: index, %i: index, %j: index):
    tensor.yield %nothing : bf16
  } : tensor<256x64x14x14xbf16> to tensor<256x64x15x15xbf16>
  %e = tensor.empty() : tensor<256x32x7x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x32x7x7xf32>) -> tensor<256x32x7x7xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%p, %f : tensor<256x64x15x15xbf16>, tensor<32x64x3x3xbf16>) outs(%z : tensor<256x32x7x7xf32>)
      -> tensor<256x32x7x7xf32>
  %o = tensor.empty() : tensor<256x32x7x7xbf16>
  %y = linalg.generic {indexing_maps = [#whole, #channel, #whole],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %s : tensor<256x32x7x7xf32>, tensor<32x1x1xf32>) outs(%o : tensor<256x32x7x7xbf16>) {
  ^bb0(%u: f32, %v: f32, %w: bf16):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<256x32x7x7xbf16>
  return %y : tensor<256x32x7x7xbf16>
}

// What another convolution reads keeps its channels last; all images are rows of one matrix. A bias is added behind.

// CHECK-LABEL: func.func @two
// CHECK:         linalg.transpose {{.*}}tensor<2x64x100xbf16>
// CHECK:         "kitsune.windows"(%{{.*}}) {{.*}} : (tensor<2x10x10x64xbf16>) -> tensor<128x576xbf16>
// CHECK:         %[[P:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<128x64xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[P]], %{{.*}} : tensor<128x64xf32>, tensor<64xf32>)
// CHECK-NOT:     linalg.transpose ins({{.*}} permutation = [0, 2, 1]
// CHECK:         "kitsune.windows"(%{{.*}}) {{.*}} : (tensor<2x8x8x64xbf16>) -> tensor<2x36x576xbf16>
// CHECK-NOT:     linalg.transpose ins({{.*}} permutation = [0, 2, 1]
// CHECK:         return
func.func @two(%x: tensor<2x64x10x10xbf16>, %f: tensor<64x64x3x3xbf16>, %bias: tensor<64xf32>)
    -> tensor<2x64x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x8x8xf32>
  %z = linalg.broadcast ins(%bias : tensor<64xf32>) outs(%e : tensor<2x64x8x8xf32>) dimensions = [0, 2, 3]
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<2x64x10x10xbf16>, tensor<64x64x3x3xbf16>) outs(%z : tensor<2x64x8x8xf32>)
      -> tensor<2x64x8x8xf32>
  %o = tensor.empty() : tensor<2x64x8x8xbf16>
  %h = linalg.generic {indexing_maps = [#whole, #whole],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<2x64x8x8xf32>) outs(%o : tensor<2x64x8x8xbf16>) {
  ^bb0(%u: f32, %w: bf16):
    %1 = arith.truncf %u : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64x8x8xbf16>
  %g = tensor.empty() : tensor<2x64x6x6xf32>
  %k = linalg.fill ins(%zero : f32) outs(%g : tensor<2x64x6x6xf32>) -> tensor<2x64x6x6xf32>
  %d = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%h, %f : tensor<2x64x8x8xbf16>, tensor<64x64x3x3xbf16>) outs(%k : tensor<2x64x6x6xf32>)
      -> tensor<2x64x6x6xf32>
  return %d : tensor<2x64x6x6xf32>
}

// Single elements: a product of the images as they are.

// CHECK-LABEL: func.func @pointwise
// CHECK-NOT:     linalg.transpose
// CHECK-NOT:     kitsune.windows
// CHECK:         linalg.generic {indexing_maps = [{{.*}}(d1, d3)>, {{.*}}(d0, d3, d2)>, {{.*}}(d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<16x64xbf16>, tensor<?x64x144xbf16>)
// CHECK-NOT:     linalg.transpose
// CHECK:         return
func.func @pointwise(%x: tensor<?x64x12x12xbf16>, %f: tensor<16x64x1x1xbf16>) -> tensor<?x16x12x12xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x64x12x12xbf16>
  %e = tensor.empty(%n) : tensor<?x16x12x12xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16x12x12xf32>) -> tensor<?x16x12x12xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<?x64x12x12xbf16>, tensor<16x64x1x1xbf16>) outs(%z : tensor<?x16x12x12xf32>)
      -> tensor<?x16x12x12xf32>
  return %c : tensor<?x16x12x12xf32>
}

// Three channels: a row of the filter is one element of 7 x 4 channels, of images with zeros around them; they overlap.
// Chunks have no more columns than that wants.

// CHECK-LABEL: func.func @folded
// CHECK:         %[[P:.*]] = tensor.pad %{{.*}} low[0, 0, 3, 3] high[0, 1, 2, 3]
// CHECK:         } : tensor<1x3x32x32xbf16> to tensor<1x4x37x38xbf16>
// CHECK:         linalg.transpose ins(%[[P]] {{.*}} permutation = [0, 2, 3, 1]
// CHECK:         "kitsune.windows"(%{{.*}}) {chunk = 32 : i64, dilations = array<i64: 1, 1, 1>, filter = array<i64: 1, 7, 1>, low = array<i64: 0, 0, 0>, operandSegmentSizes = array<i32: 1, 0>, pitches = array<i64: 5624, 304, 152, 8>, places = array<i64: 16, 1, 16>, sizes = array<i64: 16, 7, 16, 28>, strides = array<i64: 1, 1, 1>} : (tensor<1x37x38x4xbf16>) -> tensor<1x256x224xbf16>
func.func @folded(%x: tensor<1x3x32x32xbf16>, %f: tensor<16x3x7x7xbf16>) -> tensor<1x16x16x16xf32> {
  %nothing = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 3, 3] high[0, 0, 3, 3] {
  ^bb0(%b: index, %c: index, %i: index, %j: index):
    tensor.yield %nothing : bf16
  } : tensor<1x3x32x32xbf16> to tensor<1x3x38x38xbf16>
  %e = tensor.empty() : tensor<1x16x16x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16x16x16xf32>) -> tensor<1x16x16x16xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%p, %f : tensor<1x3x38x38xbf16>, tensor<16x3x7x7xbf16>) outs(%z : tensor<1x16x16x16xf32>)
      -> tensor<1x16x16x16xf32>
  return %c : tensor<1x16x16x16xf32>
}

// The same of a volume: its rows overlap, and its planes and lines are where windows begin.

// CHECK-LABEL: func.func @volumes
// CHECK:         } : tensor<1x8x12x12x12xbf16> to tensor<1x8x16x16x16xbf16>
// CHECK:         "kitsune.windows"(%{{.*}}) {chunk = 48 : i64, dilations = array<i64: 1, 1, 1>, filter = array<i64: 5, 5, 1>, low = array<i64: 0, 0, 0>, operandSegmentSizes = array<i32: 1, 0>, pitches = array<i64: 32768, 2048, 128, 8>, places = array<i64: 12, 12, 12>, sizes = array<i64: 16, 16, 12, 40>, strides = array<i64: 1, 1, 1>} : (tensor<1x16x16x16x8xbf16>) -> tensor<1x1728x1200xbf16>
func.func @volumes(%x: tensor<1x8x12x12x12xbf16>, %f: tensor<16x8x5x5x5xbf16>) -> tensor<1x16x12x12x12xf32> {
  %nothing = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 2, 2, 2] high[0, 0, 2, 2, 2] {
  ^bb0(%b: index, %c: index, %h: index, %i: index, %j: index):
    tensor.yield %nothing : bf16
  } : tensor<1x8x12x12x12xbf16> to tensor<1x8x16x16x16xbf16>
  %e = tensor.empty() : tensor<1x16x12x12x12xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16x12x12x12xf32>) -> tensor<1x16x12x12x12xf32>
  %c = linalg.conv_3d_ncdhw_fcdhw {dilations = dense<1> : vector<3xi64>, strides = dense<1> : vector<3xi64>}
      ins(%p, %f : tensor<1x8x16x16x16xbf16>, tensor<16x8x5x5x5xbf16>) outs(%z : tensor<1x16x12x12x12xf32>)
      -> tensor<1x16x12x12x12xf32>
  return %c : tensor<1x16x12x12x12xf32>
}

// What follows and has a number for each image keeps the images apart.

// CHECK-LABEL: func.func @apart
// CHECK:         "kitsune.windows"(%{{.*}}) {{.*}} -> tensor<2x64x576xbf16>
// CHECK:         linalg.generic {{.*}}(d0, d2, 0, 0){{.*}} ins(%{{.*}}, %{{.*}} : tensor<2x64x64xf32>, tensor<2x64x1x1xf32>)
// CHECK:         "kitsune.windows"
func.func @apart(%x: tensor<2x64x10x10xbf16>, %f: tensor<64x64x3x3xbf16>, %s: tensor<2x64x1x1xf32>)
    -> tensor<2x64x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x8x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x8x8xf32>) -> tensor<2x64x8x8xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<2x64x10x10xbf16>, tensor<64x64x3x3xbf16>) outs(%z : tensor<2x64x8x8xf32>)
      -> tensor<2x64x8x8xf32>
  %o = tensor.empty() : tensor<2x64x8x8xbf16>
  %h = linalg.generic {indexing_maps = [#whole, affine_map<(b, c, y, x) -> (b, c, 0, 0)>, #whole],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %s : tensor<2x64x8x8xf32>, tensor<2x64x1x1xf32>) outs(%o : tensor<2x64x8x8xbf16>) {
  ^bb0(%u: f32, %v: f32, %w: bf16):
    %0 = arith.mulf %u, %v : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64x8x8xbf16>
  %g = tensor.empty() : tensor<2x64x6x6xf32>
  %k = linalg.fill ins(%zero : f32) outs(%g : tensor<2x64x6x6xf32>) -> tensor<2x64x6x6xf32>
  %d = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%h, %f : tensor<2x64x8x8xbf16>, tensor<64x64x3x3xbf16>) outs(%k : tensor<2x64x6x6xf32>)
      -> tensor<2x64x6x6xf32>
  return %d : tensor<2x64x6x6xf32>
}

// Elements of a row that lie apart, of two channels: windows of 98 elements are written, for chunks of the images would
// have 62 zeros for each element.

// CHECK-LABEL: func.func @rows_apart
// CHECK-NOT:     kitsune.windows
// CHECK:         linalg.generic {{.*}}(d0, d1 + d3 * 2, d2 + d4 * 2, d5){{.*}}outs(%{{.*}} : tensor<4x64x64x7x7x2xf32>)
// CHECK:         tensor<4x4096x98xf32>
func.func @rows_apart(%x: tensor<4x2x64x64xf32>, %f: tensor<83x2x7x7xf32>) -> tensor<4x83x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x83x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x83x64x64xf32>) -> tensor<4x83x64x64xf32>
  %p = tensor.pad %x low[0, 0, 6, 6] high[0, 0, 6, 6] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32
  } : tensor<4x2x64x64xf32> to tensor<4x2x76x76xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<2> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%p, %f : tensor<4x2x76x76xf32>, tensor<83x2x7x7xf32>) outs(%z : tensor<4x83x64x64xf32>)
      -> tensor<4x83x64x64xf32>
  return %c : tensor<4x83x64x64xf32>
}
