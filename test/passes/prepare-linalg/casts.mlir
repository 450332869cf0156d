// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// A cast that stands alone moves into its users' bodies, or into its producer's.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: func.func @bias
// CHECK: %[[P:.+]] = linalg.matmul
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: linalg.generic {{.*}} ins(%[[P]], %{{.+}} : tensor<2x8xf32>, tensor<8xbf16>)
// CHECK-NEXT: ^bb0(%[[A:.+]]: f32, %[[B:.+]]: bf16, %{{.+}}: bf16):
// CHECK-NEXT: %[[W:.+]] = arith.extf %[[B]]
// CHECK-NEXT: arith.addf %[[A]], %[[W]] : f32
func.func @bias(%x: tensor<2x4xbf16>, %w: tensor<4x8xbf16>, %b: tensor<8xbf16>) -> tensor<2x8xbf16> {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<2x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x8xf32>) -> tensor<2x8xf32>
  %p = linalg.matmul ins(%x, %w : tensor<2x4xbf16>, tensor<4x8xbf16>) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xbf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<2x8xf32>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%n, %b : tensor<2x8xbf16>, tensor<8xbf16>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: bf16, %in2: bf16, %out: bf16):
    %0 = arith.addf %in, %in2 : bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  return %y : tensor<2x8xbf16>
}

// CHECK-LABEL: func.func @producer
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : tensor<2x8xf32>) outs(%{{.+}} : tensor<2x8xbf16>)
// CHECK: math.tanh
// CHECK: arith.truncf
// CHECK-NOT: linalg.generic
func.func @producer(%x: tensor<2x8xf32>) -> tensor<2x8xbf16> {
  %o = tensor.empty() : tensor<2x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.tanh %in : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xbf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<2x8xf32>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  return %n : tensor<2x8xbf16>
}

// What a product or the caller takes stays 16 bits wide; a sum must not lose its f32 accumulator.
// CHECK-LABEL: func.func @sum
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2x8xf32>)
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2x8xbf16>)
func.func @sum(%x: tensor<2x8xf32>, %init: tensor<2x8xf32>) -> tensor<2x8xbf16> {
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x8xf32>) outs(%init : tensor<2x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xbf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<2x8xf32>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  return %n : tensor<2x8xbf16>
}

// Parts of what is widened are widened by their readers: what lies in memory is bf16.

// CHECK-LABEL: func.func @parts
// CHECK: %[[A:.+]] = tensor.extract_slice %arg0[0, 0] [%{{.+}}, 8] [1, 1] : tensor<?x16xbf16> to tensor<?x8xbf16>
// CHECK: %[[B:.+]] = tensor.extract_slice %arg0[0, 8] [%{{.+}}, 8] [1, 1] : tensor<?x16xbf16> to tensor<?x8xbf16>
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]] : tensor<?x8xbf16>, tensor<?x8xbf16>)
// CHECK: arith.extf
// CHECK: arith.extf
// CHECK: arith.mulf
func.func @parts(%x: tensor<?x16xbf16>, %rows: index) -> tensor<?x8xf32> {
  %e = tensor.empty(%rows) : tensor<?x16xf32>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x16xbf16>) outs(%e : tensor<?x16xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<?x16xf32>
  %a = tensor.extract_slice %wide[0, 0] [%rows, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
  %b = tensor.extract_slice %wide[0, 8] [%rows, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
  %h = tensor.empty(%rows) : tensor<?x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<?x8xf32>, tensor<?x8xf32>) outs(%h : tensor<?x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// A gather takes row numbers of 32 bits, and makes them wider.

// CHECK-LABEL: func.func @row_numbers
// CHECK-NOT: tensor<?xi64>
// CHECK: linalg.generic {{.*}} ins(%arg1 : tensor<?xi32>)
// CHECK: arith.index_cast %{{.+}} : i32 to index
// CHECK: tensor.extract %arg0
func.func @row_numbers(%x: tensor<9x16xf32>, %i: tensor<?xi32>, %count: index) -> tensor<?x16xf32> {
  %e = tensor.empty(%count) : tensor<?xi64>
  %wide = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%i : tensor<?xi32>) outs(%e : tensor<?xi64>) {
  ^bb0(%in: i32, %out: i64):
    %0 = arith.extsi %in : i32 to i64
    linalg.yield %0 : i64
  } -> tensor<?xi64>
  %h = tensor.empty(%count) : tensor<?x16xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, #id], iterator_types = ["parallel", "parallel"]} ins(%wide : tensor<?xi64>) outs(%h : tensor<?x16xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %0 = tensor.extract %x[%row, %column] : tensor<9x16xf32>
    linalg.yield %0 : f32
  } -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// A rounding of what an operator computes is the operator's, though its only reader could do it: what lies in memory
// between them is narrow.
// CHECK-LABEL: func.func @scaled
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2x8xbf16>)
// CHECK: arith.mulf
// CHECK: arith.truncf
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x8xbf16>, tensor<2x8xbf16>)
func.func @scaled(%x: tensor<2x8xf32>, %s: tensor<8xf32>, %r: tensor<2x8xbf16>) -> tensor<2x8xbf16> {
  %o = tensor.empty() : tensor<2x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<2x8xf32>, tensor<8xf32>) outs(%o : tensor<2x8xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %0 = arith.mulf %in, %in2 : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %e = tensor.empty() : tensor<2x8xbf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<2x8xf32>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%n, %r : tensor<2x8xbf16>, tensor<2x8xbf16>) outs(%e : tensor<2x8xbf16>) {
  ^bb0(%in: bf16, %in2: bf16, %out: bf16):
    %0 = arith.addf %in, %in2 : bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8xbf16>
  return %y : tensor<2x8xbf16>
}
