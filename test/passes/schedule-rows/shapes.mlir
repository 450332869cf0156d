// RUN: kitsune-opt %s --schedule-rows | filecheck %s

// An activation on images, behind a norm of groups of channels: one kernel, which reads the weights by groups too.

// CHECK-LABEL: func.func @images
// CHECK:         %[[K:.*]] = "kitsune.kernel"
// CHECK:           "kitsune.read"({{.*}} : (tensor<2x4x256xf32>
// CHECK:           "kitsune.read"({{.*}} : (tensor<4x256xf32>
// CHECK:           arith.subf
// CHECK:           arith.mulf
// CHECK:         %[[R:.*]] = "kitsune.result"(%[[K]])
// CHECK:         %[[Y:.*]] = tensor.collapse_shape %[[R]] {{.*}} into tensor<2x1024xf32>
// CHECK-NEXT:    return %[[Y]]

#whole = affine_map<(n, g, c) -> (n, g, c)>
#row = affine_map<(n, g, c) -> (n, g)>
#image = affine_map<(n, c) -> (n, c)>
#first = affine_map<(i, c) -> (i)>
#last = affine_map<(i, c) -> (c)>
#channels = affine_map<(n, c) -> (c)>

func.func @images(%x: tensor<2x4x256xf32>, %w: tensor<1024xf32>) -> tensor<2x1024xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x4x256xf32>) outs(%f : tensor<2x4xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  %ee = tensor.empty() : tensor<2x4x256xf32>
  %n = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<2x4x256xf32>, tensor<2x4xf32>) outs(%ee : tensor<2x4x256xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %0 = arith.subf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x256xf32>
  %v = tensor.collapse_shape %n [[0], [1, 2]] : tensor<2x4x256xf32> into tensor<2x1024xf32>
  %ei = tensor.empty() : tensor<2x1024xf32>
  %y = linalg.generic {indexing_maps = [#image, #channels, #image], iterator_types = ["parallel", "parallel"]}
      ins(%v, %w : tensor<2x1024xf32>, tensor<1024xf32>) outs(%ei : tensor<2x1024xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x1024xf32>
  return %y : tensor<2x1024xf32>
}

// An activation on rows of images, as a pipeline has them, in front of means of their channels.

// CHECK-LABEL: func.func @means
// CHECK:         tensor.expand_shape %{{.*}} into tensor<2x4x256xf32>
// CHECK:         "kitsune.kernel"
// CHECK:           math.exp
// CHECK:           arith.addf
// CHECK-NOT:     linalg.generic {{.*}} tensor<2x1024xf32>

func.func @means(%x: tensor<2x1024xf32>) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %ei = tensor.empty() : tensor<2x1024xf32>
  %y = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x1024xf32>) outs(%ei : tensor<2x1024xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x1024xf32>
  %v = tensor.expand_shape %y [[0], [1, 2]] output_shape [2, 4, 256] : tensor<2x1024xf32> into tensor<2x4x256xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%v : tensor<2x4x256xf32>) outs(%f : tensor<2x4xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  return %sum : tensor<2x4xf32>
}

// A layer of one output in front of a softmax over several of its rows: its bias, of one element, is read as it is.

// CHECK-LABEL: func.func @one_output
// CHECK:         "kitsune.kernel"
// CHECK:           "kitsune.read"(%{{.*}}, %{{.*}}) {dims = array<i64>, {{.*}} : (tensor<1xf32>, index) -> tensor<f32>
// CHECK-NOT:     linalg.generic {{.*}} tensor<512x1xf32>

func.func @one_output(%x: tensor<512x1xf32>, %bias: tensor<1xf32>) -> tensor<2xf32> {
  %least = arith.constant 0xFF800000 : f32
  %ex = tensor.empty() : tensor<512x1xf32>
  %y = linalg.generic {indexing_maps = [#last, #image, #image], iterator_types = ["parallel", "parallel"]}
      ins(%bias, %x : tensor<1xf32>, tensor<512x1xf32>) outs(%ex : tensor<512x1xf32>) {
  ^bb0(%b: f32, %a: f32, %o: f32):
    %0 = arith.addf %b, %a : f32
    linalg.yield %0 : f32
  } -> tensor<512x1xf32>
  %c = tensor.collapse_shape %y [[0, 1]] : tensor<512x1xf32> into tensor<512xf32>
  %v = tensor.expand_shape %c [[0, 1]] output_shape [2, 256] : tensor<512xf32> into tensor<2x256xf32>
  %e = tensor.empty() : tensor<2xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %m = linalg.generic {indexing_maps = [#image, #first], iterator_types = ["parallel", "reduction"]}
      ins(%v : tensor<2x256xf32>) outs(%f : tensor<2xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.maximumf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  return %m : tensor<2xf32>
}

// What is elementwise behind a norm whose groups are too large for rows has the dimensions in which its channels have
// weights: one kernel does both.

// CHECK-LABEL: func.func @behind_weights
// CHECK-NOT:     linalg.generic {{.*}} tensor<128x65536xbf16>
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<32x4x65536xbf16>)
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<32x4x65536xbf16>)
// CHECK:           math.tanh
// CHECK:         tensor.collapse_shape

func.func @behind_weights(%x: tensor<32x4x65536xbf16>, %w: tensor<32x4xbf16>) -> tensor<128x65536xbf16> {
  %e = tensor.empty() : tensor<32x4x65536xbf16>
  %y = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %w : tensor<32x4x65536xbf16>, tensor<32x4xbf16>) outs(%e : tensor<32x4x65536xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %0 = arith.mulf %a, %b : bf16
    linalg.yield %0 : bf16
  } -> tensor<32x4x65536xbf16>
  %v = tensor.collapse_shape %y [[0, 1], [2]] : tensor<32x4x65536xbf16> into tensor<128x65536xbf16>
  %o = tensor.empty() : tensor<128x65536xbf16>
  %z = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<128x65536xbf16>) outs(%o : tensor<128x65536xbf16>) {
  ^bb0(%a: bf16, %r: bf16):
    %0 = math.tanh %a : bf16
    linalg.yield %0 : bf16
  } -> tensor<128x65536xbf16>
  return %z : tensor<128x65536xbf16>
}
