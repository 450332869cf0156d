// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=64" --schedule-chains --verify-dataflow | filecheck %s

// A product alone, of rows of a table, of more columns than a tile has: tiles are of rows and of columns, whose numbers
// all agents take apart alike.

// CHECK-LABEL: func.func @looked
// CHECK:         %[[LO:.*]]:3 = "kitsune.tiles"(%{{.*}}, %{{.*}}) {{.*}}tile = array<i64: 64, [[N:.*]]>}
// CHECK:         scf.for %[[T:.*]] = %[[LO]]#0
// CHECK:           %[[R:.*]] = arith.remui %[[T]]
// CHECK:           %[[C:.*]] = arith.muli %[[R]]
// CHECK:           arith.divui %[[T]]
// CHECK:           "kitsune.copy"(%{{.*}}, %arg1, %[[C]]
// CHECK:         sym_name = "feed"
// CHECK:         scf.for %[[U:.*]] = %[[LO]]#0
// CHECK:           %[[S:.*]] = arith.remui %[[U]]
// CHECK:           %[[D:.*]] = arith.muli %[[S]]
// CHECK:           %[[Q:.*]] = arith.divui %[[U]]
// CHECK:           tensor.extract %arg0
// CHECK:           "kitsune.product"
// CHECK:           "kitsune.write"(%{{.*}}, %{{.*}}, %[[D]])
// CHECK:         sym_name = "math"
func.func @looked(%x: tensor<500x64xbf16>, %w: tensor<640x64xbf16>, %index: tensor<300xi64>) -> tensor<300x640xbf16> {
  %zero = arith.constant 0.0 : f32
  %g = tensor.empty() : tensor<300x64xbf16>
  %s = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]} ins(%index : tensor<300xi64>) outs(%g : tensor<300x64xbf16>) {
  ^bb0(%i: i64, %o: bf16):
    %at = arith.index_cast %i : i64 to index
    %c = linalg.index 1 : index
    %y = tensor.extract %x[%at, %c] : tensor<500x64xbf16>
    linalg.yield %y : bf16
  } -> tensor<300x64xbf16>
  %e = tensor.empty() : tensor<300x640xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<300x640xf32>) -> tensor<300x640xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] ins(%s, %w : tensor<300x64xbf16>, tensor<640x64xbf16>) outs(%f : tensor<300x640xf32>) -> tensor<300x640xf32>
  %t = tensor.empty() : tensor<300x640xbf16>
  %out = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<300x640xf32>) outs(%t : tensor<300x640xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %y = arith.truncf %a : f32 to bf16
    linalg.yield %y : bf16
  } -> tensor<300x640xbf16>
  return %out : tensor<300x640xbf16>
}
