// Products of f32 that are asked for in tf32 are one product a chunk, of 32 columns of k: copies round both operands. One
// whose rows are not along k is turned before.
// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

#mn = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// CHECK: affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @main
// CHECK-NOT: linalg.generic
// CHECK: "kitsune.kernel"
// CHECK: {box = "rows", share = "split", space = "smem", sym_name = "left"} : () -> !kitsune.ring<tensor<{{.*}}x32xf32>
// CHECK: "kitsune.copy"({{[^,]*}}, %arg0, {{.*}}rounded
// CHECK: "kitsune.copy"({{[^,]*}}, %arg1, {{.*}}rounded
// CHECK-NOT: outside
// CHECK: %[[turned:.*]] = linalg.generic {{.*}} ins(%arg2 : tensor<512x256xf32>) outs({{.*}} : tensor<256x512xf32>)
// CHECK: "kitsune.kernel"
// CHECK-NOT: bitcast
// CHECK: "kitsune.copy"({{[^,]*}}, %[[turned]],
module attributes {kitsune.matmul_precision = "high"} {
  func.func @main(%x: tensor<1000x512xf32>, %w: tensor<256x512xf32>, %v: tensor<512x256xf32>)
      -> (tensor<1000x256xf32>, tensor<1000x256xf32>) {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000x256xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    %y = linalg.matmul indexing_maps = [#mn, #nk, #out] ins(%x, %w : tensor<1000x512xf32>, tensor<256x512xf32>)
        outs(%f : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    %z = linalg.matmul indexing_maps = [#mn, #kn, #out] ins(%x, %v : tensor<1000x512xf32>, tensor<512x256xf32>)
        outs(%f : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    return %y, %z : tensor<1000x256xf32>, tensor<1000x256xf32>
  }
}
