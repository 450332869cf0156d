// RUN: kitsune-opt %s --schedule-products --canonicalize | filecheck %s
// RUN: kitsune-opt %s --schedule-products --verify-dataflow --convert-kitsune-to-gpu

// A convolution of neighbouring windows takes a patch of an image, with the pixels around it, once for 64 channels. Each
// element of the filter multiplies other rows of that slot. Two copies have patches of 8 by 8 places side by side.

// CHECK-LABEL: func.func @channels_last
// CHECK: tensor.expand_shape {{.*}} : tensor<8x4096x64xbf16> into tensor<8x64x64x64xbf16>
// CHECK: "kitsune.tiles"({{.*}}) {{{.*}}tile = array<i64: 1, 8, 16, 64>}
// CHECK: "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "left"} : () -> !kitsune.ring<tensor<184x64xbf16>
// CHECK: "kitsune.copy"({{.*}}) {dims = array<i64: 1, 2, 3>, engine = "tma", {{.*}}patch = array<i64: 10, 18>}
// CHECK-COUNT-9: "kitsune.copy"({{.*}}tensor<64x576xbf16>
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", window = array<i64: 0, 18, 8>}
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", window = array<i64: 1, 18, 8>}
// CHECK: "kitsune.release"
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", window = array<i64: 2, 18, 8>}
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", window = array<i64: 18, 18, 8>}
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", window = array<i64: 38, 18, 8>}
// CHECK: "kitsune.read"({{.*}}) {{{.*}}dims = array<i64: 1, 2, 3>, {{.*}}patch = array<i64: 8, 8>}
// CHECK: "kitsune.write"({{.*}}) {dims = array<i64: 1, 2, 3>, engine = "tma", index = 0 : i64, {{.*}}patch = array<i64: 8, 8>}
func.func @channels_last(%x: tensor<8x64x64x64xbf16>, %w: tensor<64x576xbf16>, %r: tensor<8x4096x64xbf16>) -> tensor<8x4096x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4096x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4096x64xf32>) -> tensor<8x4096x64xf32>
  %m = "kitsune.windows"(%x) {filter = array<i64: 3, 3>, strides = array<i64: 1, 1>, low = array<i64: 1, 1>, dilations = array<i64: 1, 1>, places = array<i64: 64, 64>} : (tensor<8x64x64x64xbf16>) -> tensor<8x4096x576xbf16>
  %c = linalg.generic {indexing_maps = [affine_map<(b, p, o, k) -> (b, p, k)>, affine_map<(b, p, o, k) -> (o, k)>, affine_map<(b, p, o, k) -> (b, p, o)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%m, %w : tensor<8x4096x576xbf16>, tensor<64x576xbf16>) outs(%f : tensor<8x4096x64xf32>) {
  ^bb0(%p: bf16, %q: bf16, %s: f32):
    %0 = arith.extf %p : bf16 to f32
    %1 = arith.extf %q : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %s, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<8x4096x64xf32>
  %g = tensor.empty() : tensor<8x4096x64xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(b, p, o) -> (b, p, o)>, affine_map<(b, p, o) -> (b, p, o)>, affine_map<(b, p, o) -> (b, p, o)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%c, %r : tensor<8x4096x64xf32>, tensor<8x4096x64xbf16>) outs(%g : tensor<8x4096x64xbf16>) {
  ^bb0(%p: f32, %q: bf16, %o: bf16):
    %0 = arith.extf %q : bf16 to f32
    %1 = arith.addf %p, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<8x4096x64xbf16>
  return %y : tensor<8x4096x64xbf16>
}

// Where channels are the second dimension of the results, places are columns of tiles: 8 along lines, and as many lines as
// the columns want.

// CHECK-LABEL: func.func @channels_second
// CHECK: "kitsune.copy"({{.*}}) {dims = array<i64: 1, 2, 3>, engine = "tma", {{.*}}patch = array<i64: [[LINES:[0-9]+]], 12>}
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", right_window = array<i64: 0, 12, 0>}
// CHECK: "kitsune.product"({{.*}}) {engine = "wgmma", right_window = array<i64: 52, 12, 0>}
// CHECK: "kitsune.write"({{.*}}) {across, dims = array<i64: 1, 2, 3>, {{.*}}patch = array<i64: {{[0-9]+}}, 8>}
func.func @channels_second(%x: tensor<4x56x56x64xbf16>, %w: tensor<64x1600xbf16>) -> tensor<4x64x3136xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x64x3136xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x64x3136xf32>) -> tensor<4x64x3136xf32>
  %m = "kitsune.windows"(%x) {filter = array<i64: 5, 5>, strides = array<i64: 1, 1>, low = array<i64: 2, 2>, dilations = array<i64: 1, 1>, places = array<i64: 56, 56>} : (tensor<4x56x56x64xbf16>) -> tensor<4x3136x1600xbf16>
  %c = linalg.generic {indexing_maps = [affine_map<(b, o, p, k) -> (o, k)>, affine_map<(b, o, p, k) -> (b, p, k)>, affine_map<(b, o, p, k) -> (b, o, p)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %m : tensor<64x1600xbf16>, tensor<4x3136x1600xbf16>) outs(%f : tensor<4x64x3136xf32>) {
  ^bb0(%p: bf16, %q: bf16, %s: f32):
    %0 = arith.extf %p : bf16 to f32
    %1 = arith.extf %q : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %s, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x64x3136xf32>
  return %c : tensor<4x64x3136xf32>
}
