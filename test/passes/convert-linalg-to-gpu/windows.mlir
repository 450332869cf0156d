// RUN: kitsune-opt %s --split-input-file --convert-linalg-to-gpu | filecheck %s

// What pads an image is in no memory: one kernel reads the image, and takes the least number for what lies outside.

// CHECK-LABEL: func.func @main
// CHECK-SAME:    (%[[X:.*]]: memref<1x4x8x8xf32>)
// CHECK-NOT:     10x10
// CHECK:         gpu.launch_func{{.*}}@windows_0 {{.*}}%[[X]] : memref<1x4x8x8xf32>
// CHECK-NEXT:    return
// CHECK:         gpu.func @windows_0
// CHECK-COUNT-8:   arith.maximumf
// CHECK-NOT:       arith.maximumf
func.func @main(%x: tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32> {
  %least = arith.constant 0xFF800000 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %least : f32
  } : tensor<1x4x8x8xf32> to tensor<1x4x10x10xf32>
  %e = tensor.empty() : tensor<1x4x4x4xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %w = tensor.empty() : tensor<3x3xf32>
  %y = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%p, %w : tensor<1x4x10x10xf32>, tensor<3x3xf32>) outs(%f : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %y : tensor<1x4x4x4xf32>
}

// -----

// What follows a convolution a channel at a time is in its kernel. A thread computes four neighbours of two lines: of
// each of the four lines that it sees it loads three words, and of the filter each element once.

// CHECK-LABEL: func.func @main
// CHECK-SAME:    (%[[X:.*]]: memref<256x64x16x16xf32>, %[[F:.*]]: memref<64x3x3xf32>, %[[B:.*]]: memref<64xf32>)
// CHECK-NOT:     256x64x18x18
// CHECK:         gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK:         gpu.func @windows_0
// CHECK-COUNT-12:  vector.load
// CHECK-NOT:       vector.load
// CHECK:           math.tanh
// CHECK-COUNT-2:   vector.store
// CHECK-NOT:       vector.store
func.func @main(%x: tensor<256x64x16x16xf32>, %f: tensor<64x3x3xf32>, %b: tensor<64xf32>)
    -> tensor<256x64x16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<256x64x16x16xf32> to tensor<256x64x18x18xf32>
  %e = tensor.empty() : tensor<256x64x16x16xf32>
  %s = linalg.broadcast ins(%b : tensor<64xf32>) outs(%e : tensor<256x64x16x16xf32>) dimensions = [0, 2, 3]
  %c = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%p, %f : tensor<256x64x18x18xf32>, tensor<64x3x3xf32>) outs(%s : tensor<256x64x16x16xf32>)
      -> tensor<256x64x16x16xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<256x64x16x16xf32>) outs(%e : tensor<256x64x16x16xf32>) {
    ^bb0(%v: f32, %o: f32):
      %t = math.tanh %v : f32
      linalg.yield %t : f32
  } -> tensor<256x64x16x16xf32>
  return %y : tensor<256x64x16x16xf32>
}

// -----

// A transpose reads what is around a tensor from nowhere, too. Windows of more elements than a body should have stay
// loops, and so do those of many results: they read a tensor with zeros around it.

// CHECK-LABEL: func.func @main
// CHECK:         memref.alloc() {{.*}} : memref<4x5x18x18xf32>
// CHECK:         gpu.func @windows_0
// CHECK-NOT:     gpu.func @windows
func.func @main(%x: tensor<4x5x16x16xf32>, %f: tensor<40x5x3x3xf32>) -> (tensor<18x18x5x4xf32>, tensor<4x40x16x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<4x5x16x16xf32> to tensor<4x5x18x18xf32>
  %e = tensor.empty() : tensor<18x18x5x4xf32>
  %t = linalg.transpose ins(%p : tensor<4x5x18x18xf32>) outs(%e : tensor<18x18x5x4xf32>) permutation = [2, 3, 1, 0]
  %g = tensor.empty() : tensor<4x40x16x16xf32>
  %s = linalg.fill ins(%zero : f32) outs(%g : tensor<4x40x16x16xf32>) -> tensor<4x40x16x16xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%p, %f : tensor<4x5x18x18xf32>, tensor<40x5x3x3xf32>) outs(%s : tensor<4x40x16x16xf32>)
      -> tensor<4x40x16x16xf32>
  return %t, %c : tensor<18x18x5x4xf32>, tensor<4x40x16x16xf32>
}
