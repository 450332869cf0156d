// RUN: kitsune-opt --convert-linalg-to-gpu %s | filecheck %s

// One thread an element, bounds guarded; the pipeline's call stays; a dynamic size is computed on the host.

#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

func.func private @pipeline_0(tensor<?x8xf32>) -> tensor<?x8xf32> attributes {kitsune.sizes_from = [array<i64: 0, 0>]}

// CHECK-LABEL: func.func @main(%arg0: memref<?x8xf32>, %arg1: memref<8xf32>)
// CHECK-DAG: %[[ONE:.+]] = arith.constant 1 : index
// CHECK-DAG: %[[THREADS:.+]] = arith.constant 256 : index
// CHECK: %[[Y:.+]] = memref.alloc(%{{.+}}) {{.*}}: memref<?x8xf32>
// CHECK: %[[BLOCKS:.+]] = arith.divui
// CHECK: gpu.launch_func @kernels::@elementwise_0 blocks in (%[[BLOCKS]], %[[ONE]], %[[ONE]]) threads in (%[[THREADS]], %[[ONE]], %[[ONE]]) args(%arg0 : memref<?x8xf32>, %arg1 : memref<8xf32>, %[[Y]] : memref<?x8xf32>)
// CHECK: %[[Z:.+]] = call @pipeline_0(%[[Y]]) : (memref<?x8xf32>) -> memref<?x8xf32>
// CHECK: return %[[Z]]
func.func @main(%x: tensor<?x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%rows) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<?x8xf32>, tensor<8xf32>) outs(%e : tensor<?x8xf32>) {
    ^bb0(%in: f32, %add: f32, %out: f32):
      %s = arith.addf %in, %add : f32
      linalg.yield %s : f32
  } -> tensor<?x8xf32>
  %z = func.call @pipeline_0(%y) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// CHECK: gpu.module @kernels
// CHECK: gpu.func @elementwise_0(%{{.+}}: memref<?x8xf32>, %{{.+}}: memref<8xf32>, %{{.+}}: memref<?x8xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>}
// CHECK: %[[INSIDE:.+]] = arith.cmpi ult
// CHECK: scf.if %[[INSIDE]]
// CHECK: vector.load %{{.+}}[%{{.+}}, %{{.+}}] {alignment = 16 : i64} : memref<?x8xf32>, vector<4xf32>
// CHECK: vector.load %{{.+}}[%{{.+}}] {alignment = 16 : i64} : memref<8xf32>, vector<4xf32>
// CHECK-COUNT-4: arith.addf
// CHECK: vector.store
