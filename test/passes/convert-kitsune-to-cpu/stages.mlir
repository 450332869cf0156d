// RUN: kitsune-opt --convert-kitsune-to-cpu %s | filecheck %s

// Stages become functions on row tiles, weights are packed in front of the call, and the plan says who is given what.

#map = affine_map<(m, n, k) -> (m, k)>
#map1 = affine_map<(m, n, k) -> (n, k)>
#map2 = affine_map<(m, n, k) -> (m, n)>

// CHECK: func.func private @mlp.run(tensor<8x16x32xf32>, tensor<1000x16xf32>, tensor<1x256x32xf32>) -> tensor<1000x8xf32>
// CHECK-SAME: kitsune.plan =
// CHECK-SAME: tile_rows\22: 64
// CHECK-SAME: rows_of\22: 1
// CHECK-SAME: \22name\22: \22hidden\22, \22tile_bytes\22: 65536, \22depth\22: 3
// CHECK-SAME: \22symbol\22: \22mlp.up\22, \22role\22: 0, \22replicas\22: 2
// CHECK-SAME: [\22resident\22, 0, 0], [\22load\22, 1, 64], [\22put\22, 0, 0]
// CHECK-SAME: \22symbol\22: \22mlp.down\22, \22role\22: 1, \22replicas\22: 1
// CHECK-SAME: [\22resident\22, 2, 0], [\22get\22, 0, 0], [\22store\22, 0, 32]

// CHECK: func.func private @[[DOWN:packed_product.*]](tensor<64x256xf32>
// CHECK-SAME: kitsune.product = {{\[}}["m", "k"], ["panels"]]
// CHECK: func.func private @[[PACK1:.+]](tensor<8x256xf32>
// CHECK-SAME: kitsune.pack = ["n", "k"]
// CHECK: func.func private @mlp.down(%[[W1:.+]]: tensor<1x256x32xf32>, %[[H:.+]]: tensor<64x256xf32>) -> tensor<64x8xf32> attributes {kitsune.stage} {
// CHECK-NEXT: %[[Y:.+]] = call @[[DOWN]](%[[H]], %[[W1]])
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @[[PACK0:.+]](tensor<256x16xf32>
// CHECK: func.func private @mlp.up(%{{.+}}: tensor<8x16x32xf32>, %{{.+}}: tensor<64x16xf32>) -> tensor<64x256xf32>

// CHECK: func.func @main(%[[X:.+]]: tensor<1000x16xf32>, %[[A0:.+]]: tensor<256x16xf32>, %[[A1:.+]]: tensor<8x256xf32>)
// CHECK: %[[P0:.+]] = call @[[PACK0]](%[[A0]])
// CHECK: %[[P1:.+]] = call @[[PACK1]](%[[A1]])
// CHECK: call @mlp.run(%[[P0]], %[[X]], %[[P1]])
// CHECK-NOT: kitsune.pipeline
func.func @main(%x: tensor<1000x16xf32>, %w0: tensor<256x16xf32>, %w1: tensor<8x256xf32>) -> tensor<1000x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "hidden", transport = "l2"} : () -> !kitsune.ring<tensor<64x256xf32>, 3 : i64>
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<1000x16xf32>) -> tensor<64x16xf32>
      %e = tensor.empty() : tensor<64x256xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x256xf32>) -> tensor<64x256xf32>
      %h = linalg.matmul indexing_maps = [#map, #map1, #map2] ins(%tile, %w0 : tensor<64x16xf32>, tensor<256x16xf32>) outs(%f : tensor<64x256xf32>) -> tensor<64x256xf32>
      "kitsune.put"(%q, %h) : (!kitsune.ring<tensor<64x256xf32>, 3 : i64>, tensor<64x256xf32>) -> ()
    }) {kind = "tensor", sym_name = "up", role = 0 : i64, replicas = 2 : i64} : () -> ()
    "kitsune.stage"() ({
      %t = "kitsune.get"(%q) : (!kitsune.ring<tensor<64x256xf32>, 3 : i64>) -> tensor<64x256xf32>
      %e = tensor.empty() : tensor<64x8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
      %y = linalg.matmul indexing_maps = [#map, #map1, #map2] ins(%t, %w1 : tensor<64x256xf32>, tensor<8x256xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
      "kitsune.store"(%y) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {kind = "tensor", sym_name = "down", role = 1 : i64, replicas = 1 : i64} : () -> ()
  }) {sym_name = "mlp", tile_rows = 64 : i64, target = "cpu"} : () -> !kitsune.outputs
  %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x8xf32>
  return %out : tensor<1000x8xf32>
}
