func.func @main(%x: tensor<4096x64xf32>, %w0: tensor<64x256xf32>, %w1: tensor<256x8xf32>) -> tensor<4096x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4096x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %h = linalg.matmul ins(%x, %w0 : tensor<4096x64xf32>, tensor<64x256xf32>) outs(%f0 : tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<4096x256xf32>) outs(%e0 : tensor<4096x256xf32>) {
  ^bb0(%v: f32, %o: f32):
    %r = arith.maximumf %v, %zero : f32
    linalg.yield %r : f32
  } -> tensor<4096x256xf32>
  %e1 = tensor.empty() : tensor<4096x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4096x8xf32>) -> tensor<4096x8xf32>
  %y = linalg.matmul ins(%a, %w1 : tensor<4096x256xf32>, tensor<256x8xf32>) outs(%f1 : tensor<4096x8xf32>) -> tensor<4096x8xf32>
  return %y : tensor<4096x8xf32>
}
