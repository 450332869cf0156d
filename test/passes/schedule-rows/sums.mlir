// RUN: kitsune-opt %s --schedule-rows --split-input-file | filecheck %s

// A channel's mean: rows of images first, then what is left.

#whole = affine_map<(n, c, h, w) -> (n, c, h, w)>
#channel = affine_map<(n, c, h, w) -> (c)>

// CHECK-LABEL: func.func @channels
// CHECK: "kitsune.kernel"
// CHECK: %[[SUMS:.+]] = "kitsune.result"({{.+}} -> tensor<1024xf32>
// CHECK: %[[ROWS:.+]] = tensor.expand_shape %[[SUMS]] {{.+}} into tensor<16x64xf32>
// CHECK: linalg.generic {{.+}}iterator_types = ["reduction", "parallel"]} ins(%[[ROWS]] : tensor<16x64xf32>) outs({{.+}} : tensor<64xf32>)
func.func @channels(%x: tensor<16x64x56x56xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<16x64x56x56xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %sum : tensor<64xf32>
}

// -----

// One long dimension: rows of 16384, then one row of what is left.

#one = affine_map<(d) -> (d)>
#none = affine_map<(d) -> ()>

// CHECK-LABEL: func.func @long
// CHECK: "kitsune.kernel"
// CHECK: %[[ROWS:.+]] = "kitsune.result"({{.+}} -> tensor<1024xf32>
// CHECK: "kitsune.kernel"
// CHECK: %[[SUM:.+]] = "kitsune.result"({{.+}} -> tensor<1xf32>
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @long(%x: tensor<16777216xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %sum = linalg.generic {indexing_maps = [#one, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<16777216xf32>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %sum : tensor<f32>
}

// -----

// A product of matrices over two dimensions stays one: what is between would be larger than both.

#a = affine_map<(m, n, k, l) -> (m, k, l)>
#b = affine_map<(m, n, k, l) -> (n, k, l)>
#c = affine_map<(m, n, k, l) -> (m, n)>

// CHECK-LABEL: func.func @product
// CHECK-NOT: "kitsune.kernel"
// CHECK: iterator_types = ["parallel", "parallel", "reduction", "reduction"]
func.func @product(%x: tensor<128x32x64xf64>, %y: tensor<96x32x64xf64>, %z: tensor<128x96xf64>) -> tensor<128x96xf64> {
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %y : tensor<128x32x64xf64>, tensor<96x32x64xf64>) outs(%z : tensor<128x96xf64>) {
  ^bb0(%a: f64, %b: f64, %s: f64):
    %0 = arith.mulf %a, %b : f64
    %1 = arith.addf %0, %s : f64
    linalg.yield %1 : f64
  } -> tensor<128x96xf64>
  return %p : tensor<128x96xf64>
}

// -----

// One sum over few columns stays as it is: a thread does a row of it as well as several do.

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>

// CHECK-LABEL: func.func @few_columns
// CHECK-NOT: kitsune.kernel
func.func @few_columns(%x: tensor<4096x8xf32>) -> tensor<4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4096x8xf32>) outs(%f : tensor<4096xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<4096xf32>
  return %sum : tensor<4096xf32>
}

// -----

// A norm over groups of channels reads its images once: parts of rows, their sums and the squares of what differs from
// their own means; then what is left of both.

#image = affine_map<(n, g, c, p) -> (n, g, c, p)>
#group = affine_map<(n, g, c, p) -> (n, g, 0, 0)>

// CHECK-LABEL: func.func @norm
// CHECK: "kitsune.kernel"
// CHECK-COUNT-1: "kitsune.read"(%{{.+}} -> tensor<1x4096xbf16>
// CHECK-NOT: "kitsune.read"
// CHECK: "kitsune.kernel"
// CHECK: [[OFF:%.+]] = arith.subf
// CHECK: [[WHOLE:%.+]] = arith.mulf %{{.+}}, [[OFF]] : f32
// CHECK: arith.mulf [[WHOLE]], [[OFF]] : f32
// CHECK-NOT: "kitsune.kernel"
func.func @norm(%x: tensor<4x8x80x4096xbf16>) -> (tensor<4x8x1x1xf32>, tensor<4x8x1x1xf32>) {
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 3.0517578125e-6 : f32
  %e = tensor.empty() : tensor<4x8x1x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8x1x1xf32>) -> tensor<4x8x1x1xf32>
  %sum = linalg.generic {indexing_maps = [#image, #group], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<4x8x80x4096xbf16>) outs(%f : tensor<4x8x1x1xf32>) {
  ^bb0(%a: bf16, %s: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x1x1xf32>
  %mean = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sum : tensor<4x8x1x1xf32>) outs(%e : tensor<4x8x1x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %part : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x1x1xf32>
  %whole = tensor.empty() : tensor<4x8x80x4096xf32>
  %centred = linalg.generic {indexing_maps = [#image, #group, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %mean : tensor<4x8x80x4096xbf16>, tensor<4x8x1x1xf32>) outs(%whole : tensor<4x8x80x4096xf32>) {
  ^bb0(%a: bf16, %m: f32, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %m : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x80x4096xf32>
  %squared = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%centred : tensor<4x8x80x4096xf32>) outs(%whole : tensor<4x8x80x4096xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x80x4096xf32>
  %squares = linalg.generic {indexing_maps = [#image, #group], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%squared : tensor<4x8x80x4096xf32>) outs(%f : tensor<4x8x1x1xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x1x1xf32>
  return %mean, %squares : tensor<4x8x1x1xf32>, tensor<4x8x1x1xf32>
}

// -----

// Halves of what differs from a mean are no squares.

#image = affine_map<(n, g, c, p) -> (n, g, c, p)>
#group = affine_map<(n, g, c, p) -> (n, g, 0, 0)>

// CHECK-LABEL: func.func @halves
// CHECK-COUNT-2: "kitsune.read"(%{{.+}} -> tensor<1x4096xf32>
func.func @halves(%x: tensor<4x8x80x4096xf32>) -> tensor<4x8x1x1xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 5.0e-1 : f32
  %part = arith.constant 3.0517578125e-6 : f32
  %e = tensor.empty() : tensor<4x8x1x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8x1x1xf32>) -> tensor<4x8x1x1xf32>
  %sum = linalg.generic {indexing_maps = [#image, #group], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<4x8x80x4096xf32>) outs(%f : tensor<4x8x1x1xf32>) {
  ^bb0(%a: f32, %s: f32):
    %1 = arith.addf %a, %s : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x1x1xf32>
  %mean = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sum : tensor<4x8x1x1xf32>) outs(%e : tensor<4x8x1x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %part : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x1x1xf32>
  %whole = tensor.empty() : tensor<4x8x80x4096xf32>
  %centred = linalg.generic {indexing_maps = [#image, #group, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %mean : tensor<4x8x80x4096xf32>, tensor<4x8x1x1xf32>) outs(%whole : tensor<4x8x80x4096xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %1 = arith.subf %a, %m : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x80x4096xf32>
  %halves = linalg.generic {indexing_maps = [#image, #image], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%centred : tensor<4x8x80x4096xf32>) outs(%whole : tensor<4x8x80x4096xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %half : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x80x4096xf32>
  %total = linalg.generic {indexing_maps = [#image, #group], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%halves : tensor<4x8x80x4096xf32>) outs(%f : tensor<4x8x1x1xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x1x1xf32>
  return %total : tensor<4x8x1x1xf32>
}

// -----

// Several sums for each channel, as a batch norm's gradients are, are one kernel of convert-linalg-to-gpu.

#images = affine_map<(n, c, h, w) -> (n, c, h, w)>
#channels = affine_map<(n, c, h, w) -> (c)>

// CHECK-LABEL: func.func @several
// CHECK-NOT: "kitsune.kernel"
// CHECK-COUNT-2: iterator_types = ["reduction", "parallel", "reduction", "reduction"]
func.func @several(%x: tensor<16x64x56x56xf32>, %e: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %sum = linalg.generic {indexing_maps = [#images, #channels], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<16x64x56x56xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %squares = linalg.generic {indexing_maps = [#images, #channels], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<16x64x56x56xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %sum, %squares : tensor<64xf32>, tensor<64xf32>
}

// -----

// A softmax's largest number and sum of few long rows, in parts: one kernel reads the numbers once, another joins what
// it made of the parts.

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r, 0)>

// CHECK-LABEL: func.func @exponentials
// CHECK:       "kitsune.kernel"
// CHECK:       "kitsune.kernel"
// CHECK-NOT:   "kitsune.kernel"
// CHECK:       return
func.func @exponentials(%x: tensor<16x32000xbf16>) -> (tensor<16x1xf32>, tensor<16x1xf32>) {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<16x32000xf32>
  %i = tensor.empty() : tensor<16x1xf32>
  %f = linalg.fill ins(%lowest : f32) outs(%i : tensor<16x1xf32>) -> tensor<16x1xf32>
  %z = linalg.fill ins(%zero : f32) outs(%i : tensor<16x1xf32>) -> tensor<16x1xf32>
  %m = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x32000xbf16>) outs(%f : tensor<16x1xf32>) {
  ^bb0(%a: bf16, %s: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.maximumf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<16x1xf32>
  %d = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<16x32000xbf16>, tensor<16x1xf32>) outs(%e : tensor<16x32000xf32>) {
  ^bb0(%a: bf16, %b: f32, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<16x32000xf32>
  %p = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<16x32000xf32>) outs(%e : tensor<16x32000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<16x32000xf32>
  %s = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<16x32000xf32>) outs(%z : tensor<16x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16x1xf32>
  return %m, %s : tensor<16x1xf32>, tensor<16x1xf32>
}

// -----

// A sum over rows of what is made with sums along them is made of what another sum over rows reads.

// CHECK-LABEL: func.func @main
// CHECK: %[[C:.+]] = "kitsune.result"
// CHECK: %[[S:.+]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%arg0, %arg1, %{{.+}} : tensor<65536x256xbf16>, tensor<65536x256xbf16>, tensor<65536x1xf32>) outs(%{{.+}} : tensor<256xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} {{.*}} outs(%{{.+}} : tensor<256xf32>)
// CHECK-NOT: iterator_types = ["reduction", "parallel"]
#id = affine_map<(d0, d1) -> (d0, d1)>
#number = affine_map<(d0, d1) -> (d0, 0)>
#column = affine_map<(d0, d1) -> (0, d1)>
func.func @main(%x: tensor<65536x256xbf16>, %g: tensor<65536x256xbf16>) -> (tensor<65536x256xbf16>, tensor<1x256xf32>, tensor<1x256xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<65536x256xf32>
  %p = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %g : tensor<65536x256xbf16>, tensor<65536x256xbf16>) outs(%e : tensor<65536x256xf32>) {
  ^bb0(%a: bf16, %b: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<65536x256xf32>
  %n = tensor.empty() : tensor<65536x1xf32>
  %of_rows = linalg.fill ins(%zero : f32) outs(%n : tensor<65536x1xf32>) -> tensor<65536x1xf32>
  %c = linalg.generic {indexing_maps = [#id, #number], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<65536x256xf32>) outs(%of_rows : tensor<65536x1xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<65536x1xf32>
  %e16 = tensor.empty() : tensor<65536x256xbf16>
  %d = linalg.generic {indexing_maps = [#id, #id, #number, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %g, %c : tensor<65536x256xbf16>, tensor<65536x256xbf16>, tensor<65536x1xf32>) outs(%e16 : tensor<65536x256xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %of: f32, %out: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %of : f32
    %3 = arith.subf %1, %2 : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<65536x256xbf16>
  %m = tensor.empty() : tensor<1x256xf32>
  %of_columns = linalg.fill ins(%zero : f32) outs(%m : tensor<1x256xf32>) -> tensor<1x256xf32>
  %s = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%d : tensor<65536x256xbf16>) outs(%of_columns : tensor<1x256xf32>) {
  ^bb0(%a: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %0, %out : f32
    linalg.yield %1 : f32
  } -> tensor<1x256xf32>
  %t = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%p : tensor<65536x256xf32>) outs(%of_columns : tensor<1x256xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<1x256xf32>
  return %d, %s, %t : tensor<65536x256xbf16>, tensor<1x256xf32>, tensor<1x256xf32>
}
