// RUN: kitsune-opt %s --carry-channels --split-input-file | filecheck %s

// Images that are given with their channels last are pooled so, and nothing of them is turned.

// CHECK-LABEL: func.func @pooled
// CHECK-NOT: linalg.transpose
// CHECK: linalg.pooling_nhwc_max {{.*}} ins(%arg0, {{.*}} -> tensor<2x4x6x8xf32>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction", "parallel"]
// CHECK-NOT: linalg.transpose
func.func @pooled(%x: tensor<2x8x12x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x8x8x12xf32>
  %t = linalg.transpose ins(%x : tensor<2x8x12x8xf32>) outs(%e : tensor<2x8x8x12xf32>) permutation = [0, 3, 1, 2]
  %window = tensor.empty() : tensor<2x2xf32>
  %pe = tensor.empty() : tensor<2x8x4x6xf32>
  %begin = linalg.fill ins(%low : f32) outs(%pe : tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %p = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%t, %window : tensor<2x8x8x12xf32>, tensor<2x2xf32>) outs(%begin : tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %se = tensor.empty() : tensor<2x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%se : tensor<2x8xf32>) -> tensor<2x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(n, c, y, x) -> (n, c, y, x)>, affine_map<(n, c, y, x) -> (n, c)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%p : tensor<2x8x4x6xf32>) outs(%none : tensor<2x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  return %s : tensor<2x8xf32>
}

// -----

// What would be turned behind instead, as large as it is in front, is left.

// CHECK-LABEL: func.func @given_back
// CHECK: linalg.transpose
// CHECK: linalg.pooling_nchw_max
func.func @given_back(%x: tensor<2x8x12x8xf32>) -> tensor<2x8x8x12xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x8x8x12xf32>
  %t = linalg.transpose ins(%x : tensor<2x8x12x8xf32>) outs(%e : tensor<2x8x8x12xf32>) permutation = [0, 3, 1, 2]
  %p = tensor.pad %t low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%n: index, %c: index, %i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<2x8x8x12xf32> to tensor<2x8x10x14xf32>
  %window = tensor.empty() : tensor<3x3xf32>
  %begin = linalg.fill ins(%low : f32) outs(%e : tensor<2x8x8x12xf32>) -> tensor<2x8x8x12xf32>
  %y = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%p, %window : tensor<2x8x10x14xf32>, tensor<3x3xf32>) outs(%begin : tensor<2x8x8x12xf32>) -> tensor<2x8x8x12xf32>
  return %y : tensor<2x8x8x12xf32>
}

// -----

// What a convolution gives has its channels last where another's images are made of it by more than elementwise
// operators: here, by a convolution of a channel at a time.

// CHECK-LABEL: func.func @between
// CHECK: %[[C:.*]] = linalg.conv_2d_nchw_fchw {{.*}} ins(%arg0,
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[C]] : {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[F:.*]] = linalg.transpose ins(%arg2 : tensor<16x3x3xf32>) {{.*}} permutation = [1, 2, 0]
// CHECK: %[[D:.*]] = linalg.depthwise_conv_2d_nhwc_hwc {{.*}} ins(%[[T]], %[[F]] :
// CHECK: %[[B:.*]] = linalg.transpose ins(%[[D]] : {{.*}} permutation = [0, 3, 1, 2]
// CHECK: linalg.conv_2d_nchw_fchw {{.*}} ins(%[[B]], %arg3
func.func @between(%x: tensor<2x8x7x7xf32>, %f: tensor<16x8x1x1xf32>, %d: tensor<16x3x3xf32>, %g: tensor<8x16x1x1xf32>) -> tensor<2x8x5x5xf32> {
  %zero = arith.constant 0.0 : f32
  %ae = tensor.empty() : tensor<2x16x7x7xf32>
  %az = linalg.fill ins(%zero : f32) outs(%ae : tensor<2x16x7x7xf32>) -> tensor<2x16x7x7xf32>
  %a = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<2x8x7x7xf32>, tensor<16x8x1x1xf32>) outs(%az : tensor<2x16x7x7xf32>) -> tensor<2x16x7x7xf32>
  %be = tensor.empty() : tensor<2x16x5x5xf32>
  %bz = linalg.fill ins(%zero : f32) outs(%be : tensor<2x16x5x5xf32>) -> tensor<2x16x5x5xf32>
  %b = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%a, %d : tensor<2x16x7x7xf32>, tensor<16x3x3xf32>) outs(%bz : tensor<2x16x5x5xf32>) -> tensor<2x16x5x5xf32>
  %ce = tensor.empty() : tensor<2x8x5x5xf32>
  %cz = linalg.fill ins(%zero : f32) outs(%ce : tensor<2x8x5x5xf32>) -> tensor<2x8x5x5xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%b, %g : tensor<2x16x5x5xf32>, tensor<8x16x1x1xf32>) outs(%cz : tensor<2x8x5x5xf32>) -> tensor<2x8x5x5xf32>
  return %c : tensor<2x8x5x5xf32>
}

// -----

// What two operands take of one tensor has its channels in two loops: it is left.

#same = affine_map<(d0,d1,d2,d3) -> (d0,d1,d2,d3)>
#crossed = affine_map<(d0,d1,d2,d3) -> (d0,d2,d1,d3)>

// CHECK-LABEL: func.func @two_loops
// CHECK: linalg.pooling_nchw_sum
func.func @two_loops(%x: tensor<2x8x8x8xf32>) -> tensor<2x8xf32> {
  %e = tensor.empty() : tensor<2x8x8x8xf32>
  %t = linalg.transpose ins(%x : tensor<2x8x8x8xf32>) outs(%e : tensor<2x8x8x8xf32>) permutation = [0, 3, 1, 2]
  %zero = arith.constant 0.0 : f32
  %e1 = tensor.empty() : tensor<2x8x8x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
  %w = tensor.empty() : tensor<1x1xf32>
  %p = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%t, %w : tensor<2x8x8x8xf32>, tensor<1x1xf32>) outs(%f1 : tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
  %q = linalg.generic {indexing_maps=[#same,#same], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%p : tensor<2x8x8x8xf32>) outs(%e1 : tensor<2x8x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = math.tanh %a : f32
    linalg.yield %m : f32
  } -> tensor<2x8x8x8xf32>
  %r = linalg.generic {indexing_maps=[#same,#crossed,#same], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%p, %q : tensor<2x8x8x8xf32>, tensor<2x8x8x8xf32>) outs(%e1 : tensor<2x8x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<2x8x8x8xf32>
  %e2 = tensor.empty() : tensor<2x8xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x8xf32>) -> tensor<2x8xf32>
  %s = linalg.generic {indexing_maps=[#same,affine_map<(d0,d1,d2,d3) -> (d0,d1)>], iterator_types=["parallel","parallel","reduction","reduction"]} ins(%r : tensor<2x8x8x8xf32>) outs(%f2 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.addf %a, %o : f32
    linalg.yield %m : f32
  } -> tensor<2x8xf32>
  return %s : tensor<2x8xf32>
}

// -----

// What is done elementwise between a transpose and the one back is done in the order of the operators around it.

// CHECK-LABEL: func.func @turned_back
// CHECK-NOT: linalg.transpose
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x12x8xf32>, tensor<8xf32>)
// CHECK-NOT: linalg.transpose
// CHECK: return %[[Y]]
func.func @turned_back(%x: tensor<2x12x8xf32>, %w: tensor<8xf32>) -> tensor<2x12x8xf32> {
  %e = tensor.empty() : tensor<2x8x12xf32>
  %t = linalg.transpose ins(%x : tensor<2x12x8xf32>) outs(%e : tensor<2x8x12xf32>) permutation = [0, 2, 1]
  %s = linalg.generic {indexing_maps = [affine_map<(n, c, y) -> (n, c, y)>, affine_map<(n, c, y) -> (c)>,
      affine_map<(n, c, y) -> (n, c, y)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t, %w : tensor<2x8x12xf32>, tensor<8xf32>) outs(%e : tensor<2x8x12xf32>) {
  ^bb0(%in: f32, %factor: f32, %out: f32):
    %0 = arith.mulf %in, %factor : f32
    linalg.yield %0 : f32
  } -> tensor<2x8x12xf32>
  %f = tensor.empty() : tensor<2x12x8xf32>
  %y = linalg.transpose ins(%s : tensor<2x8x12xf32>) outs(%f : tensor<2x12x8xf32>) permutation = [0, 2, 1]
  return %y : tensor<2x12x8xf32>
}
