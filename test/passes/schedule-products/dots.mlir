// RUN: kitsune-opt %s --schedule-products | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow | filecheck %s --check-prefix=PROVEN

// Rows of a table by number behind given ones: a warp gathers its own, and nothing that was gathered is in memory. Of
// the dots it stores those that are asked for.

// PROVEN-LABEL: func.func @gathered
// CHECK-LABEL: func.func @gathered
// CHECK-NOT:     linalg.batch_matmul
// CHECK-NOT:     tensor<4096x20x64xbf16>
// CHECK:         "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: 1>
// CHECK:         "kitsune.agent"
// CHECK:         %[[X:.*]] = "kitsune.read"(%{{.*}}, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 1>, {{.*}} -> tensor<1x64xbf16>
// CHECK:         %[[I:.*]] = "kitsune.read"(%{{.*}}, %[[AT:.*]], %{{.*}}) {dims = array<i64: 1>, {{.*}} -> tensor<20xi32>
// CHECK:         %[[G:.*]] = linalg.generic {{.*}} ins(%[[I]] : tensor<20xi32>)
// CHECK:           tensor.extract %{{.*}} : tensor<1000x64xbf16>
// CHECK:         %[[Z:.*]] = tensor.concat dim(0) %[[X]], %[[G]]
// CHECK:         %[[C:.*]] = "kitsune.dots"(%[[Z]], %[[Z]])
// CHECK:         %[[S:.*]] = "kitsune.stash"(%[[C]])
// CHECK:         %[[T:.*]] = linalg.generic
// CHECK:           %[[ROW:.*]] = arith.divui
// CHECK:           %[[COLUMN:.*]] = arith.remui
// CHECK:           tensor.extract %[[S]][%[[ROW]], %[[COLUMN]]]
// CHECK:         "kitsune.write"(%[[T]], %[[AT]], %{{.*}}) {dims = array<i64: 1>, index = 0 : i64
// CHECK:       {copies = 1 : i64, registers = {{[0-9]+}} : i64, sym_name = "dots", warps = 1 : i64}
func.func @gathered(%x: tensor<4096x64xbf16>, %i: tensor<4096x20xi32>, %table: tensor<1000x64xbf16>, %some: tensor<99xi64>) -> tensor<4096x99xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x20x64xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<4096x20xi32>) outs(%e : tensor<4096x20x64xbf16>) {
  ^bb0(%n: i32, %o: bf16):
    %r = arith.index_cast %n : i32 to index
    %k = linalg.index 2 : index
    %v = tensor.extract %table[%r, %k] : tensor<1000x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<4096x20x64xbf16>
  %y = tensor.expand_shape %x [[0], [1, 2]] output_shape [4096, 1, 64] : tensor<4096x64xbf16> into tensor<4096x1x64xbf16>
  %z = tensor.concat dim(1) %y, %g : (tensor<4096x1x64xbf16>, tensor<4096x20x64xbf16>) -> tensor<4096x21x64xbf16>
  %s = tensor.empty() : tensor<4096x21x21xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<4096x21x21xf32>) -> tensor<4096x21x21xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(a, b, c, d) -> (a, b, d)>, affine_map<(a, b, c, d) -> (a, c, d)>, affine_map<(a, b, c, d) -> (a, b, c)>]
      ins(%z, %z : tensor<4096x21x64xbf16>, tensor<4096x21x64xbf16>) outs(%f : tensor<4096x21x21xf32>) -> tensor<4096x21x21xf32>
  %flat = tensor.collapse_shape %c [[0], [1, 2]] : tensor<4096x21x21xf32> into tensor<4096x441xf32>
  %q = tensor.empty() : tensor<4096x99xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%some : tensor<99xi64>) outs(%q : tensor<4096x99xf32>) {
  ^bb0(%n: i64, %o: f32):
    %p = arith.index_cast %n : i64 to index
    %a = linalg.index 0 : index
    %v = tensor.extract %flat[%a, %p] : tensor<4096x441xf32>
    linalg.yield %v : f32
  } -> tensor<4096x99xf32>
  return %t : tensor<4096x99xf32>
}

// Where all operands and all results are in memory tiles of many are taken; so they are where what was gathered is used
// elsewhere too.

// CHECK-LABEL: func.func @given
// CHECK-NOT:     "kitsune.dots"
// CHECK-LABEL: func.func @used_elsewhere
// CHECK-NOT:     "kitsune.dots"
func.func @given(%z: tensor<4096x21x64xbf16>) -> tensor<4096x21x21xf32> {
  %zero = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<4096x21x21xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<4096x21x21xf32>) -> tensor<4096x21x21xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(a, b, c, d) -> (a, b, d)>, affine_map<(a, b, c, d) -> (a, c, d)>, affine_map<(a, b, c, d) -> (a, b, c)>]
      ins(%z, %z : tensor<4096x21x64xbf16>, tensor<4096x21x64xbf16>) outs(%f : tensor<4096x21x21xf32>) -> tensor<4096x21x21xf32>
  return %c : tensor<4096x21x21xf32>
}

func.func @used_elsewhere(%i: tensor<4096x20xi32>, %table: tensor<1000x64xbf16>) -> (tensor<4096x20x20xf32>, tensor<4096x20x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x20x64xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<4096x20xi32>) outs(%e : tensor<4096x20x64xbf16>) {
  ^bb0(%n: i32, %o: bf16):
    %r = arith.index_cast %n : i32 to index
    %k = linalg.index 2 : index
    %v = tensor.extract %table[%r, %k] : tensor<1000x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<4096x20x64xbf16>
  %s = tensor.empty() : tensor<4096x20x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%s : tensor<4096x20x20xf32>) -> tensor<4096x20x20xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(a, b, c, d) -> (a, b, d)>, affine_map<(a, b, c, d) -> (a, c, d)>, affine_map<(a, b, c, d) -> (a, b, c)>]
      ins(%g, %g : tensor<4096x20x64xbf16>, tensor<4096x20x64xbf16>) outs(%f : tensor<4096x20x20xf32>) -> tensor<4096x20x20xf32>
  return %c, %g : tensor<4096x20x20xf32>, tensor<4096x20x64xbf16>
}
