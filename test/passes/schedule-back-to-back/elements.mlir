// RUN: kitsune-opt %s --schedule-back-to-back | filecheck %s
// RUN: kitsune-opt %s --schedule-back-to-back --verify-dataflow

// Products of what is made of products: each kernel goes over the columns of a tile of rows, and the elements stay in
// registers.

#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, n, k)>
#down = affine_map<(b, m, n, k) -> (b, k, m)>
#beside = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>
#id = affine_map<(b, m, n) -> (b, m, n)>
#row = affine_map<(b, m, n) -> (b, m)>

// A second product that sums over columns, and one over rows: the latter's kernel multiplies the other way round, and
// takes the rows' numbers as those of columns. What a first product has multiplied a second takes out of the same slots.

// CHECK-LABEL: func.func @both_ways
// CHECK: "kitsune.kernel"() ({
// CHECK: "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "left0"}
// CHECK: "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "right0"}
// CHECK-NOT: sym_name = "values
// CHECK: "kitsune.agent"
// CHECK: "kitsune.settle"
// CHECK: "kitsune.part"
// CHECK: "kitsune.product"{{.*}} {engine = "wgmma", turned}
// CHECK: scf.for
// CHECK: "kitsune.settle"
// CHECK: "kitsune.release"
// CHECK: "kitsune.product"{{.*}} {engine = "wgmma", turned}
// CHECK: scf.yield
// CHECK: "kitsune.write"
// CHECK: sym_name = "back_to_back0"
// CHECK: "kitsune.kernel"() ({
// CHECK: "kitsune.read"{{.*}} {ahead
// CHECK: sym_name = "back_to_back1"
// CHECK-NOT: linalg.batch_matmul
func.func @both_ways(%q: tensor<64x512x64xbf16>, %k: tensor<64x512x64xbf16>, %g: tensor<64x512x64xbf16>, %l: tensor<64x512xf32>)
    -> (tensor<64x512x64xf32>, tensor<64x512x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x512x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#left, #right, #out] ins(%q, %k : tensor<64x512x64xbf16>, tensor<64x512x64xbf16>)
      outs(%z : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %h = tensor.empty() : tensor<64x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %l : tensor<64x512x512xf32>, tensor<64x512xf32>) outs(%h : tensor<64x512x512xbf16>) {
  ^bb0(%x: f32, %r: f32, %o: bf16):
    %d = arith.subf %x, %r : f32
    %w = math.exp %d : f32
    %t = arith.truncf %w : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<64x512x512xbf16>
  %f = tensor.empty() : tensor<64x512x64xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  %u = linalg.batch_matmul ins(%p, %k : tensor<64x512x512xbf16>, tensor<64x512x64xbf16>)
      outs(%y : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  %v = linalg.batch_matmul indexing_maps = [#down, #beside, #out] ins(%p, %q : tensor<64x512x512xbf16>, tensor<64x512x64xbf16>)
      outs(%y : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  return %u, %v : tensor<64x512x64xf32>, tensor<64x512x64xf32>
}

// What lies between the products leaves the function, too: it goes through memory anyway.

// CHECK-LABEL: func.func @read_elsewhere
// CHECK: linalg.batch_matmul
// CHECK: linalg.batch_matmul
// CHECK-NOT: kitsune.kernel
func.func @read_elsewhere(%q: tensor<64x512x64xbf16>, %k: tensor<64x512x64xbf16>) -> (tensor<64x512x64xf32>, tensor<64x512x512xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x512x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#left, #right, #out] ins(%q, %k : tensor<64x512x64xbf16>, tensor<64x512x64xbf16>)
      outs(%z : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %h = tensor.empty() : tensor<64x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<64x512x512xf32>) outs(%h : tensor<64x512x512xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %w = math.exp %x : f32
    %t = arith.truncf %w : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<64x512x512xbf16>
  %f = tensor.empty() : tensor<64x512x64xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  %u = linalg.batch_matmul ins(%p, %k : tensor<64x512x512xbf16>, tensor<64x512x64xbf16>)
      outs(%y : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  return %u, %p : tensor<64x512x64xf32>, tensor<64x512x512xbf16>
}

// A mask of places: tiles have no columns outside of it.

// CHECK-LABEL: func.func @lower
// CHECK: arith.minui
// CHECK: sym_name = "back_to_back2"
func.func @lower(%q: tensor<64x512x64xbf16>, %k: tensor<64x512x64xbf16>) -> tensor<64x512x64xf32> {
  %zero = arith.constant 0.0 : f32
  %m = tensor.empty() : tensor<512x512xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%m : tensor<512x512xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    linalg.yield %c : i1
  } -> tensor<512x512xi1>
  %e = tensor.empty() : tensor<64x512x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#left, #right, #out] ins(%q, %k : tensor<64x512x64xbf16>, tensor<64x512x64xbf16>)
      outs(%z : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  %h = tensor.empty() : tensor<64x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#id, affine_map<(b, m, n) -> (m, n)>, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %mask : tensor<64x512x512xf32>, tensor<512x512xi1>) outs(%h : tensor<64x512x512xbf16>) {
  ^bb0(%x: f32, %c: i1, %o: bf16):
    %w = arith.select %c, %x, %zero : f32
    %t = arith.truncf %w : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<64x512x512xbf16>
  %f = tensor.empty() : tensor<64x512x64xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  %u = linalg.batch_matmul ins(%p, %k : tensor<64x512x512xbf16>, tensor<64x512x64xbf16>)
      outs(%y : tensor<64x512x64xf32>) -> tensor<64x512x64xf32>
  return %u : tensor<64x512x64xf32>
}
