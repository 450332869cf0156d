// RUN: kitsune-opt %s --convolutions-to-products --mlir-print-local-scope | filecheck %s
// RUN: kitsune-opt %s --convolutions-to-products --schedule-products --verify-dataflow | filecheck %s --check-prefix=KERNEL

// In tf32 windows are multiplied as they lie, on either side: the copy engine rounds them on their way.

// CHECK-LABEL: func.func @two
// CHECK:         "kitsune.windows"(%{{.*}}) {{.*}} : (tensor<256x10x10x64xf32>) -> tensor<25600x576xf32>
// CHECK:         %[[P:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<25600x64xf32>)
// CHECK:         %[[E:.*]] = tensor.expand_shape %[[P]]
// CHECK:         "kitsune.windows"(%[[E]]) {{.*}} : (tensor<256x10x10x64xf32>) -> tensor<256x64x576xf32>

// KERNEL-LABEL: func.func @two
// KERNEL-NOT:     bf16
// KERNEL:         "kitsune.kernel"() ({
// KERNEL:           "kitsune.copy"{{.*}}rounded
// KERNEL:           "kitsune.write"
// KERNEL:         "kitsune.windows"
// KERNEL:         "kitsune.kernel"() ({
// KERNEL:           "kitsune.copy"{{.*}}rounded
// KERNEL-NOT:     bf16
module attributes {kitsune.matmul_precision = "high"} {
  func.func @two(%x: tensor<256x64x10x10xf32>, %f: tensor<64x64x3x3xf32>, %g: tensor<32x64x3x3xf32>)
      -> tensor<256x32x8x8xf32> {
    %zero = arith.constant 0.0 : f32
    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%b: index, %c: index, %i: index, %j: index):
      tensor.yield %zero : f32
    } : tensor<256x64x10x10xf32> to tensor<256x64x12x12xf32>
    %e = tensor.empty() : tensor<256x64x10x10xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x64x10x10xf32>) -> tensor<256x64x10x10xf32>
    %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
        ins(%p, %f : tensor<256x64x12x12xf32>, tensor<64x64x3x3xf32>) outs(%z : tensor<256x64x10x10xf32>)
        -> tensor<256x64x10x10xf32>
    %o = tensor.empty() : tensor<256x32x8x8xf32>
    %w = linalg.fill ins(%zero : f32) outs(%o : tensor<256x32x8x8xf32>) -> tensor<256x32x8x8xf32>
    %d = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
        ins(%c, %g : tensor<256x64x10x10xf32>, tensor<32x64x3x3xf32>) outs(%w : tensor<256x32x8x8xf32>)
        -> tensor<256x32x8x8xf32>
    return %d : tensor<256x32x8x8xf32>
  }
}
