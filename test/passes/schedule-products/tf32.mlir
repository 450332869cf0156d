// Products of f32 that are asked for in tf32 are one product a chunk, of 32 columns of k: copies round both operands. A
// weight whose rows are not along k is turned before, once; what comes with each call is turned in the kernel, by an agent
// of its own, unless that would be done for too many tiles.
// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

#mn = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
#bmk = affine_map<(b, m, n, k) -> (b, m, k)>
#bnk = affine_map<(b, m, n, k) -> (b, n, k)>
#bmn = affine_map<(b, m, n, k) -> (b, m, n)>
#all = affine_map<(b, m, n) -> (b, m, n)>

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

// CHECK-LABEL: func.func @gram
// CHECK-NOT: linalg.generic
// CHECK: "kitsune.kernel"
// CHECK-DAG: %[[WHOLE:.*]] = "kitsune.alloc_ring"() {box = "columns", {{.*}} sym_name = "left_whole"} : () -> !kitsune.ring<tensor<128x32xf32>
// CHECK-DAG: %[[LEFT:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "split", {{.*}} sym_name = "left"} : () -> !kitsune.ring<tensor<128x32xf32>
// CHECK: "kitsune.copy"({{[^,]*}}, %arg0, {{.*}}rounded
// CHECK: sym_name = "math"
// CHECK: %[[S:.*]] = "kitsune.wait"(%[[WHOLE]])
// CHECK: %[[T:.*]] = "kitsune.acquire"(%[[LEFT]])
// CHECK: "kitsune.split"(%[[S]], %[[T]])
// CHECK: sym_name = "make"

// CHECK-LABEL: func.func @wide
// CHECK-COUNT-2: linalg.generic
// CHECK: "kitsune.kernel"
// CHECK-NOT: kitsune.split

// A matrix that is added is loaded at once, beside sums of 128 columns at most, whatever wider tiles would save.
// CHECK-LABEL: func.func @residual
// CHECK: "kitsune.settle"(%{{.*}}) : (!kitsune.acc<tensor<64x128xf32>>)
// CHECK: "kitsune.read"(%{{.*}}) {ahead, {{.*}} -> tensor<64x128xf32>
module attributes {kitsune.matmul_precision = "high"} {
  func.func @main(%x: tensor<1000x512xf32>, %w: tensor<256x512xf32>, %v: tensor<512x256xf32>)
      -> (tensor<1000x256xf32>, tensor<1000x256xf32>) attributes {kitsune.weights = array<i64: 2>} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000x256xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    %y = linalg.matmul indexing_maps = [#mn, #nk, #out] ins(%x, %w : tensor<1000x512xf32>, tensor<256x512xf32>)
        outs(%f : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    %z = linalg.matmul indexing_maps = [#mn, #kn, #out] ins(%x, %v : tensor<1000x512xf32>, tensor<512x256xf32>)
        outs(%f : tensor<1000x256xf32>) -> tensor<1000x256xf32>
    return %y, %z : tensor<1000x256xf32>, tensor<1000x256xf32>
  }
  func.func @gram(%x: tensor<87010x256xf32>, %y: tensor<87010x512xf32>) -> tensor<256x512xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<256x512xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256x512xf32>) -> tensor<256x512xf32>
    %p = linalg.matmul indexing_maps = [#km, #kn, #out] ins(%x, %y : tensor<87010x256xf32>, tensor<87010x512xf32>)
        outs(%f : tensor<256x512xf32>) -> tensor<256x512xf32>
    return %p : tensor<256x512xf32>
  }
  func.func @wide(%x: tensor<4095x4096xf32>, %y: tensor<4095x4096xf32>) -> tensor<4096x4096xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4096x4096xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %p = linalg.matmul indexing_maps = [#km, #kn, #out] ins(%x, %y : tensor<4095x4096xf32>, tensor<4095x4096xf32>)
        outs(%f : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    return %p : tensor<4096x4096xf32>
  }
  func.func @residual(%x: tensor<128x64x576xf32>, %w: tensor<128x3136x576xf32>, %r: tensor<128x64x3136xf32>)
      -> tensor<128x64x3136xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<128x64x3136xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x64x3136xf32>) -> tensor<128x64x3136xf32>
    %p = linalg.batch_matmul indexing_maps = [#bmk, #bnk, #bmn]
        ins(%x, %w : tensor<128x64x576xf32>, tensor<128x3136x576xf32>) outs(%f : tensor<128x64x3136xf32>)
        -> tensor<128x64x3136xf32>
    %y = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%p, %r : tensor<128x64x3136xf32>, tensor<128x64x3136xf32>) outs(%e : tensor<128x64x3136xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    } -> tensor<128x64x3136xf32>
    return %y : tensor<128x64x3136xf32>
  }
}
