// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_90a --single-products | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages=target=sm_90a --single-products --schedule-products | filecheck %s --check-prefix=KERNEL

// One product and what follows it by element: its kernel has the pipeline's name.

// CHECK-LABEL: func.func @layer
// CHECK-NOT:     kitsune.pipeline"
// CHECK:         linalg.matmul {{.*}}kitsune.pipeline = "pipeline0"
// CHECK:         linalg.generic
// KERNEL-LABEL: func.func @layer
// KERNEL:       "kitsune.kernel"
// KERNEL:       sym_name = "pipeline0"
func.func @layer(%x: tensor<?x128xbf16>, %w: tensor<256x128xbf16>) -> tensor<?x256xbf16> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x128xbf16>
  %e = tensor.empty(%rows) : tensor<?x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x256xf32>) -> tensor<?x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<?x128xbf16>, tensor<256x128xbf16>)
    outs(%f : tensor<?x256xf32>) -> tensor<?x256xf32>
  %g = tensor.empty(%rows) : tensor<?x256xbf16>
  %a = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]} ins(%h : tensor<?x256xf32>) outs(%g : tensor<?x256xbf16>) {
  ^bb0(%p: f32, %o: bf16):
    %r = arith.maximumf %p, %zero : f32
    %t = arith.truncf %r : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?x256xbf16>
  return %a : tensor<?x256xbf16>
}

// Products of f32 that are not asked for in tf32, and those whose operand the stage computes, stay pipelines.

// CHECK-LABEL: func.func @computed
// CHECK:         "kitsune.pipeline"
func.func @computed(%x: tensor<4096x128xf32>, %w: tensor<256x128xbf16>) -> tensor<4096x256xf32> {
  %zero = arith.constant 0.0 : f32
  %g = tensor.empty() : tensor<4096x128xbf16>
  %a = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4096x128xf32>) outs(%g : tensor<4096x128xbf16>) {
  ^bb0(%p: f32, %o: bf16):
    %r = arith.maximumf %p, %zero : f32
    %t = arith.truncf %r : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4096x128xbf16>
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%a, %w : tensor<4096x128xbf16>, tensor<256x128xbf16>)
    outs(%f : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  return %h : tensor<4096x256xf32>
}

// CHECK-LABEL: func.func @of_f32
// CHECK:         "kitsune.pipeline"
func.func @of_f32(%x: tensor<4096x128xf32>, %w: tensor<256x128xf32>) -> tensor<4096x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<4096x128xf32>, tensor<256x128xf32>)
    outs(%f : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  return %h : tensor<4096x256xf32>
}

// Threads read rows that tensor copies do not, where a kernel that makes them longer would go through DRAM.

// CHECK-LABEL: func.func @held
// CHECK:         "kitsune.pipeline"
func.func @held(%x: tensor<100000x316xbf16>, %w: tensor<256x316xbf16>) -> tensor<100000x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<100000x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<100000x256xf32>) -> tensor<100000x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<100000x316xbf16>, tensor<256x316xbf16>)
    outs(%f : tensor<100000x256xf32>) -> tensor<100000x256xf32>
  return %h : tensor<100000x256xf32>
}

// Fewer rows stay in the L2; registers hold no longer ones, and columns of one tile only are computed of rows read once.

// CHECK-LABEL: func.func @few
// CHECK:         linalg.matmul {{.*}}kitsune.pipeline
func.func @few(%x: tensor<10000x316xbf16>, %w: tensor<256x316xbf16>) -> tensor<10000x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<10000x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<10000x256xf32>) -> tensor<10000x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<10000x316xbf16>, tensor<256x316xbf16>)
    outs(%f : tensor<10000x256xf32>) -> tensor<10000x256xf32>
  return %h : tensor<10000x256xf32>
}

// CHECK-LABEL: func.func @long
// CHECK:         linalg.matmul {{.*}}kitsune.pipeline
func.func @long(%x: tensor<100000x356xbf16>, %w: tensor<256x356xbf16>) -> tensor<100000x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<100000x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<100000x256xf32>) -> tensor<100000x256xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<100000x356xbf16>, tensor<256x356xbf16>)
    outs(%f : tensor<100000x256xf32>) -> tensor<100000x256xf32>
  return %h : tensor<100000x256xf32>
}

// CHECK-LABEL: func.func @wide
// CHECK:         linalg.matmul {{.*}}kitsune.pipeline
func.func @wide(%x: tensor<100000x316xbf16>, %w: tensor<264x316xbf16>) -> tensor<100000x264xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<100000x264xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<100000x264xf32>) -> tensor<100000x264xf32>
  %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<100000x316xbf16>, tensor<264x316xbf16>)
    outs(%f : tensor<100000x264xf32>) -> tensor<100000x264xf32>
  return %h : tensor<100000x264xf32>
}
