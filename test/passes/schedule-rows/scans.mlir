// RUN: kitsune-opt %s --schedule-rows | filecheck %s

// A running sum between elementwise operators, and a sum of what these give: one kernel, which writes one number a row.

// CHECK-LABEL: func.func @paths
// CHECK:         "kitsune.kernel"
// CHECK:           %[[X:.*]] = "kitsune.read"
// CHECK:           arith.mulf
// CHECK:           tm_tensor.scan dimension(1) inclusive(true)
// CHECK-SAME:        tensor<{{.*}}x100xf32>
// CHECK:           math.exp
// CHECK:           iterator_types = ["parallel", "reduction"]
// CHECK:           "kitsune.write"
// CHECK-NOT:       "kitsune.write"
// CHECK:         %[[R:.*]] = "kitsune.result"
// CHECK:         return %[[R]]

// A scan alone, and one along rows of an open length, stay what they are.

// CHECK-LABEL: func.func @alone
// CHECK-NOT:     "kitsune.kernel"
// CHECK:         tm_tensor.scan
// CHECK-LABEL: func.func @open
// CHECK-NOT:     "kitsune.kernel"
// CHECK:         tm_tensor.scan

#whole = affine_map<(n, c) -> (n, c)>
#row = affine_map<(n, c) -> (n)>

func.func @paths(%x: tensor<512x100xf32>) -> tensor<512xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<512x100xf32>
  %r = tensor.empty() : tensor<512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%r : tensor<512xf32>) -> tensor<512xf32>
  %a = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<512x100xf32>) outs(%e : tensor<512x100xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %half : f32
    linalg.yield %0 : f32
  } -> tensor<512x100xf32>
  %s:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%a : tensor<512x100xf32>)
      outs(%e, %z : tensor<512x100xf32>, tensor<512xf32>) {
  ^bb0(%in: f32, %before: f32):
    %0 = arith.addf %in, %before : f32
    tm_tensor.yield %0 : f32
  } -> tensor<512x100xf32>, tensor<512xf32>
  %y = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%s#0 : tensor<512x100xf32>) outs(%e : tensor<512x100xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<512x100xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<512x100xf32>) outs(%z : tensor<512xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<512xf32>
  return %sum : tensor<512xf32>
}

func.func @alone(%x: tensor<512x100xf32>) -> tensor<512x100xf32> {
  %e = tensor.empty() : tensor<512x100xf32>
  %r = tensor.empty() : tensor<512xf32>
  %s:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<512x100xf32>)
      outs(%e, %r : tensor<512x100xf32>, tensor<512xf32>) {
  ^bb0(%in: f32, %before: f32):
    %0 = arith.addf %in, %before : f32
    tm_tensor.yield %0 : f32
  } -> tensor<512x100xf32>, tensor<512xf32>
  return %s#0 : tensor<512x100xf32>
}

func.func @open(%x: tensor<512x?xf32>) -> tensor<512x?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<512x?xf32>
  %e = tensor.empty(%n) : tensor<512x?xf32>
  %r = tensor.empty() : tensor<512xf32>
  %s:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<512x?xf32>)
      outs(%e, %r : tensor<512x?xf32>, tensor<512xf32>) {
  ^bb0(%in: f32, %before: f32):
    %0 = arith.addf %in, %before : f32
    tm_tensor.yield %0 : f32
  } -> tensor<512x?xf32>, tensor<512xf32>
  %y = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%s#0 : tensor<512x?xf32>) outs(%e : tensor<512x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<512x?xf32>
  return %y : tensor<512x?xf32>
}
