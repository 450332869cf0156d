// RUN: kitsune-opt %s --convert-linalg-to-gpu | filecheck %s

// What pads an image changes no maximum: it is in no memory, and one kernel reads the nearest element instead.

// CHECK-LABEL: func.func @main
// CHECK-SAME:    (%[[X:.*]]: memref<1x4x8x8xf32>)
// CHECK-NOT:     10x10
// CHECK:         gpu.launch_func{{.*}}@reduce_0 {{.*}}, %[[X]] : memref<1x4x8x8xf32>)
// CHECK-NEXT:    return
// CHECK:         gpu.func @reduce_0
// CHECK:           arith.maxsi
// CHECK:           arith.minsi
// CHECK:           arith.maximumf
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
