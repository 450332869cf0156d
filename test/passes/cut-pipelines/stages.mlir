// RUN: kitsune-opt %s --partition-dataflow=min-summed=0 --design-pipeline --cut-pipelines='target=sm_90a stages=true' | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow=min-summed=0 --design-pipeline --cut-pipelines=target=sm_90a | filecheck %s --check-prefix=WHOLE

// Bulk-synchronously: what is elementwise alone, then a product as a pipeline, and one that runs apart. The weight is
// turned, for it then lies as warpgroups stream it.

// CHECK-LABEL: func.func @gradients
// CHECK: %[[W:.+]] = linalg.transpose ins(%{{.+}} : tensor<256x256xbf16>) outs(%{{.+}} : tensor<256x256xbf16>) permutation = [1, 0]
// CHECK: %[[G:.+]] = linalg.generic {{.*}} ins(%{{.+}} : tensor<1000x256xbf16>) outs(%{{.+}} : tensor<1000x256xbf16>)
// CHECK: "kitsune.pipeline"
// CHECK: "kitsune.load"(%[[G]])
// CHECK: linalg.matmul indexing_maps = [#[[A:.+]], #[[B:.+]], #[[C:.+]]] ins(%{{.+}}, %[[W]] : tensor<?x256xbf16>, tensor<256x256xbf16>)
// CHECK: sym_name = "pipeline0_part1"
// CHECK-NOT: kitsune.pipeline
// CHECK: linalg.matmul {{.*}}ins(%{{.+}}, %[[G]] : tensor<1000x256xbf16>, tensor<1000x256xbf16>)

// It chains, so it stays whole, and reads the weight as it lies.
// WHOLE-LABEL: func.func @gradients
// WHOLE-NOT: linalg.transpose
// WHOLE: sym_name = "pipeline0"
// WHOLE-NOT: kitsune.pipeline
func.func @gradients(%x: tensor<1000x256xbf16>, %dy: tensor<1000x256xbf16>, %w: tensor<256x256xbf16>)
    -> (tensor<1000x256xbf16>, tensor<256x256xf32>) {
  %zero = arith.constant 0.0 : f32
  %eg = tensor.empty() : tensor<1000x256xbf16>
  %g = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%dy : tensor<1000x256xbf16>) outs(%eg : tensor<1000x256xbf16>) {
  ^bb0(%v: bf16, %o: bf16):
    %f = arith.extf %v : bf16 to f32
    %m = arith.maximumf %f, %zero : f32
    %t = arith.truncf %m : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<1000x256xbf16>
  %ex = tensor.empty() : tensor<1000x256xf32>
  %fx = linalg.fill ins(%zero : f32) outs(%ex : tensor<1000x256xf32>) -> tensor<1000x256xf32>
  %dx = linalg.matmul ins(%g, %w : tensor<1000x256xbf16>, tensor<256x256xbf16>) outs(%fx : tensor<1000x256xf32>) -> tensor<1000x256xf32>
  %eb = tensor.empty() : tensor<1000x256xbf16>
  %db = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%dx : tensor<1000x256xf32>) outs(%eb : tensor<1000x256xbf16>) {
  ^bb0(%v: f32, %o: bf16):
    %t = arith.truncf %v : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<1000x256xbf16>
  %ew = tensor.empty() : tensor<256x256xf32>
  %fw = linalg.fill ins(%zero : f32) outs(%ew : tensor<256x256xf32>) -> tensor<256x256xf32>
  %dw = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%x, %g : tensor<1000x256xbf16>, tensor<1000x256xbf16>) outs(%fw : tensor<256x256xf32>) -> tensor<256x256xf32>
  return %db, %dw : tensor<1000x256xbf16>, tensor<256x256xf32>
}
