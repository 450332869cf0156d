// RUN: kitsune-opt %s --schedule-rows --split-input-file | filecheck %s

// The sum of squares of centred rows, and what is made of these behind another kernel: the group writes the sum alone.

// CHECK-LABEL: func.func @again
// CHECK-COUNT-1: "kitsune.write"
// CHECK-NOT:     "kitsune.write"
// CHECK:         linalg.generic
// CHECK:           arith.subf
// CHECK:         linalg.generic
// CHECK:           arith.mulf
#whole = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @again(%x: tensor<512x1024xbf16>, %mean: tensor<512xf32>, %scale: tensor<1024xf32>)
    -> (tensor<512xf32>, tensor<1024x512xbf16>) {
  %e = tensor.empty() : tensor<512x1024xf32>
  %c = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<512x1024xbf16>, tensor<512xf32>) outs(%e : tensor<512x1024xf32>) {
  ^bb0(%a: bf16, %m: f32, %o: f32):
    %w = arith.extf %a : bf16 to f32
    %d = arith.subf %w, %m : f32
    linalg.yield %d : f32
  } -> tensor<512x1024xf32>
  %zero = arith.constant 0.0 : f32
  %r = tensor.empty() : tensor<512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%r : tensor<512xf32>) -> tensor<512xf32>
  %s = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%c : tensor<512x1024xf32>) outs(%z : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    %t = arith.addf %q, %o : f32
    linalg.yield %t : f32
  } -> tensor<512xf32>
  %f = tensor.empty() : tensor<1024x512xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %scale : tensor<512x1024xf32>, tensor<1024xf32>) outs(%f : tensor<1024x512xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %p = arith.mulf %a, %b : f32
    %n = arith.truncf %p : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<1024x512xbf16>
  return %s, %y : tensor<512xf32>, tensor<1024x512xbf16>
}
