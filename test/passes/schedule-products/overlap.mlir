// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// The first chunk stands before the loop over the others, at both ends; a chunk's slots are released behind the product
// of the next one.

// CHECK-LABEL: func.func @overlapped
// CHECK:         %[[LEFT:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "left"
// CHECK:         %[[RIGHT:.*]] = "kitsune.alloc_ring"() {{.*}}sym_name = "right"
// CHECK:         "kitsune.agent"
// CHECK:           scf.for
// CHECK:             %[[S0:.*]] = "kitsune.acquire"(%[[LEFT]])
// CHECK:             "kitsune.copy"(%[[S0]], %{{.*}}, %{{.*}}, %[[FIRST:[a-z0-9_]+]])
// CHECK:             %[[NEXT:.*]] = arith.addi
// CHECK:             scf.for %{{.*}} = %[[NEXT]] to %{{.*}} step %{{.*}} {
// CHECK:               "kitsune.acquire"(%[[LEFT]])
// CHECK:         "kitsune.agent"
// CHECK:           scf.for
// CHECK:             %[[Z:.*]] = "kitsune.sums"
// CHECK:             %[[A:.*]] = "kitsune.wait"(%[[LEFT]])
// CHECK:             %[[B:.*]] = "kitsune.wait"(%[[RIGHT]])
// CHECK:             %[[P:.*]]:2 = "kitsune.product"(%[[Z]], %[[A]], %[[B]])
// CHECK:             %[[R:.*]]:4 = scf.for {{.*}} iter_args(%[[U:.*]] = %[[P]]#0, %[[PA:.*]] = %[[A]], %[[PB:.*]] = %[[B]], %[[T:.*]] = %[[P]]#1)
// CHECK:               %[[V:[a-z0-9_]+]]:2 = "kitsune.product"(%[[U]], %[[NA:[a-z0-9_]+]], %[[NB:[a-z0-9_]+]])
// CHECK-NEXT:          "kitsune.release"(%[[PA]], %[[T]])
// CHECK-NEXT:          "kitsune.release"(%[[PB]], %[[T]])
// CHECK-NEXT:          scf.yield %[[V]]#0, %[[NA]], %[[NB]], %[[V]]#1
// CHECK:             "kitsune.settle"(%[[R]]#0)
// CHECK-NEXT:        "kitsune.release"(%[[R]]#1, %[[R]]#3)
// CHECK-NEXT:        "kitsune.release"(%[[R]]#2, %[[R]]#3)
func.func @overlapped(%a: tensor<512x256xbf16>, %b: tensor<256x128xbf16>) -> tensor<512x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512x128xf32>) -> tensor<512x128xf32>
  %c = linalg.matmul ins(%a, %b : tensor<512x256xbf16>, tensor<256x128xbf16>) outs(%f : tensor<512x128xf32>)
      -> tensor<512x128xf32>
  return %c : tensor<512x128xf32>
}

// Of a length that is open until the call there may be no chunk.

// CHECK-LABEL: func.func @open
// CHECK:         scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}) -> (!kitsune.acc<{{.*}}>) {
// CHECK:           %[[Q:[a-z0-9_]+]]:2 = "kitsune.product"(%{{.*}}, %[[C:[a-z0-9_]+]], %[[D:[a-z0-9_]+]])
// CHECK-NEXT:      "kitsune.release"(%[[C]], %[[Q]]#1)
// CHECK-NEXT:      "kitsune.release"(%[[D]], %[[Q]]#1)
// CHECK-NEXT:      scf.yield %[[Q]]#0
func.func @open(%a: tensor<?x128xbf16>, %b: tensor<?x128xbf16>) -> tensor<128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<?x128xbf16>, tensor<?x128xbf16>)
    outs(%f : tensor<128x128xf32>) -> tensor<128x128xf32>
  return %c : tensor<128x128xf32>
}
