// RUN: kitsune-opt --prepare-linalg %s | filecheck %s

// Scalar code takes its cheap form, in f32 whatever the tensors hold.

#id = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @powers
// CHECK: %[[X2:.+]] = arith.mulf %[[X:.+]], %[[X]] : f32
// CHECK: %[[X3:.+]] = arith.mulf %[[X2]], %[[X]] : f32
// CHECK: math.rsqrt %[[X3]] : f32
// CHECK-NOT: math.fpowi
// CHECK-NOT: math.powf
func.func @powers(%x: tensor<8xf32>) -> tensor<8xf32> {
  %three = arith.constant 3 : i64
  %half = arith.constant -0.5 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.fpowi %in, %three : f32, i64
    %1 = math.powf %0, %half : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// A power of two is one of two, whatever the exponent is.
// CHECK-LABEL: func.func @powers_of_two
// CHECK: math.exp2
// CHECK-NOT: math.powf
func.func @powers_of_two(%x: tensor<8xf32>) -> tensor<8xf32> {
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.powf %two, %in : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func.func @quotient
// CHECK-DAG: %[[C:.+]] = arith.constant 2.500000e-01 : f32
// CHECK: arith.mulf %{{.+}}, %[[C]] : f32
// CHECK-NOT: arith.divf
func.func @quotient(%x: tensor<8xf32>) -> tensor<8xf32> {
  %four = arith.constant 4.0 : f64
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.truncf %four : f64 to f32
    %1 = arith.divf %in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// A quotient by zero keeps its meaning.
// CHECK-LABEL: func.func @by_zero
// CHECK: arith.divf
func.func @by_zero(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %1 = arith.divf %in, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func.func @relu
// CHECK: arith.maximumf
// CHECK-NOT: arith.select
func.func @relu(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.cmpf ugt, %in, %zero : f32
    %1 = arith.select %0, %in, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// A NaN would not come through this one: it is no maximumf.
// CHECK-LABEL: func.func @ordered
// CHECK: arith.select
func.func @ordered(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.cmpf ogt, %in, %zero : f32
    %1 = arith.select %0, %in, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func.func @narrow
// CHECK: %[[X:.+]] = arith.extf %{{.+}} : bf16 to f32
// CHECK: %[[E:.+]] = math.exp %[[X]] : f32
// CHECK: %[[S:.+]] = arith.addf %[[E]], %[[X]] : f32
// CHECK: %[[R:.+]] = arith.truncf %[[S]] : f32 to bf16
// CHECK: linalg.yield %[[R]] : bf16
func.func @narrow(%x: tensor<8xbf16>) -> tensor<8xbf16> {
  %e = tensor.empty() : tensor<8xbf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %0 = math.exp %in : bf16
    %1 = arith.addf %0, %in : bf16
    linalg.yield %1 : bf16
  } -> tensor<8xbf16>
  return %y : tensor<8xbf16>
}

// What is compared is rounded, as that may have been which it is compared with; what is computed further is not.
// CHECK-LABEL: func.func @compared
// CHECK: %[[E:.+]] = math.exp
// CHECK: %[[R:.+]] = arith.truncf %[[E]] : f32 to bf16
// CHECK: %[[L:.+]] = arith.extf %[[R]] : bf16 to f32
// CHECK: %[[C:.+]] = arith.cmpf oeq, %[[L]], %{{.+}} : f32
// CHECK: %[[Y:.+]] = arith.select %[[C]], %[[E]], %{{.+}} : f32
// CHECK: arith.truncf %[[Y]] : f32 to bf16
func.func @compared(%x: tensor<8xbf16>, %most: tensor<8xbf16>) -> tensor<8xbf16> {
  %e = tensor.empty() : tensor<8xbf16>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %most : tensor<8xbf16>, tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
  ^bb0(%in: bf16, %m: bf16, %out: bf16):
    %0 = math.exp %in : bf16
    %1 = arith.cmpf oeq, %0, %m : bf16
    %2 = arith.select %1, %0, %m : bf16
    linalg.yield %2 : bf16
  } -> tensor<8xbf16>
  return %y : tensor<8xbf16>
}
