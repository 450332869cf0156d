// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow

// Each row of a product less its largest element: on the product's tiles, which have all 128 columns, and one write.

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>

// CHECK-LABEL: func.func @less_the_largest
// CHECK-NOT:     linalg.matmul
// CHECK:         "kitsune.kernel"() ({
// CHECK:           "kitsune.tiles"(%{{.*}}, %{{.*}}) {{.*}}tile = array<i64: {{64|128}}, 128>}
// CHECK:           "kitsune.agent"
// CHECK:           "kitsune.agent"
// CHECK:             %[[C:.*]] = "kitsune.settle"
// CHECK:             %[[M:.*]] = linalg.generic {{.*}}["parallel", "reduction"]} ins(%[[C]] : tensor<64x128xf32>)
// CHECK:             %[[Y:.*]] = linalg.generic {{.*}} ins(%[[C]], %[[M]] : tensor<64x128xf32>, tensor<64xf32>)
// CHECK:             "kitsune.write"(%[[Y]], %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, index = 0 : i64,
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @less_the_largest(%a: tensor<8192x64xbf16>, %b: tensor<64x128xbf16>) -> tensor<8192x128xbf16> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<8192x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8192x128xf32>) -> tensor<8192x128xf32>
  %c = linalg.matmul ins(%a, %b : tensor<8192x64xbf16>, tensor<64x128xbf16>) outs(%f : tensor<8192x128xf32>)
      -> tensor<8192x128xf32>
  %s = tensor.empty() : tensor<8192xf32>
  %g = linalg.fill ins(%least : f32) outs(%s : tensor<8192xf32>) -> tensor<8192xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%c : tensor<8192x128xf32>) outs(%g : tensor<8192xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.maximumf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8192xf32>
  %o = tensor.empty() : tensor<8192x128xbf16>
  %d = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%c, %m : tensor<8192x128xf32>, tensor<8192xf32>) outs(%o : tensor<8192x128xbf16>) {
  ^bb0(%x: f32, %y: f32, %u: bf16):
    %0 = arith.subf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<8192x128xbf16>
  return %d : tensor<8192x128xbf16>
}
