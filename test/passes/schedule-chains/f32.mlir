// RUN: kitsune-opt %s --split-input-file --place-stages=target=sm_90a --schedule-chains | filecheck %s

// Weights of f32 products on warpgroups are laid out in front of the kernel's call: as two tf32 numbers, the upper bits
// of all columns and then what is left of them, or as one, rounded. (n, piece, group of 8 columns, half, column of it).
// Columns that meet a tile brought by a tensor copy keep their order; those that meet a tile in registers are put in the
// order 0 2 4 6 1 3 5 7.

// CHECK-DAG: #[[LIES:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2 * 8 + d3 * 4 + d4)>
// CHECK-DAG: #[[PAIRED:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2 * 8 + d4 * 2 + d3)>
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.+]]: tensor<512x64xf32>, %[[W0:.+]]: tensor<64x64xf32>, %[[W1:.+]]: tensor<8x64xf32>)
// CHECK: %[[G0:.+]] = linalg.generic {indexing_maps = [#[[LIES]], {{.+}} ins(%[[W0]] : {{.+}} outs(%{{.+}} : tensor<64x2x8x2x4xf32>)
// CHECK: ^bb0(%[[IN:.+]]: f32, %{{.+}}: f32):
// CHECK: %[[HIGH:.+]] = arith.bitcast %{{.+}} : i32 to f32
// CHECK: arith.subf %[[IN]], %[[HIGH]]
// CHECK: arith.addi
// CHECK: %[[LOW:.+]] = arith.bitcast %{{.+}} : i32 to f32
// CHECK: %[[PIECE:.+]] = linalg.index 1
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %[[PIECE]]
// CHECK: %[[OUT:.+]] = arith.select %[[FIRST]], %[[HIGH]], %[[LOW]]
// CHECK: linalg.yield %[[OUT]]
// CHECK: %[[P0:.+]] = tensor.collapse_shape %[[G0]] {{\[\[0\], \[1, 2, 3, 4\]\]}} : {{.+}} into tensor<64x128xf32>
// CHECK: %[[G1:.+]] = linalg.generic {indexing_maps = [#[[PAIRED]], {{.+}} ins(%[[W1]] : {{.+}} outs(%{{.+}} : tensor<8x2x8x2x4xf32>)
// CHECK: %[[P1:.+]] = tensor.collapse_shape %[[G1]]
// CHECK: "kitsune.copy"(%{{.*}}, %[[X]], {{.*}} : (!kitsune.slot<tensor<64x32xf32>>,
// CHECK: "kitsune.copy"(%{{.*}}, %[[P0]], {{.*}} : (!kitsune.slot<tensor<64x32xf32>>,
// CHECK: "kitsune.copy"(%{{.*}}, %[[P1]], {{.*}} : (!kitsune.slot<tensor<8x32xf32>>,
// CHECK: "kitsune.product"({{.*}} {engine = "wgmma", piece = "low"}
// CHECK: "kitsune.product"({{.*}} {engine = "wgmma", piece = "high"}
#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>
module {
  func.func @main(%x: tensor<512x64xf32>, %w0: tensor<64x64xf32>, %w1: tensor<8x64xf32>) -> tensor<512x8xf32> {
    %zero = arith.constant 0.0 : f32
    %p = "kitsune.pipeline"() ({
      "kitsune.stage"() ({
        %t = "kitsune.load"(%x) : (tensor<512x64xf32>) -> tensor<?x64xf32>
        %c0 = arith.constant 0 : index
        %rows = tensor.dim %t, %c0 : tensor<?x64xf32>
        %e = tensor.empty(%rows) : tensor<?x64xf32>
        %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
        %h = linalg.matmul indexing_maps = [#x, #w, #y] ins(%t, %w0 : tensor<?x64xf32>, tensor<64x64xf32>) outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
        %e1 = tensor.empty(%rows) : tensor<?x8xf32>
        %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x8xf32>) -> tensor<?x8xf32>
        %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%h, %w1 : tensor<?x64xf32>, tensor<8x64xf32>) outs(%f1 : tensor<?x8xf32>) -> tensor<?x8xf32>
        "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
      }) {kind = "tensor", sym_name = "s"} : () -> ()
    }) {sym_name = "mlp"} : () -> !kitsune.outputs
    %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<512x8xf32>
    return %r : tensor<512x8xf32>
  }
}

// -----

// Groups are filled up with zeros. A tile as narrow as 80 bytes a row is loaded into registers.

// CHECK-DAG: #[[ORDER:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2 * 8 + d4 * 2 + d3)>
// CHECK: module attributes {kitsune.matmul_precision = "high"}
// CHECK-LABEL: func.func @main
// CHECK: %[[ZEROS:.+]] = linalg.fill {{.+}} -> tensor<64x4xf32>
// CHECK: %[[WHOLE:.+]] = tensor.concat dim(1) %{{.+}}, %[[ZEROS]] : {{.+}} -> tensor<64x24xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ORDER]], {{.+}} ins(%[[WHOLE]] : {{.+}} outs(%{{.+}} : tensor<64x1x3x2x4xf32>)
// CHECK-NOT: arith.subf
// CHECK: arith.constant 4096 : i32
// CHECK: arith.addi
// CHECK: arith.constant -8192 : i32
// CHECK: arith.andi
// CHECK: linalg.generic {indexing_maps = [#[[ORDER]], {{.+}} outs(%{{.+}} : tensor<8x1x8x2x4xf32>)
// CHECK-NOT: arith.subf
// CHECK: "kitsune.copy"({{.*}} : (!kitsune.slot<tensor<64x32xf32>>, tensor<64x24xf32>,
// CHECK: "kitsune.product"({{.*}} {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, tensor<64x20xf32>,
#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>
module attributes {kitsune.matmul_precision = "high"} {
  func.func @main(%x: tensor<512x20xf32>, %w0: tensor<64x20xf32>, %w1: tensor<8x64xf32>) -> tensor<512x8xf32> {
    %zero = arith.constant 0.0 : f32
    %p = "kitsune.pipeline"() ({
      "kitsune.stage"() ({
        %t = "kitsune.load"(%x) : (tensor<512x20xf32>) -> tensor<?x20xf32>
        %c0 = arith.constant 0 : index
        %rows = tensor.dim %t, %c0 : tensor<?x20xf32>
        %e = tensor.empty(%rows) : tensor<?x64xf32>
        %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
        %h = linalg.matmul indexing_maps = [#x, #w, #y] ins(%t, %w0 : tensor<?x20xf32>, tensor<64x20xf32>) outs(%f : tensor<?x64xf32>) -> tensor<?x64xf32>
        %e1 = tensor.empty(%rows) : tensor<?x8xf32>
        %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x8xf32>) -> tensor<?x8xf32>
        %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%h, %w1 : tensor<?x64xf32>, tensor<8x64xf32>) outs(%f1 : tensor<?x8xf32>) -> tensor<?x8xf32>
        "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
      }) {kind = "tensor", sym_name = "s"} : () -> ()
    }) {sym_name = "mlp"} : () -> !kitsune.outputs
    %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<512x8xf32>
    return %r : tensor<512x8xf32>
  }
}
