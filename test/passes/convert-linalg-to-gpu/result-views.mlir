// RUN: kitsune-opt --convert-linalg-to-gpu --split-input-file %s | filecheck %s

// Results of the same memory (kitsune.memory; a number below that of the arguments is an argument's) are views: nothing
// is moved for them. A result of its own memory (-1) is copied where another result, or an argument, lies there.

// CHECK-LABEL: func.func @main
// CHECK: %[[Y:.+]] = call @pipeline_0
// CHECK-NOT: gpu.launch_func
// CHECK-DAG: %[[T:.+]] = memref.reinterpret_cast %[[Y]] to offset: [0], sizes: [6, 4], strides: [1, 6]
// CHECK-DAG: %[[E:.+]] = memref.reinterpret_cast %[[Y]] to offset: [0], sizes: [4, 3, 6], strides: [6, 0, 1]
// CHECK-DAG: %[[S:.+]] = memref.reinterpret_cast %[[Y]] to offset: [2], sizes: [4, 3], strides: [6, 1]
// CHECK-DAG: %[[P:.+]] = memref.reinterpret_cast %arg0 to offset: [6], sizes: [2, 6], strides: [12, 1]
// CHECK-NOT: gpu.launch_func
// CHECK: return %[[T]], %[[E]], %[[Y]], %[[S]], %[[P]] :
func.func @main(%x: tensor<4x6xf32>)
    -> (tensor<6x4xf32>, tensor<4x3x6xf32>, tensor<4x6xf32>, tensor<4x3xf32>, tensor<2x6xf32>)
    attributes {kitsune.memory = array<i64: 7, 7, 7, 7, 0>} {
  %y = func.call @pipeline_0(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %e0 = tensor.empty() : tensor<6x4xf32>
  %t = linalg.transpose ins(%y : tensor<4x6xf32>) outs(%e0 : tensor<6x4xf32>) permutation = [1, 0]
  %e1 = tensor.empty() : tensor<4x3x6xf32>
  %e = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : tensor<4x6xf32>) outs(%e1 : tensor<4x3x6xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
  } -> tensor<4x3x6xf32>
  %s = tensor.extract_slice %y[0, 2] [4, 3] [1, 1] : tensor<4x6xf32> to tensor<4x3xf32>
  %p = tensor.extract_slice %x[1, 0] [2, 6] [2, 1] : tensor<4x6xf32> to tensor<2x6xf32>
  return %t, %e, %y, %s, %p : tensor<6x4xf32>, tensor<4x3x6xf32>, tensor<4x6xf32>, tensor<4x3xf32>, tensor<2x6xf32>
}
func.func private @pipeline_0(tensor<4x6xf32>) -> tensor<4x6xf32>

// -----

// CHECK-LABEL: func.func @main
// CHECK: %[[Y:.+]] = call @pipeline_0
// CHECK: gpu.launch_func @kernels::@copy
// CHECK: gpu.launch_func @kernels::@copy
// CHECK-NOT: reinterpret_cast
// CHECK: return %[[Y]], %
func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x3xf32>)
    attributes {kitsune.memory = array<i64: -1, 5, 5>} {
  %y = func.call @pipeline_0(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = tensor.extract_slice %y[0, 2] [4, 3] [1, 1] : tensor<4x6xf32> to tensor<4x3xf32>
  %p = tensor.extract_slice %x[0, 1] [4, 3] [1, 1] : tensor<4x6xf32> to tensor<4x3xf32>
  return %y, %s, %p : tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}
func.func private @pipeline_0(tensor<4x6xf32>) -> tensor<4x6xf32>

// -----

// What was moved is a view no longer when another result needs its elements elsewhere: the transposed tensor is read.

// CHECK-LABEL: func.func @main
// CHECK: %[[T:.+]] = memref.alloc
// CHECK: gpu.launch_func @kernels::@elementwise
// CHECK: %[[Z:.+]] = call @pipeline_1(%[[T]])
// CHECK: return %[[T]], %[[Z]]
func.func @main(%x: tensor<4x6xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>)
    attributes {kitsune.memory = array<i64: 0, -1>} {
  %e0 = tensor.empty() : tensor<6x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x6xf32>) outs(%e0 : tensor<6x4xf32>) permutation = [1, 0]
  %z = func.call @pipeline_1(%t) : (tensor<6x4xf32>) -> tensor<6x4xf32>
  return %t, %z : tensor<6x4xf32>, tensor<6x4xf32>
}
func.func private @pipeline_1(tensor<6x4xf32>) -> tensor<6x4xf32>
