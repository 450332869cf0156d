// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// Dead results, constant inputs and duplicate inputs go; tensors of one value are fills.

#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
#none = affine_map<(d0, d1) -> ()>

// CHECK-LABEL: func.func @max_with_index
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2xf32>)
// CHECK-NOT: linalg.index
// CHECK: arith.maximumf
// CHECK: linalg.yield %{{.+}} : f32
func.func @max_with_index(%x: tensor<2x8xf32>) -> tensor<2xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : i64
  %e = tensor.empty() : tensor<2xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %ei = tensor.empty() : tensor<2xi64>
  %fi = linalg.fill ins(%zero : i64) outs(%ei : tensor<2xi64>) -> tensor<2xi64>
  %m:2 = linalg.generic {indexing_maps = [#id, #first, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x8xf32>) outs(%f, %fi : tensor<2xf32>, tensor<2xi64>) {
  ^bb0(%in: f32, %out: f32, %at: i64):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.maximumf %in, %out : f32
    %3 = arith.cmpf ogt, %in, %out : f32
    %4 = arith.select %3, %1, %at : i64
    linalg.yield %2, %4 : f32, i64
  } -> (tensor<2xf32>, tensor<2xi64>)
  return %m#0 : tensor<2xf32>
}

// The value decides where the index is: both stay.
// CHECK-LABEL: func.func @index_only
// CHECK: linalg.generic {{.*}} outs(%{{.+}}, %{{.+}} : tensor<2xf32>, tensor<2xi64>)
func.func @index_only(%x: tensor<2x8xf32>, %f: tensor<2xf32>, %fi: tensor<2xi64>) -> tensor<2xi64> {
  %m:2 = linalg.generic {indexing_maps = [#id, #first, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x8xf32>) outs(%f, %fi : tensor<2xf32>, tensor<2xi64>) {
  ^bb0(%in: f32, %out: f32, %at: i64):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.maximumf %in, %out : f32
    %3 = arith.cmpf ogt, %in, %out : f32
    %4 = arith.select %3, %1, %at : i64
    linalg.yield %2, %4 : f32, i64
  } -> (tensor<2xf32>, tensor<2xi64>)
  return %m#1 : tensor<2xi64>
}

// CHECK-LABEL: func.func @constant_and_twice
// CHECK: linalg.generic {{.*}} ins(%{{[^,]+}} : tensor<2x8xf32>) outs
// CHECK-NEXT: ^bb0(%[[X:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[S:.+]] = arith.mulf %[[X]], %[[X]] : f32
// CHECK-NEXT: arith.maximumf %[[S]], %{{.+}} : f32
func.func @constant_and_twice(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %c = arith.constant dense<3.0> : tensor<f32>
  %e = tensor.empty() : tensor<2x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %x, %c : tensor<2x8xf32>, tensor<2x8xf32>, tensor<f32>) outs(%e : tensor<2x8xf32>) {
  ^bb0(%a: f32, %b: f32, %low: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.maximumf %0, %low : f32
    linalg.yield %1 : f32
  } -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// The reduction's size is known from the input alone, so the input stays though the body ignores it.
// CHECK-LABEL: func.func @count
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : tensor<2x8xf32>) outs(%{{.+}} : tensor<2xf32>)
func.func @count(%x: tensor<2x8xf32>, %o: tensor<2xf32>) -> tensor<2xf32> {
  %one = arith.constant 1.0 : f32
  %y = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x8xf32>) outs(%o : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %one : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// CHECK-LABEL: func.func @zeros
// CHECK-NOT: dense
// CHECK: linalg.fill
// CHECK-NOT: linalg.generic
func.func @zeros() -> (tensor<4x4xbf16>, tensor<4x4xf32>) {
  %c = arith.constant dense<0.0> : tensor<4x4xbf16>
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%c : tensor<4x4xbf16>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  return %c, %y : tensor<4x4xbf16>, tensor<4x4xf32>
}

// CHECK-LABEL: func.func @bounds
// CHECK-NOT: cf.assert
func.func @bounds(%i: index) -> index {
  %c = arith.constant 8 : index
  %0 = arith.cmpi slt, %i, %c : index
  cf.assert %0, "index out of range"
  return %i : index
}
