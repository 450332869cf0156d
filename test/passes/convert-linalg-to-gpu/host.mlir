// RUN: kitsune-opt --convert-linalg-to-gpu %s | filecheck %s

// An element that a kernel needs is loaded by the kernel, not by the host; equal kernels are kept once; a
// returned argument is copied, by the driver if it is large.

#id = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @main
// CHECK-NOT: memref.load
// CHECK: gpu.launch_func @kernels::@[[K:.+]] blocks
// CHECK-NOT: memref.load
// CHECK: gpu.launch_func @kernels::@[[K]] blocks
// CHECK: gpu.launch_func @kernels::@copy_0 {{.*}} args(%[[SMALL:.+]] : memref<16xf32>, %arg0 :
// CHECK: memref.copy %arg1, %[[LARGE:.+]] :
// CHECK: return %{{.+}}, %[[SMALL]], %[[LARGE]]
func.func @main(%x: tensor<16xf32>, %large: tensor<4194304xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<4194304xf32>) {
  %c3 = arith.constant 3 : index
  %scale = tensor.extract %x[%c3] : tensor<16xf32>
  %e0 = tensor.empty() : tensor<16xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<16xf32>) outs(%e0 : tensor<16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = math.cos %in : f32
      %t = arith.mulf %s, %scale : f32
      linalg.yield %t : f32
  } -> tensor<16xf32>
  %r = func.call @pipeline_0(%y) : (tensor<16xf32>) -> tensor<16xf32>
  %last = tensor.extract %r[%c3] : tensor<16xf32>
  %e1 = tensor.empty() : tensor<16xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%r : tensor<16xf32>) outs(%e1 : tensor<16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = math.cos %in : f32
      %t = arith.mulf %s, %last : f32
      linalg.yield %t : f32
  } -> tensor<16xf32>
  return %z, %x, %large : tensor<16xf32>, tensor<16xf32>, tensor<4194304xf32>
}
func.func private @pipeline_0(tensor<16xf32>) -> tensor<16xf32>

// CHECK: gpu.module @kernels
// CHECK: gpu.func @[[K]]
// CHECK: memref.load
// CHECK: gpu.func @copy_0
// CHECK-NOT: gpu.func
