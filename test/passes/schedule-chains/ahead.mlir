// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=128" --schedule-chains --split-input-file | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=128" --schedule-chains --verify-dataflow --split-input-file | filecheck %s

// What the stage before the first product reads goes round the loop over tiles: the first tile's is loaded before all
// else, the next tile's once the first product is issued, for it has been used; behind the last tile it is the last
// one's again. What an epilogue adds is loaded once its product is issued.

// CHECK-LABEL: func.func @numbers_and_residual
// CHECK:         %[[TILES:.*]]:3 = "kitsune.tiles"
// CHECK:         sym_name = "feed"
// CHECK:         ^bb0(%[[COPY:.*]]: index):
// CHECK:           %[[LAST:.*]] = arith.subi %[[TILES]]#1, %c1
// CHECK:           %[[FIRST:.*]] = arith.minui %[[TILES]]#0, %[[LAST]]
// CHECK:           %[[ROW:.*]] = arith.muli %[[FIRST]], %c128
// CHECK:           %[[OWN:.*]] = arith.muli %[[COPY]], %c64
// CHECK:           %[[AT:.*]] = arith.addi %[[ROW]], %[[OWN]]
// CHECK:           %[[X0:.*]] = "kitsune.read"(%arg0, %[[AT]], %c0) {ahead, dims = array<i64: 0, 1>, {{.*}}together} : (tensor<40000x96xf32>, index, index) -> tensor<64x96xf32>
// CHECK:           scf.for %[[TILE:.*]] = %[[TILES]]#0 to %[[TILES]]#1 step %[[TILES]]#2 iter_args(%[[X:.*]] = %[[X0]])
// CHECK:             %[[H:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK:             "kitsune.part"(%[[H]]) {first = 0 : i64}
// CHECK:             "kitsune.part"(%[[H]]) {first = 64 : i64}
// CHECK:             %[[P0:.*]]:2 = "kitsune.product"
// CHECK:             %[[P:.*]]:2 = "kitsune.product"(%[[P0]]#0,
// CHECK:             %[[SOON:.*]] = arith.addi %[[TILE]], %[[TILES]]#2
// CHECK:             %[[END:.*]] = arith.subi %[[TILES]]#1, %c1
// CHECK:             %[[NEXT:.*]] = arith.minui %[[SOON]], %[[END]]
// CHECK:             %[[BELOW:.*]] = arith.muli %[[NEXT]], %c128
// CHECK:             %[[THERE:.*]] = arith.addi %[[BELOW]], %
// CHECK:             %[[X1:.*]] = "kitsune.read"(%arg0, %[[THERE]], %c0{{.*}}) {ahead, {{.*}}together}
// CHECK:             "kitsune.settle"(%[[P]]#0)
// CHECK:             %[[Q0:.*]]:2 = "kitsune.product"
// CHECK:             %[[Q:.*]]:2 = "kitsune.product"(%[[Q0]]#0,
// CHECK:             %[[R:.*]] = "kitsune.read"(%arg1, %{{.*}}, %c0{{.*}}) {ahead, {{.*}}together} : (tensor<40000x64xbf16>, index, index) -> tensor<64x64xbf16>
// CHECK:             %[[S:.*]] = "kitsune.settle"(%[[Q]]#0)
// CHECK:             linalg.generic {{.*}} ins(%[[S]], %[[R]] :
// CHECK:             "kitsune.write"
// CHECK-NEXT:        scf.yield %[[X1]] : tensor<64x96xf32>
func.func @numbers_and_residual(%x: tensor<40000x96xf32>, %r: tensor<40000x64xbf16>, %w0: tensor<128x96xbf16>, %w1: tensor<64x128xbf16>) -> tensor<40000x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %i0 = tensor.empty() : tensor<40000x96xbf16>
  %h0 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<40000x96xf32>) outs(%i0 : tensor<40000x96xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<40000x96xbf16>
  %e0 = tensor.empty() : tensor<40000x128xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<40000x128xf32>) -> tensor<40000x128xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<40000x96xbf16>, tensor<128x96xbf16>)
    outs(%f0 : tensor<40000x128xf32>) -> tensor<40000x128xf32>
  %o0 = tensor.empty() : tensor<40000x128xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0 : tensor<40000x128xf32>) outs(%o0 : tensor<40000x128xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<40000x128xbf16>
  %e1 = tensor.empty() : tensor<40000x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40000x64xf32>) -> tensor<40000x64xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<40000x128xbf16>, tensor<64x128xbf16>)
    outs(%f1 : tensor<40000x64xf32>) -> tensor<40000x64xf32>
  %o1 = tensor.empty() : tensor<40000x64xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %r : tensor<40000x64xf32>, tensor<40000x64xbf16>) outs(%o1 : tensor<40000x64xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<40000x64xbf16>
  return %h2 : tensor<40000x64xbf16>
}

// -----

// Of 16 bits beside f32. A CTA has one tile: there is no next one.

// CHECK-LABEL: func.func @one_tile
// CHECK:         sym_name = "feed"
// CHECK-NOT:     ahead
// CHECK:           scf.for {{.*}} step %{{.*}}#2 {
// CHECK:             %[[X:.*]] = "kitsune.read"(%arg0
// CHECK:             linalg.generic {{.*}} ins(%[[X]] :
// CHECK:             "kitsune.settle"
// CHECK:             "kitsune.product"
// CHECK:             "kitsune.read"(%arg1, %{{.*}}, %c0{{.*}}) {ahead, {{.*}}together} : (tensor<300x64xf32>, index, index) -> tensor<64x64xf32>
// CHECK:             "kitsune.settle"
func.func @one_tile(%x: tensor<300x64xbf16>, %r: tensor<300x64xf32>, %w0: tensor<128x64xbf16>, %w1: tensor<64x128xbf16>) -> tensor<300x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %i0 = tensor.empty() : tensor<300x64xbf16>
  %h0 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<300x64xbf16>) outs(%i0 : tensor<300x64xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %0 = arith.addf %a, %a : bf16
    linalg.yield %0 : bf16
  } -> tensor<300x64xbf16>
  %e0 = tensor.empty() : tensor<300x128xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x128xf32>) -> tensor<300x128xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x64xbf16>, tensor<128x64xbf16>)
    outs(%f0 : tensor<300x128xf32>) -> tensor<300x128xf32>
  %o0 = tensor.empty() : tensor<300x128xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0 : tensor<300x128xf32>) outs(%o0 : tensor<300x128xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<300x128xbf16>
  %e1 = tensor.empty() : tensor<300x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x128xbf16>, tensor<64x128xbf16>)
    outs(%f1 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %o1 = tensor.empty() : tensor<300x64xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %r : tensor<300x64xf32>, tensor<300x64xf32>) outs(%o1 : tensor<300x64xbf16>) {
  ^bb0(%a: f32, %c: f32, %o: bf16):
    %0 = arith.addf %c, %c : f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<300x64xbf16>
  return %h2 : tensor<300x64xbf16>
}

// -----

// Rows of 72 and 40 columns, no multiples of 32, are read where they are used.

// CHECK-LABEL: func.func @narrow
// CHECK-NOT:     ahead
// CHECK:         return
func.func @narrow(%x: tensor<40000x72xbf16>, %r: tensor<40000x40xbf16>, %w0: tensor<128x72xbf16>, %w1: tensor<40x128xbf16>) -> tensor<40000x40xbf16> {
  %zero = arith.constant 0.0 : f32
  %i0 = tensor.empty() : tensor<40000x72xbf16>
  %h0 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<40000x72xbf16>) outs(%i0 : tensor<40000x72xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %0 = arith.addf %a, %a : bf16
    linalg.yield %0 : bf16
  } -> tensor<40000x72xbf16>
  %e0 = tensor.empty() : tensor<40000x128xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<40000x128xf32>) -> tensor<40000x128xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<40000x72xbf16>, tensor<128x72xbf16>)
    outs(%f0 : tensor<40000x128xf32>) -> tensor<40000x128xf32>
  %o0 = tensor.empty() : tensor<40000x128xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0 : tensor<40000x128xf32>) outs(%o0 : tensor<40000x128xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.maximumf %a, %zero : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<40000x128xbf16>
  %e1 = tensor.empty() : tensor<40000x40xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<40000x40xf32>) -> tensor<40000x40xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<40000x128xbf16>, tensor<40x128xbf16>)
    outs(%f1 : tensor<40000x40xf32>) -> tensor<40000x40xf32>
  %o1 = tensor.empty() : tensor<40000x40xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %r : tensor<40000x40xf32>, tensor<40000x40xbf16>) outs(%o1 : tensor<40000x40xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<40000x40xbf16>
  return %h2 : tensor<40000x40xbf16>
}
