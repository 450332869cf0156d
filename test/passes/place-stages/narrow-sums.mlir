// RUN: not kitsune-opt %s --place-stages='target=sm_90a shape=chained' 2>&1 | filecheck %s
// RUN: kitsune-opt %s --place-stages=target=sm_90a | filecheck %s --check-prefix=AUTO

// Products whose sums the model has in 16 bits are not chained: torch's are sums of f32 that are rounded behind.

// CHECK: pipeline 'mlp' cannot be chained: sums in bf16 of products of bf16 and bf16 are not scheduled; use shape=auto
// AUTO-NOT: kitsune.pipeline
// AUTO: linalg.matmul {{.*}}tensor<1000x64xbf16>
func.func @main(%x: tensor<1000x64xbf16>, %w0: tensor<256x64xbf16>, %w1: tensor<8x256xbf16>) -> tensor<1000x8xbf16> {
  %zero = arith.constant 0.0 : bf16
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x256xbf16>, 2 : i64>
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x64xbf16>) -> tensor<?x64xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %tile, %c0 : tensor<?x64xbf16>
      %e = tensor.empty(%rows) : tensor<?x256xbf16>
      %f = linalg.fill ins(%zero : bf16) outs(%e : tensor<?x256xbf16>) -> tensor<?x256xbf16>
      %h = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%tile, %w0 : tensor<?x64xbf16>, tensor<256x64xbf16>) outs(%f : tensor<?x256xbf16>) -> tensor<?x256xbf16>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<?x256xbf16>, 2 : i64>, tensor<?x256xbf16>) -> ()
    }) {kind = "tensor", sym_name = "up"} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x256xbf16>, 2 : i64>) -> tensor<?x256xbf16>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %t, %c0 : tensor<?x256xbf16>
      %e = tensor.empty(%rows) : tensor<?x8xbf16>
      %f = linalg.fill ins(%zero : bf16) outs(%e : tensor<?x8xbf16>) -> tensor<?x8xbf16>
      %y = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>] ins(%t, %w1 : tensor<?x256xbf16>, tensor<8x256xbf16>) outs(%f : tensor<?x8xbf16>) -> tensor<?x8xbf16>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xbf16>) -> ()
    }) {kind = "tensor", sym_name = "down"} : () -> ()
  }) {sym_name = "mlp"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x8xbf16>
  return %out : tensor<1000x8xbf16>
}
