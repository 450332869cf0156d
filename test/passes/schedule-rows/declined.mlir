// RUN: kitsune-opt %s --schedule-rows --split-input-file --verify-diagnostics

// No CTA has registers for such rows.

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>

func.func @wide(%x: tensor<400x100000xf32>) -> tensor<400xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<400xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<400xf32>) -> tensor<400xf32>
  // expected-remark @below {{is not computed row by row: 100000 columns do not fit the registers of a CTA}}
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<400x100000xf32>) outs(%f : tensor<400xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<400xf32>
  return %sum : tensor<400xf32>
}
